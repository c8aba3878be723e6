"""What an engine does while the master, or hitline, is gone or hangs."""

import os
import select
import signal
import time

import compare
import processes
import prompts
import scenarios

BACK_TIMEOUT = 60  # seconds until there are hits again
END_TIMEOUT = 10  # seconds until an engine's own server has ended with the engine
SETTLE_TIMEOUT = 2  # seconds; not all is stored while the master is gone
WAIT_MARGIN = 1.0  # seconds that a lookup may take longer than its timeout, on a slow machine


def of_services(run, found, reference):
    """Breaks hitline and the master, one after the other."""
    stage = run.stage
    faults = Faults(run, found, reference)
    faults.without_hits("hitline killed", stage.hitline.kill)
    faults.until_hits("hitline started", stage.start_hitline)
    faults.without_hits("hitline stopped", lambda: stage.hitline.signal(signal.SIGSTOP))
    faults.until_hits("hitline continued", lambda: stage.hitline.signal(signal.SIGCONT))
    faults.without_hits("master killed", stage.master.kill)
    faults.until_hits("master started, empty", lambda: start_master_again(stage))
    faults.examine()


def start_master_again(stage):
    stage.master = stage.start_master(rpc=stage.master.rpc, admin=stage.master.admin)


def of_own_server(run, found, reference):
    """Kills the server that the engine has started, and then the engine. Each must leave no
    process and no socket."""
    faults = Faults(run, found, reference)
    engine = run.engine("a")
    address = engine.call("describe", seconds=scenarios.REPLY_TIME)["address"]
    faults.until_hits("own server killed", OwnServer(engine, address).kill)
    faults.examine()
    server = OwnServer(engine, address)
    engine.kill()
    folder = os.path.dirname(address.removeprefix("ipc://"))
    try:
        seconds = processes.timed(server.ended, END_TIMEOUT, "the own server did not end with the engine")
        processes.timed(lambda: not os.path.exists(folder), END_TIMEOUT, f"{folder} was not removed")
    finally:
        server.kill()
    found.notes.append(f"engine killed: its own server ended after {seconds:.2f} s, and left no socket")


class OwnServer:
    """The hitline that an engine has started."""

    def __init__(self, engine, address):
        pids = processes.having(address)
        if len(pids) != 1:
            raise processes.Failed(f"{engine.name} has {len(pids)} servers of its own; its log is {engine.log}")
        self.handle = os.pidfd_open(pids[0])  # means no other process, also when it has ended

    def kill(self):
        if not self.ended():
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)

    def ended(self):
        return bool(select.select([self.handle], [], [], 0)[0])


class Faults:
    """Computes a few prompts again and again. reference has the steps of scenarios.few
    without the plug-in, and without faults."""

    def __init__(self, run, found, reference):
        self.run, self.found = run, found
        self.reference = reference[-len(prompts.FEW) :]  # these hit all that they can

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
            outputs += engine.call(*command, seconds=scenarios.GENERATE_TIMEOUT)
            compare.tokens(self.found, name, want, outputs[-1])
        engine.call("settle", SETTLE_TIMEOUT, seconds=SETTLE_TIMEOUT + scenarios.REPLY_TIME)
        compare.count(self.found, [outputs])
        waited = max(sum(sum(record["waits"]) for record in output["lookups"]) for output in outputs)
        if waited > timeout + WAIT_MARGIN:
            self.found.problem(
                "wait", f"{name}: a request waited {waited:.2f} s for its lookups, the timeout is {timeout:g} s"
            )
        return outputs, waited
