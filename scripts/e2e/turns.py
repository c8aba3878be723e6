"""Asks an engine whose lookups begin where its own cache ends for conversations that grow, over a store that has lost
keys, and compares with whole lookups of the same server, and with an engine without a store."""

import collections
import contextlib
import json
import os
import random

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

LEASE = "300ms"  # that the master gives to keys
EVICTING_SIZE = "16MB"  # of a store that evicts
# Of a store that evicts, the conversations, which it cannot all hold.
EVICTING_CONVERSATIONS = 12


class Engine(processes.Engine):
    """See engine/turns.py."""

    program = "turns.py"


class Stage(stage.Stage):
    """A store, hitline, an engine with the plug-in and one without a store."""

    def __init__(self, folder, row, plugin):
        super().__init__(folder, row, plugin, ("a", "alone"))
        self.block_size = stage.BLOCK_SIZES[row.release]

    def start_master(self, **options):
        return super().start_master(lease=LEASE, **options)

    def hitline_environ(self):
        return {**super().hitline_environ(), "HITLINE_BACKEND_MOONCAKE_LEASE": LEASE}

    def store_config(self):
        return {**super().store_config(), **({"global_segment_size": EVICTING_SIZE} if self.row.evicts else {})}

    def start_engine(self, name):
        own = os.path.join(self.temporary, name)
        os.makedirs(own)
        llm = self.llm()
        if self.row.multi:
            llm["kv_transfer_config"] = multi(llm["kv_transfer_config"])
        llm["kv_transfer_config"]["kv_load_failure_policy"] = "recompute"
        if name == "alone":
            del llm["kv_transfer_config"]
        settings = json.dumps({"master": self.master.address, "llm": llm})
        log = os.path.join(self.folder, f"engine-{name}.log")
        return self.running(lambda: Engine(f"engine {name}", self.environ(own), log, settings))


def multi(config):
    """Returns the configuration of two connectors with keys of their own."""
    children = [
        {**config, "kv_connector_extra_config": {"cache_prefix": name, "lookup_rpc_port": port}}
        for port, name in enumerate(("first", "second"))
    ]
    return {**config, "kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": children}}


class Turns:
    def __init__(self, row, found, own):
        self.row, self.found, self.stage = row, found, own
        self.engine, self.alone = own.engines["a"], own.engines["alone"]
        self.random = random.Random(SEED)
        self.seen = collections.Counter()
        self.blocks = {}  # that were computed, by conversation
        several = row.model != "llama"
        # With several groups an engine up to 0.29 ends with the first load that fails.
        self.may_fail = not several or row.release != "0.28.0"
        # Up to 0.28 an engine stores other contents for blocks that have left a window, if the store has lost them,
        # wherever lookups begin. So only the full-attention group, the last one, loses any.
        self.keys_of = "@group:2@" if several and row.release == "0.28.0" else ""

    def run(self):
        count = EVICTING_CONVERSATIONS if self.row.evicts else CONVERSATIONS
        lengths = [self.random.randint(*FIRST) for _ in range(count)]
        for turn in range(TURNS):
            for number, length in enumerate(lengths):
                text = prompts.tokens(f"turns {number}", length)
                if self.row.evicts:
                    self.compute(text)
                    if turn % 2:
                        self.reset()
                else:
                    self.conversation(text)
                lengths[number] += self.random.randint(*GROWTH)
                self.blocks[number] = len(text) // self.stage.block_size
        self.judge()

    def conversation(self, text):
        """Has a turn stored, of which the engine then has a part, and the next turn computed over a store with
        holes."""
        hashes = self.compute(text)["lookups"][0]["hashes"]
        self.reset()
        own = self.random.randrange(self.stage.block_size, len(text))
        self.compute(text[:own])
        held = own // self.stage.block_size
        hole, lost = self.holes(hashes, held)
        self.engine.call("remove", hole, seconds=scenarios.RESET_TIMEOUT)
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

    def reset(self):
        self.engine.call("reset", seconds=scenarios.RESET_TIMEOUT)

    def compute(self, text, lost=()):
        """Has both engines compute a prompt, and compares."""
        self.alone.send("turn", text, scenarios.MAX_TOKENS)
        output = self.engine.call("turn", text, scenarios.MAX_TOKENS, lost, seconds=scenarios.GENERATE_TIMEOUT)
        want = self.alone.reply(scenarios.GENERATE_TIMEOUT)
        self.found.prompts += 1
        self.found.outputs += 1
        if output["tokens"] == want and output["finish"] == "length":
            self.found.outputs_equal += 1
        else:
            self.found.problem("tokens", f"{len(text)} tokens: {output['tokens']}, without a store {want}")
        if not self.row.evicts:
            self.lookup(text, output)
        self.loads(output)
        if output["empty_saves"]:
            self.found.problem("saved", f"requests {output['empty_saves']} are saved without blocks")
        if not self.engine.call("settle", scenarios.SETTLE_TIMEOUT, seconds=scenarios.GENERATE_TIMEOUT):
            raise processes.Failed(f"{self.engine.name} did not store its blocks in time")
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
        first = record["start"] // self.stage.block_size
        for key, result in output["loads"]:
            self.seen["loaded"] += 1
            self.seen["failed"] += result < 0
            if record["hashes"].index(key.rpartition("@")[2]) < first:
                self.found.problem("loaded", f"{key} lies before token {record['start']}")

    def judge(self):
        found, seen = self.found, self.seen
        if self.row.evicts:
            seen["left"], seen["stored"] = len(self.stage.master.keys()), sum(self.blocks.values())
            if seen["left"] >= seen["stored"]:
                found.problem("evicted", "the store has lost no block")
        if not self.row.evicts and seen["more"] < MIN_GAIN * found.lookups:
            found.problem("more", f"{seen['more']} of {found.lookups} lookups load more than whole ones")
        if not self.row.evicts and self.may_fail and not seen["failed"]:
            found.problem("failed", "no load failed")
        if self.row.extra.get("lookup_async") and not found.pending:
            found.problem("async", "every lookup was ready at once")
        found.notes.append(", ".join(f"{count} {name}" for name, count in sorted(seen.items())))


def one_row(row, found, plugin, folder):
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(Stage(folder, row, plugin))
        own.started()
        Turns(row, found, own).run()
