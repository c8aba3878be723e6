"""Asks an engine whose lookups begin where its own cache ends for conversations that grow, over a store that has lost
keys, and compares with whole lookups of the same server, and with an engine without a store."""

import collections
import contextlib
import random
import statistics

import compare
import processes
import prompts
import scenarios
import stage

SEED = 1
CONVERSATIONS = 4
TURNS = 7
FIRST = 150, 400  # tokens of a first turn, least and most
GROWTH = 40, 220  # that a turn adds
LOST_BLOCKS = 3  # at most, of a hole
# Where blocks are removed, and how often. More are lost between a lookup and its load, in one request of LOST_OF.
HOLES = {"before": 4, "across": 2, "after": 2, "before and after": 2, "none": 1}
LOST_OF = 4
MIN_GAIN = 0.1  # of the requests, those that load more than after a whole lookup

# Of a store that evicts, the conversations, which it cannot all hold, and the modes in turn: see engine/modes.py.
EVICTING_CONVERSATIONS = 12
MODES = "own", "whole", "local"
ROUNDS = 3


class Turns:
    def __init__(self, row, found, own):
        self.row, self.found, self.stage = row, found, own
        self.block_size = stage.block_size(row.release)
        self.engine, self.alone = own.engines["a"], own.engines[stage.ALONE]
        self.random = random.Random(SEED)
        self.seen = collections.Counter()
        several = row.model != "llama"
        # With several groups an engine up to 0.29 ends with the first load that fails.
        self.may_fail = not several or row.release != "0.28.0"
        # Up to 0.28 an engine stores other contents for blocks that have left a window, if the store has lost them,
        # wherever lookups begin. So only the full-attention group, the last one, loses any.
        self.keys_of = "@group:2@" if several and row.release == "0.28.0" else ""

    def run(self):
        if self.row.evicts:
            self.evicting()
        else:
            self.each_turn(CONVERSATIONS, lambda turn, text: self.conversation(text))
            self.judge()

    def each_turn(self, count, compute):
        """Calls compute with each turn of each conversation, turn by turn."""
        lengths = [self.random.randint(*FIRST) for _ in range(count)]
        for turn in range(TURNS):
            for number, length in enumerate(lengths):
                compute(turn, prompts.tokens(f"turns {number}", length))
                lengths[number] += self.random.randint(*GROWTH)

    def evicting(self):
        """Counts what is loaded and computed in each mode: the median of the rounds, and each. A round begins with
        another mode."""
        measured = {mode: [] for mode in MODES}
        for number in range(ROUNDS):
            for mode in MODES[number:] + MODES[:number]:
                measured[mode].append(self.count(mode))
        for mode, rounds in measured.items():
            row = {"mode": mode, "prompt_tokens": rounds[0]["prompt_tokens"]}
            for name in ("loaded", "computed", "failed_loads"):
                row[name] = statistics.median(seen[name] for seen in rounds)
                row[f"{name}_rounds"] = [seen[name] for seen in rounds]
            self.found.rows.append(row)

    def count(self, mode):
        """Has the conversations computed in a mode, over an empty store that cannot hold them, and counts tokens."""
        self.random = random.Random(SEED)
        self.engine.reset()
        self.engine.remove(self.stage.master.keys())
        self.engine.call("use", mode, seconds=processes.REPLY_TIME)
        seen = collections.Counter()

        def turn(number, text):
            output = self.compute(text)
            seen.update(
                prompt_tokens=len(text),
                loaded=self.block_size * sum(result >= 0 for _, result in output["loads"]),
                failed_loads=sum(result < 0 for _, result in output["loads"]),
                computed=len(text) - output["cached"],
                blocks=len(text) // self.block_size if number == TURNS - 1 else 0,
            )
            if number % 2:
                self.engine.reset()

        self.each_turn(EVICTING_CONVERSATIONS, turn)
        if len(self.stage.master.keys()) >= seen["blocks"]:
            self.found.problem("evicted", f"{mode}: the store has lost no block")
        return seen

    def conversation(self, text):
        """Has a turn stored, of which the engine then has a part, and the next turn computed over a store with
        holes."""
        hashes = self.compute(text)["lookups"][0]["hashes"]
        self.engine.reset()
        own = self.random.randrange(self.block_size, len(text))
        self.compute(text[:own])
        held = own // self.block_size
        hole, lost = self.holes(hashes, held)
        self.engine.remove(hole)
        self.compute(text + prompts.tokens(f"next {len(text)}", 30), lost)

    def holes(self, hashes, held):
        """Returns the keys to remove before a lookup, and those to remove between it and its load. The engine has the
        first blocks itself, as many as held."""
        sides = {"before": range(held), "after": range(held, len(hashes))}
        kind = self.random.choices(list(HOLES), HOLES.values())[0]
        self.seen[kind] += 1
        if kind == "across":
            hole = {held - 1, held}
        else:
            hole = {at for side in sides if side in kind for at in self.some(sides[side])}
        lost = set()
        if self.may_fail and not self.random.randrange(LOST_OF):
            lost = {at for side in sides.values() for at in self.some(side)} - hole
        keys = [key for key in self.stage.master.keys() if self.keys_of in key]
        removed = ({hashes[at] for at in each} for each in (hole, lost))
        return [[key for key in keys if key.rpartition("@")[2] in names] for names in removed]

    def some(self, blocks):
        return self.random.sample(blocks, min(len(blocks), self.random.randint(1, LOST_BLOCKS)))

    def compute(self, text, lost=()):
        """Has both engines compute a prompt, and compares."""
        command = "generate", [text], scenarios.MAX_TOKENS
        self.alone.send(*command, False)
        asked = not self.row.evicts, {"lost": lost}
        (output,) = self.engine.call(*command, *asked, seconds=processes.COMPUTE_TIMEOUT)
        (want,) = self.alone.reply(processes.COMPUTE_TIMEOUT)
        self.found.prompts += 1
        compare.tokens(self.found, f"{len(text)} tokens", want, output)
        if not self.row.evicts:
            self.lookup(text, output)
        self.loads(output)
        if output["empty_saves"]:
            self.found.problem("saved", f"requests {output['empty_saves']} are saved without blocks")
        self.engine.settle()
        return output

    def lookup(self, text, output):
        """Compares the first lookup of a request with whole ones: of hitline, and of vLLM's own server before it."""
        if not output["lookups"]:
            self.seen["not asked"] += 1
            return
        record = output["lookups"][0]
        local, start = record["engine"][0], record["start"]
        whole = record["before"][0]
        self.found.lookups += 1
        self.found.hit_tokens += local
        self.found.longest_wait = max(self.found.longest_wait, *record["waits"])
        self.found.pending += len(record["waits"]) > 1
        self.found.asked += 1
        if local < whole:
            self.found.problem("less", f"{len(text)} tokens from {start}: {local}, whole {whole}")
        else:
            self.found.asked_equal += 1
        if record["hitline"] != record["before"]:
            self.found.problem("whole", f"{len(text)} tokens: {record['hitline']}, vLLM's own {record['before']}")
        self.seen["more"] += max(local, start) > max(whole, start)
        self.seen["begun"] += start > 0

    def loads(self, output):
        """Checks that nothing that lies before the start of the lookup was loaded."""
        if not output["lookups"]:
            return
        record = output["lookups"][0]
        first = record["start"] // self.block_size
        for key, result in output["loads"]:
            self.seen["loaded"] += 1
            self.seen["failed"] += result < 0
            if record["hashes"].index(key.rpartition("@")[2]) < first:
                self.found.problem("loaded", f"{key} lies before token {record['start']}")

    def judge(self):
        found, seen = self.found, self.seen
        if seen["more"] < MIN_GAIN * found.lookups:
            found.problem("more", f"{seen['more']} of {found.lookups} lookups load more than whole ones")
        if self.may_fail and not seen["failed"]:
            found.problem("failed", "no load failed")
        if self.row.extra.get("lookup_async") and not found.pending:
            found.problem("async", "every lookup was ready at once")
        found.notes.append(", ".join(f"{count} {name}" for name, count in sorted(seen.items())))


def one_row(row, found, context):
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(stage.Stage(context.folder, row, context.plugin, row.engines))
        own.started()
        Turns(row, found, own).run()
