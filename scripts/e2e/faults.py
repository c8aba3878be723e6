"""What an engine does while the master, or hitline, is gone or hangs."""

import os
import select
import signal
import time

import compare
import processes
import prompts
import scenarios
from stage import Stage

BACK_TIMEOUT = 60  # seconds until there are hits again
END_TIMEOUT = 10  # seconds until an engine's own server has ended with the engine
SETTLE_TIMEOUT = 2  # seconds; not all is stored while the master is gone
WAIT_MARGIN = 1.0  # seconds that a lookup may take longer than its timeout, on a slow machine

# Of a load under which hitline hangs.
MIN_FINISHED = 0.9  # of the requests that finish otherwise
RIGHT_AFTER = 1.0  # seconds after hitline goes on


def of_services(run, found, reference):
    """Breaks hitline and the master, one after the other. This hitline does not allow resets."""
    stage = run.stage
    faults = Faults(run, found, reference)
    faults.refused_reset()
    faults.without_hits("hitline killed", stage.hitline.kill)
    faults.until_hits("hitline started", stage.start_hitline)
    faults.without_hits("hitline stopped", lambda: stage.hitline.signal(signal.SIGSTOP))
    faults.until_hits("hitline continued", lambda: stage.hitline.signal(signal.SIGCONT))
    faults.without_hits("master killed", stage.master.kill)
    faults.until_hits("master started, empty", stage.start_master_again)
    faults.examine()


def of_own_server(run, found, reference):
    """Kills the server that the engine has started, and then the engine. Each must leave no
    process and no socket."""
    faults = Faults(run, found, reference)
    engine = run.engine("a")
    faults.until_hits("own server killed", OwnServer(engine).kill)
    faults.examine()
    server = OwnServer(engine)
    engine.kill()
    folder = os.path.dirname(server.address.removeprefix("ipc://"))
    try:
        seconds = processes.timed(server.ended, END_TIMEOUT, "the own server did not end with the engine")
        processes.timed(lambda: not os.path.exists(folder), END_TIMEOUT, f"{folder} was not removed")
    finally:
        server.kill()
    found.notes.append(f"engine killed: its own server ended after {seconds:.2f} s, and left no socket")


def of_resets(run, found, reference):
    """Resets the store through the engine's own server. Then prompts are stored again."""
    faults = Faults(run, found, reference)
    empty_store(run, found)
    faults.until_hits("reset", lambda: None)
    faults.examine()


def without_lookups(row, found, context):
    """An engine with enable_lookup false keeps vLLM's own client and starts no server. It must reset the store, too."""
    with Stage(os.path.join(context.folder, "plugin"), row, context.plugin, row.engines) as own:
        client = own.started()["a"]["client"]
        if client.startswith("hitline."):
            found.problem("plugin", f"the engine's client is {client}, expected is vLLM's own")
        run = scenarios.Run(own, ask=False)
        scenarios.few(run)
        compare.count(found, run.steps)
        if found.lookups:
            found.problem("lookup", f"{found.lookups} lookups, expected are 0")
        empty_store(run, found)


def of_hitline_under_load(run, found, reference):
    """Stops hitline while the engine is under load, and continues it; then it is killed and started again."""
    faults, stage = Faults(run, found, reference), run.stage
    calm = run.loads[-1]
    hung = run.flood("hitline hung", lambda: scenarios.hangs(stage.hitline))
    if hung["finished"] < MIN_FINISHED * calm["finished"]:
        found.problem("load", f"{hung['finished']} requests while hitline hung, {calm['finished']} before")
    time.sleep(RIGHT_AFTER)
    faults.with_hits(f"{RIGHT_AFTER:g} s after hitline went on")
    run.flood("hitline restarted", lambda: scenarios.restarts(stage.hitline.kill, stage.start_hitline))
    faults.loads()
    faults.until_hits("hitline restarted", lambda: None)
    faults.examine()


def of_replacements(run, found, reference):
    """Replaces hitline while the engine is under load. Each lookup hits what it does without that, and without the
    plug-in."""
    faults, stage = Faults(run, found, reference), run.stage
    run.flood("hitline replaced", lambda: scenarios.replaces(stage))
    want = {}
    for load in (*reference.loads, *run.loads[:-1]):
        for tokens, hits in load["found"].items():
            want.setdefault(tokens, set()).update(hits)
    for load in run.loads:
        for tokens, hits in load["found"].items():
            if len(hits) > 1 or set(hits) != want.get(tokens, set(hits)):
                text = f"{load['name']}: of {tokens} tokens {hits} were found, otherwise {sorted(want.get(tokens, hits))}"
                found.problem("hits", text)
    faults.loads()
    faults.examine()


def of_master_under_load(run, found, reference):
    """Compares the loads of scenarios.broken_master: a lookup must not take longer than the store's timeout."""
    faults = Faults(run, found, reference)
    timeout = run.stage.row.store_timeout
    for load in run.loads:
        if load["waited"] > timeout + WAIT_MARGIN:
            found.problem("wait", f"{load['name']}: a lookup took {load['waited']:.2f} s, of at most {timeout:g} s")
    faults.loads()
    faults.until_hits("master started, empty", lambda: None)
    faults.examine()


def empty_store(run, found):
    """Resets the store, which must leave none of its keys."""
    before, done, after = reset_store(run)
    if not done or after or not before:
        found.problem("reset", f"it returned {done}; of {before} keys {after} are left, expected are 0")
    found.notes.append(f"reset: {before} keys before, {after} after")


def reset_store(run):
    """Returns how many keys there were, whether the store was reset, and how many there are."""
    before = len(run.stage.master.keys())
    done = run.engine("a").call("reset_store", seconds=processes.RESET_TIMEOUT)
    return before, done, len(run.stage.master.keys())


class OwnServer:
    """The hitline that an engine has started."""

    def __init__(self, engine):
        self.address = engine.call("describe", seconds=processes.REPLY_TIME)["address"]  # each start has another one
        pids = processes.having(self.address)
        if len(pids) != 1:
            raise processes.Failed(f"{engine.name} has {len(pids)} servers of its own; its log is {engine.log}")
        self.handle = os.pidfd_open(pids[0])  # means no other process, also when it has ended

    def kill(self):
        if not self.ended():
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def ended(self):
        return bool(select.select([self.handle], [], [], 0)[0])


class Faults:
    """Computes a few prompts again and again. reference is the run without the
    plug-in, whose last steps are those of scenarios.few."""

    def __init__(self, run, found, reference):
        self.run, self.found = run, found
        self.reference = reference.steps[-len(prompts.FEW) :]  # these hit all that they can
        self.reference_loads = reference.loads

    def without_hits(self, name, happen):
        """Has something happen, after which hits must be 0."""
        happen()
        outputs, waited = self.compute(name)
        for hit in (record["engine"][0] for output in outputs for record in output["lookups"]):
            if hit:
                self.found.problem("hits", f"{name}: a lookup hit {hit} tokens, expected are 0")
        self.found.notes.append(f"{name}: hits of 0, a request waited {waited:.2f} s at most")

    def until_hits(self, name, happen):
        """Has something happen, after which prompts must hit as before in a while."""
        happen()
        started, tries = time.monotonic(), 0
        want = [outputs[0]["cached"] for outputs in self.reference]
        while True:
            outputs, _ = self.compute(name)
            seconds, tries = time.monotonic() - started, tries + 1
            if [output["cached"] for output in outputs] == want:
                break
            if seconds > BACK_TIMEOUT:
                raise processes.Failed(f"{name}: no hits after {seconds:.0f} s")
            time.sleep(0.2)
        self.found.notes.append(f"{name}: all hits {seconds:.1f} s later, at try {tries}")

    def with_hits(self, name):
        """Prompts must hit as before at once."""
        outputs, _ = self.compute(name)
        for (want,), output in zip(self.reference, outputs):
            got, expected = output["cached"], want["cached"]
            if got != expected:
                self.found.problem("hits", f"{name}: {got} tokens were cached, expected are {expected}")

    def loads(self):
        """Compares the outputs under load with those without the plug-in, and says what the loads were."""
        want = {at: tokens for load in self.reference_loads for at, tokens in load["outputs"].items()}
        for load in self.run.loads:
            known = {at: tokens for at, tokens in load["outputs"].items() if at in want}
            equal = sum(tokens == want[at] for at, tokens in known.items())
            self.found.outputs += len(known)
            self.found.outputs_equal += equal
            if equal < len(known) or load["differ"]:
                text = f"{len(known) - equal} of {len(known)} prompts, {load['differ']} requests unlike an earlier one"
                self.found.problem("tokens", f"{load['name']}: {text}")
        if not self.run.loads[0]["hits"]:
            self.found.problem("hits", "no lookup under load hit anything")
        for loads, of in (self.run.loads, ""), (self.reference_loads, " without the plug-in"):
            for load in loads:
                self.found.notes.append(
                    f"{load['name']}{of}: {load['finished']} requests in {scenarios.LOAD_SECONDS} s, {load['hits']} "
                    f"tokens found, longest lookup {load['waited']:.2f} s, longest step {load['longest']:.2f} s"
                )

    def refused_reset(self):
        """A reset is refused, as the engine has said at its start."""
        before, done, after = reset_store(self.run)
        if done or after != before:
            self.found.problem("reset", f"it returned {done}; of {before} keys {after} are left, expected are all")
        with open(self.run.engine("a").log, encoding="utf-8", errors="replace") as log:
            if "refuses to reset the store" not in log.read():
                self.found.problem("reset", "the engine has not said at its start that resets are refused")
        self.found.notes.append(f"reset: refused, {after} keys left")

    def examine(self):
        """All answers must be equal again, and doctor must agree."""
        self.run.reset()
        for text in prompts.FEW:
            self.run.examine(text)
        compare.outputs(self.found, self.reference, self.run.steps[-len(prompts.FEW) :])

    def compute(self, name):
        """Computes the prompts one by one. Returns outputs, and the longest time that a
        request waited for its lookups, which must not be longer than the timeout."""
        engine, timeout = self.run.engine("a"), self.run.stage.row.timeout
        self.run.reset()
        outputs = []
        for text, (want,) in zip(prompts.FEW, self.reference):
            command = "generate", [text], scenarios.MAX_TOKENS, False
            outputs += engine.call(*command, seconds=processes.COMPUTE_TIMEOUT)
            compare.tokens(self.found, name, want, outputs[-1])
        engine.call("settle", SETTLE_TIMEOUT, seconds=SETTLE_TIMEOUT + processes.REPLY_TIME)
        compare.count(self.found, [outputs])
        waited = max(sum(sum(record["waits"]) for record in output["lookups"]) for output in outputs)
        if timeout and waited > timeout + WAIT_MARGIN:
            self.found.problem(
                "wait", f"{name}: a request waited {waited:.2f} s for its lookups, the timeout is {timeout:g} s"
            )
        return outputs, waited
