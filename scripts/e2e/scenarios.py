"""What engines are asked to do, with the plug-in and without it."""

import json
import random
import signal
import time

import processes
import prompts

MAX_TOKENS = 6  # that an engine generates for a prompt

LOAD_SECONDS = 5
LOAD_REPLY = 60  # seconds that an engine may take to end a load
REPLACEMENTS = 5  # of hitline under a load

LONG_TOKENS = 400  # that are generated for prompts that preempt each other
ABORT_SEED = 1

# How many of the store's keys are removed in each round: of long prompts few may be.
REMOVED = (0.01, 0.03, 0.1)


class Run:
    """Asks the engines of a stage, and keeps what they answer. A step is what was computed
    at a time: a list of outputs, see engine/main.py. With ask each lookup is asked of all."""

    def __init__(self, stage, ask):
        self.stage, self.ask = stage, ask
        self.steps = []
        self.texts = {}  # of each prompt its latest lookup, None without one
        self.sent = {}  # the prompts that an engine computes, by its name
        self.keys = []  # those in the store before some were removed
        self.failed = []  # what was wrong with this run alone
        self.examined = []  # what doctor said of prompts
        self.loads = []  # what load.flood returned

    def engine(self, name):
        """Returns an engine. What is only compared with has one, which stands for all."""
        return self.stage.engines.get(name) or self.stage.engines["a"]

    def generate(self, texts, name="a", max_tokens=MAX_TOKENS, **named):
        """Has an engine compute prompts at a time, and waits until they are stored."""
        self.send(texts, name, max_tokens, **named)
        return self.finish(name)

    def send(self, texts, name, max_tokens=MAX_TOKENS, **named):
        self.sent[name] = [(*text, *named.get("adapter", ())) for text in texts]
        self.engine(name).send("generate", texts, max_tokens, self.ask, named)

    def finish(self, name):
        outputs = self.engine(name).reply(processes.COMPUTE_TIMEOUT)
        self.add(self.sent.pop(name), outputs)
        self.engine(name).settle()
        return outputs

    def add(self, texts, outputs):
        self.steps.append(outputs)
        for text, output in zip(texts, outputs):
            self.texts.setdefault(text, None)
            for record in output["lookups"]:
                self.texts[text] = record

    def each(self, texts, name="a", **named):
        for text in texts:
            self.generate([text], name, **named)

    def reset(self, name="a"):
        self.engine(name).reset()

    def clear(self):
        """Empties the engines and the store."""
        for name in self.stage.engines:
            self.reset(name)
        self.engine("a").remove(self.stage.master.keys())

    def remove(self, fraction, seed):
        """Removes keys at random, the same where the same are there."""
        keys = self.stage.master.keys()
        self.keys.append(keys)
        chosen = random.Random(seed).sample(keys, round(fraction * len(keys)))
        self.engine("a").remove(chosen)

    def flood(self, seed, happen=None):
        """Puts the engine under load for LOAD_SECONDS, in which something may happen that takes as long."""
        self.engine("a").send("flood", LOAD_SECONDS, seed)
        if happen:
            happen()
        self.loads.append({"name": seed, **self.engine("a").reply(LOAD_SECONDS + LOAD_REPLY)})
        self.engine("a").settle()
        return self.loads[-1]

    def examine(self, text):
        """Computes a prompt that was looked up before. With the plug-in it has doctor examine
        the prompt just before."""
        report = self.doctor(self.texts[tuple(text)]) if self.stage.plugin else None
        output = self.generate([text])[0]
        if report:
            hit = output["lookups"][0]["engine"][0] if output["lookups"] else None
            self.examined.append({**report, "engine": hit})

    def doctor(self, lookup):
        """Returns what hitline doctor says of the pool, and of the prompt of a lookup."""
        engine = self.engine("a").call("describe", seconds=processes.REPLY_TIME)
        done = processes.run_hitline(
            self.stage.hitline_environ(),
            "doctor", "--backend", "mooncake", "--connect", engine["address"], "--pool", engine["pool"]["name"],
            "--json", "--tokens", str(lookup["tokens"]), "--hashes-file", "-", stdin="\n".join(lookup["hashes"]),
        )  # fmt: skip
        try:
            report = json.loads(done.stdout)
        except ValueError:
            raise processes.Failed(
                f"hitline doctor ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            ) from None
        hit = (report.get("prompt") or {}).get("hit_tokens")
        return {"exit": done.returncode, "problems": report.get("problems", []), "hit": hit}


def mixed(run):
    """Prompts that hit nothing, fully, partly and at shared prefixes, from the engine's own
    blocks and the store's; then some keys are missing."""
    run.each(prompts.ALL)
    run.each(prompts.SHARED)
    for text in prompts.SEPARATE:
        run.reset()
        run.generate([text])
    run.reset()
    run.each(prompts.SHARED)
    run.reset()
    run.generate(prompts.ALL)
    for seed, fraction in enumerate(REMOVED):
        run.remove(fraction, seed)
        run.reset()
        run.each(prompts.ALL)
    run.reset()
    for text in prompts.FEW:
        run.examine(text)


def cases(run):
    """What requests may be: salted, of a LoRA, aborted, preempted. The engine has few blocks."""
    for _ in range(2):
        for salt in (None, "first", "second"):
            run.each(prompts.CASES, salt=salt)
        for adapter in run.stage.adapters:
            run.each(prompts.CASES, adapter=adapter)
        run.reset()
    # When these blocks are stored, and so what is cached, depends on time.
    preempted = run.generate(prompts.LONG, max_tokens=LONG_TOKENS)
    aborted = run.engine("a").call("abort", prompts.MANY, ABORT_SEED, seconds=processes.COMPUTE_TIMEOUT)
    run.engine("a").settle()
    run.add([tuple(prompts.MANY[output["at"]]) for output in aborted["outputs"]], aborted["outputs"])
    for output in preempted + aborted["outputs"]:
        output["cached"] = None
    if aborted["left"]:
        run.failed.append(f"{aborted['left']} aborted requests are still remembered")
    run.reset()
    run.each(prompts.CASES)


def two_engines(run):
    """Two engines that share a store: each hits what the other one has stored."""
    run.each(prompts.SEPARATE, "a")
    run.reset("b")
    run.each(prompts.ALL, "b")
    run.reset("a")
    run.each(prompts.SHARED, "a")
    run.reset("b")
    at_once(run, prompts.ALL)
    run.reset("a")
    for text in prompts.FEW:
        run.examine(text)


def producer_and_consumer(run):
    """An engine that stores, and one that does not: both hit what the first has stored; then some keys are missing."""
    run.each(prompts.SEPARATE, "a")
    for _ in range(2):  # what it has computed itself is not in the store
        run.each(prompts.ALL, "b")
        run.reset("b")
    run.reset("a")
    run.each(prompts.SHARED, "a")
    for seed, fraction in enumerate((0, *REMOVED)):
        run.remove(fraction, seed)
        run.reset("b")
        run.each(prompts.ALL, "b")
    run.reset("a")
    for text in prompts.FEW:
        run.examine(text)


def at_once(run, texts):
    """Both engines compute the prompts at the same time. One that stands for both computes
    them twice."""
    if run.engine("a") is run.engine("b"):
        for name in ("a", "b"):
            run.reset(name)
            run.generate(texts, name)
        return
    for name in ("a", "b"):
        run.reset(name)
        run.send(texts, name)
    for name in ("a", "b"):
        run.finish(name)


def few(run):
    """A few prompts that hit nothing, and then all that they can."""
    run.each(prompts.FEW)
    run.reset()
    run.each(prompts.FEW)


def hangs(process):
    """Stops a process while an engine is under load, and continues it."""
    process.signal(signal.SIGSTOP)
    try:
        time.sleep(LOAD_SECONDS)
    finally:
        process.signal(signal.SIGCONT)


def restarts(kill, start):
    """Kills a process while an engine is under load, and starts it again."""
    time.sleep(LOAD_SECONDS / 4)
    kill()
    time.sleep(LOAD_SECONDS / 4)
    start()


def under_load(run):
    """The same; then the engine is under load."""
    few(run)
    run.flood("calm")
    run.flood("calm again")


def stored_load(run):
    """The same; then the engine is under load, of prompts that are all in the store."""
    few(run)
    run.engine("a").call("fill", seconds=processes.COMPUTE_TIMEOUT)
    run.engine("a").settle()
    run.flood("calm")


def replaces(stage):
    """Replaces hitline again and again while an engine is under load."""
    for _ in range(REPLACEMENTS):
        time.sleep(LOAD_SECONDS / (2 * REPLACEMENTS))
        stage.hitline.stop()
        stage.start_hitline()


def broken_master(run):
    """Likewise; then the master hangs, and ends and starts again, empty."""
    under_load(run)
    run.flood("the master hung", lambda: hangs(run.stage.master))
    run.flood("the master restarted", lambda: restarts(run.stage.master.kill, run.stage.start_master_again))
