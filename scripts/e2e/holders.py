"""Asks hitline who has what of prompts that two engines compute, and how much of them the store can load, and compares
that with what the engines have and what a third engine then loads."""

import collections
import contextlib
import random

import holders_stage
import processes
import prompts
from holders_stage import ENGINES, FRESH, GROUPS, PROMPT_BLOCKS, SPECS

SEED = 1  # of the prompts
ROUNDS = 8
STEPS = 30  # of a round: each engine computes some prompts
ASKED = 100  # prompts of a checkpoint
LOADED = 30  # of them the third engine computes
UNSEEN = 4  # prompts of a checkpoint that only the third engine computes
RESETS = {2: "a", 5: "b"}  # the engine whose cache is cleared before a round
REMOVED = {3: 0.1, 6: 0.3}  # of the store's keys, before a checkpoint

SETTLE_TIMEOUT = 60  # seconds until hitline has caught up


class Prompts:
    """Draws prompts, of which many begin as earlier ones do."""

    def __init__(self, block_size):
        self.size = block_size
        self.random = random.Random(SEED)
        self.earlier = []

    def draw(self):
        """Returns a prompt that is new, or an earlier one, or shares a prefix with one."""
        chance = self.random.random()
        if self.earlier and chance < 0.7:
            tokens = self.random.choice(self.earlier[-40:])
            if chance < 0.4:
                tokens = tokens[: self.random.randint(1, len(tokens))] + self.tokens(self.random.randint(1, 60))
        else:
            tokens = self.tokens(self.random.randint(1, PROMPT_BLOCKS * self.size))
            if self.random.random() < 0.5:
                tokens = tokens[: max(1, len(tokens) // self.size * self.size)]
        return tokens[: PROMPT_BLOCKS * self.size]

    def draw_step(self):
        """Returns some prompts to be computed at a time."""
        drawn = [self.draw() for _ in range(self.random.randint(1, 4))]
        self.earlier += drawn
        return drawn

    def tokens(self, count):
        return self.random.choices(range(prompts.FIRST_TOKEN, 1000), k=count)


class Holders:
    """What is done in a row."""

    def __init__(self, row, found, stack, folder):
        self.row, self.found = row, found
        self.stage = stack.enter_context(holders_stage.Stage(folder, row))
        self.block_size = self.stage.block_size
        self.prompts = Prompts(self.block_size)
        self.random = random.Random(SEED)
        self.hashes = {}  # of the whole blocks of each prompt
        self.seen = collections.Counter()  # kinds of answers
        self.check_groups(self.stage.started())

    def check_groups(self, described):
        want = [[SPECS[group["kind"]], self.block_size] for group in GROUPS[self.row.model]]
        for name, groups in described.items():
            if groups != want:
                raise processes.Failed(f"engine {name} has the groups {groups}, not {want}")

    def engine(self, name):
        return self.stage.engines[name]

    # What the engines do.

    def run(self, steps=STEPS, names=ENGINES):
        """Has engines compute prompts at the same time."""
        for _ in range(steps):
            sent = {name: self.prompts.draw_step() for name in names}
            for name, texts in sent.items():
                self.engine(name).send("compute", texts, self.random.choice([1, 1, 1, 20]))
            for name, texts in sent.items():
                self.check_outputs(texts, self.engine(name).reply(processes.COMPUTE_TIMEOUT))
        for name in names:
            self.engine(name).settle()

    def check_outputs(self, texts, outputs):
        for text, output in zip(texts, outputs):
            self.found.prompts += 1
            self.hashes[tuple(text)] = output["hashes"]
            if output["finish"] != "length":
                self.found.problem("finish", f"a prompt of {len(text)} tokens ended with {output['finish']}")
            # Of equal prompts at a time the latest answer is known.
            if texts.count(text) == 1 and output["cached"] != output["local"] + output["external"]:
                self.found.problem("cached", f"a prompt of {len(text)} tokens: {numbers(output)}")

    def clear(self, name):
        self.engine(name).call("clear", seconds=processes.RESET_TIMEOUT)

    def remove(self, fraction):
        """Removes some of the store's keys."""
        keys = self.stage.master.keys()
        chosen = self.random.sample(keys, round(fraction * len(keys)))
        self.engine(FRESH).remove(chosen)

    # What hitline answers.

    def query(self, text, **fields):
        """Asks by tokens. Returns the tokens of each engine, and the whole answer."""
        body = {"model": self.row.model, "token_ids": text, "block_size": self.block_size, **fields}
        return self.answer(self.stage.hitline.post("/query", body))

    def answer(self, reply):
        self.found.lookups += 1
        engines = reply["instances"]
        for name, one in engines.items():
            # A block that is in the store only is in no medium of an engine.
            tokens = one["longest_matched"]
            if one["gpu"] != tokens or one["cpu"] or one["disk"] or set(one["dp"].values()) != {tokens}:
                self.found.problem("media", f"engine {name}: {one}")
        return {name: engines.get(name, {}).get("longest_matched", 0) for name in ENGINES}, reply

    def by_hash(self, hashes, short=False, **fields):
        """Asks by hashes, whole digests or integers of 64 bits. Returns as query does."""
        if short:
            hashes = [int(name[-16:], 16) for name in hashes]
        body = {"model": self.row.model, "seq_hashes": hashes, "block_size": self.block_size, **fields}
        return self.answer(self.stage.hitline.post("/query_by_hash", body))

    def client(self, text, loadable=False):
        """Asks by the Python client. Returns the tokens of each engine, and what is loadable."""
        self.found.lookups += 1
        hashes = [bytes.fromhex(name) for name in self.hashes[tuple(text)]]
        reply = self.stage.hitline.client.holders(hashes, model=self.row.model, loadable=loadable, num_tokens=len(text))
        tokens = {holder.engine: holder.tokens for holder in reply.holders}
        return {name: tokens.get(name, 0) for name in ENGINES}, reply.loadable_tokens

    def command(self, text):
        """Asks by hitline holders. Returns as client does."""
        arguments = "--model", self.row.model, "--loadable", "--tokens-file", "-"
        tokens, reply = self.answer(self.stage.hitline.command(*arguments, stdin=" ".join(map(str, text))))
        return tokens, reply["loadable_tokens"]

    # Checkpoints: all engines are at rest.

    def caught_up(self, name):
        """Whether hitline has applied all that an engine sent."""
        source = self.stage.hitline.sources()[name]
        published = self.engine(name).call("published", seconds=processes.REPLY_TIME)
        return not source["stale"] and source["next_sequence"] == published

    def compare(self, name):
        for engine in self.stage.hitline.sources():
            text = f"{name}: hitline has not caught up with engine {engine}"
            processes.timed(lambda engine=engine: self.caught_up(engine), SETTLE_TIMEOUT, text)
        asked = [list(text) for text in dict.fromkeys(map(tuple, self.prompts.earlier[-ASKED:]))]
        hashes = [self.hashes[tuple(text)] for text in asked]
        longest = {i: self.engine(i).call("longest", hashes, seconds=processes.COMPUTE_TIMEOUT) for i in ENGINES}
        for number, text in enumerate(asked):
            self.compare_one(name, text, {i: longest[i][number] for i in ENGINES})
        for text in self.random.sample(asked, min(LOADED, len(asked))):
            self.compare_loadable(name, text)
        for _ in range(UNSEEN):
            self.compare_loadable(name, self.prompts.draw())

    def compare_one(self, name, text, want):
        """Compares all answers about a prompt with what the engines have."""
        hashes = self.hashes[tuple(text)]
        answers = {
            "/query": self.query(text)[0],
            "/query_by_hash of digests": self.by_hash(hashes)[0],
            "/query_by_hash of integers": self.by_hash(hashes, short=True)[0],
            "HoldersClient": self.client(text)[0],
        }
        for face, answer in answers.items():
            self.found.asked += 1
            self.found.asked_equal += answer == want
            if answer != want:
                kind = "too much" if any(answer[i] > want[i] for i in ENGINES) else "too little"
                self.found.problem(kind, f"{name}: {face} says {answer} of {len(text)} tokens, the engines {want}")
        whole = len(hashes) * self.block_size
        self.seen["one engine has more"] += want["a"] != want["b"]
        self.seen["part"] += any(0 < want[i] < whole for i in ENGINES)

    def compare_loadable(self, name, text):
        """Compares what is said to be loadable with what the third engine then loads."""
        best, reply = self.query(text, loadable=True)
        self.engine(FRESH).reset()
        output = self.engine(FRESH).call("compute", [text], 1, seconds=processes.COMPUTE_TIMEOUT)[0]
        self.hashes.setdefault(tuple(text), output["hashes"])
        self.check_outputs([text], [output])
        client, command = self.client(text, loadable=True), self.command(text)
        if not best == client[0] == command[0]:
            self.found.problem("faces", f"{name}: of {len(text)} tokens {best}, {client[0]} and {command[0]}")
        by_hash = self.by_hash(output["hashes"], loadable=True, num_tokens=len(text))[1]
        answers = {
            "/query": reply["loadable_tokens"], "/query_by_hash": by_hash["loadable_tokens"],
            "HoldersClient": client[1], "hitline holders": command[1],
        }  # fmt: skip
        for face, loadable in answers.items():
            self.found.examined += 1
            agreed = output["local"] == 0 and loadable == output["external"]
            self.found.agreed += agreed
            if not agreed:
                said = f"{face} says that {loadable} of {len(text)} tokens can be loaded"
                self.found.problem("loadable", f"{name}: {said}, the engine: {numbers(output)}")
        self.found.hit_tokens += output["external"]
        self.seen["more in the store"] += output["external"] > max(best.values())
        self.seen["less in the store"] += output["external"] + self.block_size < max(best.values())

    # Faults.

    def replica(self):
        """Starts a second server from a dump of the first, and asks it from then on."""
        first = self.stage.hitline
        if min(source["next_sequence"] for source in first.sources().values()) <= holders_stage.BUFFER:
            self.found.problem("dump", "the engines can still replay all that they sent")
        self.stage.hitline = self.stage.start_server("hitline-2", peers=[first])
        first.stop()

    def restart(self, name):
        """Kills an engine, whose part of the store is lost, and starts another one."""
        keys = len(self.stage.master.keys())
        self.engine(name).kill()
        processes.timed(
            lambda: self.stage.hitline.sources()[name]["stale"],
            SETTLE_TIMEOUT, f"hitline did not notice the end of engine {name}",
        )  # fmt: skip
        for text in self.prompts.earlier[-ASKED:]:
            if tokens := self.query(text)[0][name]:
                self.found.problem("stale", f"engine {name} has ended, and is said to have {tokens} tokens")
        processes.timed(
            lambda: len(self.stage.master.keys()) < keys,
            SETTLE_TIMEOUT, f"the store did not notice the end of engine {name}",
        )  # fmt: skip
        self.stage.restart(name)
        self.wait_followed()

    def wait_followed(self):
        """Waits until hitline follows all engines: one that had sent more batches than can be replayed would lack blocks."""
        processes.timed(
            lambda: not any(source["stale"] for source in self.stage.hitline.sources().values()),
            SETTLE_TIMEOUT, "hitline does not follow the engines",
        )  # fmt: skip


def numbers(output):
    return {field: output[field] for field in ("local", "external", "cached")}


KINDS = ("one engine has more", "part", "more in the store", "less in the store")


def one_row(row, found, context):
    with contextlib.ExitStack() as stack:
        holders = Holders(row, found, stack, context.folder)
        holders.wait_followed()
        for number in range(ROUNDS):
            if number in RESETS:
                holders.clear(RESETS[number])
            holders.run()
            if number in REMOVED:
                holders.remove(REMOVED[number])
            holders.compare(f"round {number}")
        holders.replica()
        holders.compare("a second server")
        holders.run()
        holders.compare("a second server that goes on")
        holders.restart("b")
        holders.run()
        holders.compare("after a restart of b")
        for kind in KINDS:
            if not holders.seen[kind]:
                found.problem("prompts", f"of no prompt: {kind}")
        found.notes.append("prompts: " + ", ".join(f"{holders.seen[kind]} {kind}" for kind in KINDS))
