"""Breaks a store, or what engines save there, and compares where the tokens of the same prompts go with the fault
and without it: the place that grew most is the one that says what is wrong."""

import contextlib
import dataclasses
import json
import os
import random
import signal
import sys
import time

import processes
import prompts
import stage

sys.path.append(os.path.join(processes.ROOT, "clients", "python"))
from hitline import Client  # noqa: E402

PROMPTS = 200
LENGTHS = 130, 180  # tokens of a prompt, least and most: no multiples of a block
LOOKS = 2, 10  # seconds after which hitline looks whether a prompt was saved, and looks again
CLOSED = 4  # seconds without a further question after which a request is counted
LOOK_TIME = 5  # seconds that looks may take: they ask for a few keys a second
ALIGNMENT = 1024  # tokens, more than a prompt has

COUNT_TIMEOUT = 30  # until requests are counted
RECONNECT = 5  # seconds that an engine and hitline have to find a new master

# What is special about each engine.
ENGINES = {"a": {}, "seed": {}, "ranks": {"tp": 2}, "eagle": {"eagle": True}}


def texts(name):
    lengths = random.Random(name)
    return [prompts.tokens(f"{name} {i}", lengths.randint(*LENGTHS)) for i in range(PROMPTS)]


class Engine(processes.Engine):
    """See engine/places.py."""

    program = "places.py"


class Stage(stage.Stage):
    """A store, and hitline that soon looks at what engines have saved. Each engine is started when it is needed."""

    def __init__(self, folder, row, plugin):
        super().__init__(folder, row, plugin, ())
        self.plain = row

    def hitline_environ(self):
        return {**super().hitline_environ(), "HITLINE_TEST_LOOKS": ",".join(f"{seconds}s" for seconds in LOOKS)}

    def start_engine(self, name):
        self.row = dataclasses.replace(self.plain, **ENGINES[name])
        own = os.path.join(self.temporary, f"engine-{name}")
        os.makedirs(own)
        environ = self.environ(own)
        if name == "seed":
            environ["PYTHONHASHSEED"] = "1"
        log = os.path.join(self.folder, f"engine-{name}.log")
        settings = json.dumps({"master": self.master.address, "llm": self.llm()})
        return self.running(lambda: Engine(f"engine {name}", environ, log, settings))


class Places:
    """What is done in a row. A pass computes prompts of which the engine itself has nothing."""

    def __init__(self, found, stage):
        self.found, self.stage = found, stage

    @contextlib.contextmanager
    def engine(self, name):
        engine = self.stage.start_engine(name)
        try:
            engine.pool = engine.reply(processes.ENGINE_START_TIMEOUT)["pool"]["name"]
            yield engine
        finally:
            engine.stop()

    def stat(self, pool):
        done = processes.run_hitline(
            self.stage.hitline_environ(), "stat", "--connect", self.stage.hitline.address, "--pool", pool, "--json"
        )  # fmt: skip
        if done.returncode:
            raise processes.Failed(f"hitline stat ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def went(self, pool, ask):
        """Returns what ask returns, and where the tokens went that it asks about."""
        time.sleep(CLOSED)  # what was asked before is no part of it
        processes.timed(lambda: self.stat(pool)["open"] == 0, COUNT_TIMEOUT, "earlier requests were not counted")
        before = self.stat(pool)
        result = ask()
        processes.timed(lambda: self.stat(pool)["open"] == 0, COUNT_TIMEOUT, "requests were not counted")
        after = self.stat(pool)
        if (counted := after["prompts"] - before["prompts"]) != PROMPTS:
            self.found.problem("prompts", f"{counted} requests were counted, expected are {PROMPTS}")
        return result, {place: n - before["tokens"][place] for place, n in after["tokens"].items()}

    def run(self, engine, asked, settle=True):
        """Has an engine compute prompts, and save them. Returns the hashes of each, and where the tokens went."""
        result = self.went(engine.pool, lambda: engine.call("compute", asked, seconds=processes.COMPUTE_TIMEOUT))
        self.found.prompts += len(asked)
        if settle:
            engine.settle()
        return result

    def compare(self, fault, want, with_fault, without):
        """The place that grew most beside the same prompts without the fault must be the wanted one."""
        grown = {place: with_fault[place] - without[place] for place in with_fault}
        most = max(grown, key=grown.get)
        told = ", ".join(f"{place} {without[place]} → {with_fault[place]}" for place in grown if grown[place])
        self.found.notes.append(f"{fault}: {told}")
        self.found.asked += 1
        self.found.asked_equal += most == want
        if most != want:
            self.found.problem("place", f"{fault}: {most} grew most, expected is {want}: {told}")

    # What goes wrong.

    def with_one_engine(self):
        with self.engine("a") as engine:
            asked = texts("places")
            hashes, fresh = self.run(engine, asked)
            _, plain = self.run(engine, asked)
            self.compare("random prompts", "new", fresh, plain)
            self.alignment(hashes, asked)
            self.first_blocks(engine, asked, hashes, plain)
            self.restarted(engine, asked, plain)
            self.full(engine)
            self.run(engine, asked)
            self.slow(engine, asked, plain)
            self.run(engine, asked)
            self.removed(engine, asked, hashes, plain)
        with self.engine("eagle") as engine:
            self.run(engine, asked)
            _, eagle = self.run(engine, asked)
            self.compare("EAGLE", "rules", eagle, plain)

    def ask(self, pool, hashes, asked):
        """Asks hitline for prompts, as an engine does that computes nothing."""
        with Client(self.stage.hitline.address, timeout=processes.REPLY_TIME, raise_errors=True, pool=pool) as client:
            name = client.check_pool()["name"]

            def lookups():
                for text, names in zip(asked, hashes):
                    client.lookup(len(text), [bytes.fromhex(h) for h in names])

            return self.went(name, lookups)[1]

    def alignment(self, hashes, asked):
        """Asks as an engine does that has the same blocks, and whose hits are multiples of more than a prompt. A real
        one has no such alignment with one group."""
        size = stage.block_size(self.stage.plain.release)
        pool = {
            "vllm": self.stage.plain.release, "model_name": self.stage.plain.model, "hash_block_size": size,
            "groups": [{"kind": "full_attention", "block_size": size}],
        }  # fmt: skip
        plain, aligned = {}, {}
        for _ in range(2):  # before that prompts are new
            plain = self.ask(pool, hashes, asked)
            aligned = self.ask({**pool, "scheduler_block_size": ALIGNMENT}, hashes, asked)
        self.compare("an alignment that fits nothing", "rules", aligned, plain)

    def first_blocks(self, engine, asked, hashes, plain):
        """An engine with another hash seed, beside one that asks for the same prompts."""
        self.ask({"name": engine.pool, "client": {"process": "simulated"}}, hashes, asked)
        with self.engine("seed") as other:
            process = other.call("describe", seconds=processes.REPLY_TIME)["process"]
            _, fresh = self.run(other, asked)
            self.compare("another hash seed", "new", fresh, plain)
        shared = {asker["name"]: asker.get("first_block_shared") for asker in self.stat(engine.pool)["askers"]}
        seed = next((share for name, share in shared.items() if name.endswith(process)), None)
        simulated = shared.get("simulated")
        self.found.notes.append(f"first blocks shared: {seed} with another hash seed, {simulated} without")
        if seed is None or simulated is None or seed > 0.05 or simulated < 0.5:
            self.found.problem("first blocks", f"{seed} with another hash seed, {simulated} without: {shared}")

    def restarted(self, engine, asked, plain):
        self.stage.master.kill()
        self.stage.start_master_again()
        time.sleep(RECONNECT)
        _, emptied = self.run(engine, asked)
        self.compare("a restarted master", "emptied", emptied, plain)

    def full(self, engine):
        """Puts fail, since the store is full of what is leased."""
        asked = texts("full")
        filled = engine.call("fill", seconds=processes.COMPUTE_TIMEOUT)
        self.run(engine, asked)
        time.sleep(sum(LOOKS) + LOOK_TIME)
        _, full = self.run(engine, asked)
        engine.remove(filled)
        self.run(engine, asked)
        _, plain = self.run(engine, asked)
        self.compare("a store that is full", "unsaved", full, plain)

    def slow(self, engine, asked, plain):
        self.stage.master.signal(signal.SIGSTOP)
        try:
            _, slow = self.run(engine, asked, settle=False)
        finally:
            self.stage.master.signal(signal.SIGCONT)
        time.sleep(RECONNECT)
        engine.settle()
        self.compare("a slow store", "no_answer", slow, plain)

    def removed(self, engine, asked, hashes, plain):
        """A block of each prompt is removed that is neither the first nor the last."""
        middle = [names[len(names) // 2] for names in hashes]
        keys = [key for key in self.stage.master.keys() if any(name in key for name in middle)]
        if len(keys) != PROMPTS:
            self.found.problem("keys", f"{len(keys)} keys of middle blocks, expected are {PROMPTS}")
        engine.remove(keys)
        _, evicted = self.run(engine, asked)
        self.compare("a middle block removed", "evicted", evicted, plain)

    def with_failing_rank(self):
        asked = texts("ranks")
        with self.engine("ranks") as engine:
            engine.call("fail_puts", 1, seconds=processes.REPLY_TIME)
            self.run(engine, asked)
            time.sleep(LOOKS[0] + LOOK_TIME)
            _, partial = self.run(engine, asked)
            engine.call("fail_puts", None, seconds=processes.REPLY_TIME)
            self.run(engine, asked)
            _, plain = self.run(engine, asked)
            self.compare("one rank's puts fail", "partial", partial, plain)


def one_row(row, found, context):
    with Stage(context.folder, row, context.plugin) as own:
        places = Places(found, own)
        places.with_failing_rank()
        places.with_one_engine()
