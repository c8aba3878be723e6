"""An engine that publishes KV events, and hitline, which holds what the engine caches."""

import contextlib
import json
import os
import sys
import tempfile
import time
import urllib.request

import interrupts
import model
import processes
import proxy
import stage

sys.path.append(os.path.join(processes.ROOT, "clients", "python"))
from hitline import Client  # noqa: E402

BLOCKS = 200  # of the engine's cache: small, so that blocks are evicted
BUFFER = 10_000  # batches that can be replayed
STEPS = 40  # of a round, 100 prompts
ROUNDS = 10
FULL = 0.2  # of the requests ask for full reports
SETTLE_TIMEOUT = 60  # seconds until hitline has caught up
RUN_TIMEOUT = 120  # seconds for a round


class Engine(processes.Engine):
    """See engine/events.py."""

    program = "events.py"

    def decode(self, line):
        return json.loads(line)


class Hitline(processes.Process):
    """A hitline serve whose own pool is filled by an engine's events."""

    def __init__(self, address, events, block_size, log):
        self.address = address
        self.metrics = f"127.0.0.1:{processes.free_port()}"
        self.environ = {**processes.clean_environ(), "HITLINE_METRICS": self.metrics}
        command = [processes.HITLINE, "serve", "--listen", address, "--block-size", str(block_size), "--events", events]
        super().__init__("hitline", command, log, self.environ)

    def answers(self):
        return processes.run_hitline(self.environ, "ping", "--connect", self.address).returncode == 0

    def source(self):
        """Returns the state of the source."""
        with urllib.request.urlopen(f"http://{self.metrics}/events/sources", timeout=10) as response:
            return json.load(response)["sources"][0]


class History:
    """What one process of an engine cached, as of each sequence number."""

    def __init__(self):
        self.next = 0
        self.copies = {}  # of each hash: (sequence number, copies from there on)
        self.stored = {}  # of each hash: the batches that say so

    def add(self, steps):
        for step in steps:
            self.next = step["next"]
            for _, name in step["stored"]:
                self.stored.setdefault(name, []).append(self.next - 1)
            for _, name, copies in step["changes"]:
                self.copies.setdefault(name, []).append((self.next, copies))

    def cached(self):
        return {name for name, versions in self.copies.items() if versions[-1][1]}

    def had(self, name, first, last=float("inf")):
        """Whether a block was cached, or said to be stored, since a sequence number and up to another one."""
        versions = self.copies.get(name, [])
        ends = [start for start, _ in versions[1:]] + [float("inf")]
        cached = any(copies and end > first and start <= last for (start, copies), end in zip(versions, ends))
        return cached or any(first <= number <= last for number in self.stored.get(name, ()))


class Feed:
    """An engine, proxies in front of its sockets, and hitline behind them."""

    def __init__(self, row, found, folder, stack):
        self.row, self.found, self.folder, self.stack = row, found, folder, stack
        os.makedirs(folder)
        self.temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="e2e-"))
        self.model = os.path.join(self.temporary, row.model)
        model.write(self.model, row.model)
        self.block_size = stage.BLOCK_SIZES[row.release]
        self.seen = {}  # all hashes that any batch stored
        self.blocks = 0  # lookups of one block
        self.checkpoints = self.equal = 0
        self.prompts = self.prompts_before = 0
        self.seed = 0  # of the engine's prompts
        self.paths = {name: os.path.join(self.temporary, name) for name in ("pub", "replay")}
        self.start_engine()
        self.pub, self.replay = (self.proxy(path) for path in self.paths.values())
        self.start_hitline()

    def proxy(self, path):
        made = proxy.Proxy(path)
        self.stack.callback(made.stop)
        return made

    def running(self, start):
        with interrupts.deferred():
            process = start()
            self.stack.callback(process.stop)
        return process

    def start_engine(self):
        self.seed += 1
        own = os.path.join(self.temporary, f"engine-{self.seed}")
        os.makedirs(own)
        settings = {
            "endpoint": "ipc://" + self.paths["pub"], "replay": "ipc://" + self.paths["replay"], "buffer": BUFFER,
            "blocks": BLOCKS, "full": FULL, "least": self.block_size + 1,
            "integers": self.row.integers, "seed": self.seed,
        }  # fmt: skip
        log = os.path.join(self.folder, f"engine-{self.seed}.log")
        environ = stage.engine_environ(self.row.release, own, processes.STORETEST)
        arguments = [self.model, str(self.block_size), json.dumps(settings)]
        self.engine = self.running(lambda: Engine("engine", environ, log, *arguments))
        self.engine.reply(processes.ENGINE_START_TIMEOUT)
        self.history = History()

    def start_hitline(self):
        address = f"ipc://{self.temporary}/hitline.sock"
        events = f"{self.pub.endpoint},replay={self.replay.endpoint}"
        log = os.path.join(self.folder, "hitline.log")
        self.hitline = self.running(lambda: Hitline(address, events, self.block_size, log))
        self.hitline.wait_ready()
        self.client = self.stack.enter_context(Client(address, timeout=20, raise_errors=True))

    # What the engine does.

    def run(self, steps=STEPS, lost=False):
        self.add(self.engine.call("run", steps, lost, seconds=RUN_TIMEOUT))
        self.prompts = self.engine.call("prompts", seconds=RUN_TIMEOUT) + self.prompts_before

    def reset(self):
        self.add(self.engine.call("reset", seconds=RUN_TIMEOUT))

    def add(self, steps):
        self.history.add(steps)
        for step in steps:
            self.seen.update((name, bytes.fromhex(name)) for _, name in step["stored"])

    def restart(self):
        """Kills the engine and starts another one, whose sequence begins at 0."""
        self.engine.kill()
        self.prompts_before = self.prompts
        self.start_engine()

    # What hitline holds.

    def held(self):
        """Returns the blocks that lookups find, asked one by one, of all that were ever stored."""
        self.blocks += len(self.seen)
        return {name for name, h in self.seen.items() if self.client.lookup(self.block_size, [h])}

    def settle(self):
        """Waits until hitline has caught up. What it holds meanwhile must have been cached."""
        deadline = time.monotonic() + SETTLE_TIMEOUT
        while True:
            before = self.hitline.source()
            if not before["stale"] and before["next_sequence"] == self.history.next:
                return before
            if time.monotonic() > deadline:
                raise processes.Failed(f"the engine is at {self.history.next}, hitline's source: {before}")
            held = self.held()
            if self.hitline.source()["restarts"] == before["restarts"]:
                first = before["next_sequence"] - 1
                self.check_extra("meanwhile", {n for n in held if not self.history.had(n, first)})

    def check_extra(self, name, blocks):
        if blocks:
            self.found.problem("too much", f"{name}: {len(blocks)} blocks are held that the engine did not cache")

    def compare(self, name, complete=True):
        """Compares what is held with what is cached; complete: nothing is lacking."""
        source = self.settle()
        held, cached = self.held(), self.history.cached()
        entries = self.client.stat()["entries"]
        self.checkpoints += 1
        self.check_extra(name, held - cached)
        if entries != len(held):
            self.found.problem("entries", f"{name}: {len(held)} blocks are found, entries is {entries}")
        if complete and held != cached:
            self.found.problem("too little", f"{name}: {len(cached - held)} of {len(cached)} are not held: {source}")
        self.equal += held == cached
        return held, cached


def one_row(row, found, folder):
    with contextlib.ExitStack() as stack:
        feed = Feed(row, found, folder, stack)
        for number in range(ROUNDS):
            feed.run()
            if number % 4 == 3:
                feed.reset()
            feed.compare(f"round {number}")
        faults(feed)
        source = feed.hitline.source()
        found.prompts = feed.prompts
        found.asked, found.asked_equal = feed.checkpoints, feed.equal
        found.lookups = feed.blocks
        counts = ", ".join(f"{source[n]} {n}" for n in ("batches", "stored", "removed", "gaps", "holes", "restarts"))
        found.notes.append(f"{feed.checkpoints} checkpoints, {feed.blocks} lookups of one block; source: {counts}")


def faults(feed):
    for name, cut in (("events", feed.pub.cut), ("replay", feed.replay.cut)):
        cut()
        feed.run()
        feed.compare(f"after a cut of {name}")

    feed.pub.refuse(True)
    processes.timed(lambda: feed.hitline.source()["stale"], SETTLE_TIMEOUT, "hitline did not notice the cut")
    if held := feed.held():
        feed.found.problem("stale", f"{len(held)} blocks are found while the source is stale")
    feed.run()
    feed.pub.refuse(False)
    feed.compare("after a long cut")

    first = feed.history.next
    feed.pub.drop(range(first + 5, first + 25))
    feed.run()
    feed.compare("after 20 dropped batches")
    if feed.pub.dropped != 20:
        feed.found.problem("drop", f"{feed.pub.dropped} batches were dropped, not 20")

    feed.run(3, True)
    feed.run(3)
    held, cached = feed.compare("after batches that are nowhere", complete=False)
    feed.found.notes.append(f"after batches that are nowhere {len(held)} of {len(cached)} blocks are held")
    feed.reset()
    feed.run()
    feed.compare("after a reset")

    feed.restart()
    feed.run()
    feed.compare("after a restart")
    if not feed.hitline.source()["restarts"]:
        feed.found.problem("restart", "hitline did not notice the restart")
