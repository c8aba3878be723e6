"""Records what an engine of vLLM publishes, and what it caches at that time."""

import time

SEND_TIMEOUT = 20  # seconds until the publisher has sent what it was given


class Recorder:
    """Wraps publish of an event publisher. publisher, pool and the module utils are vLLM's."""

    def __init__(self, publisher, pool, utils):
        self.pool, self.utils = pool, utils
        self.original = publisher.publish
        publisher.publish = self.publish
        self.sender = publisher._pub = Sender(publisher._pub)
        self.published = 0  # batches
        self.steps = []
        self.known = {}  # the copies of each block, when they were last recorded

    def publish(self, batch):
        """Publishes a batch. Called in the scheduler's thread, just after the batch's events."""
        self.original(batch)
        self.published += 1
        self.steps.append({"next": self.published, "changes": self.changes()})

    def lose(self, lose):
        """Has sends fail, which uses their sequence numbers up."""
        self.sender.fail = lose

    def take(self):
        """Returns what was published since the last call, when it was sent."""
        self.sender.wait(self.published)
        if changed := self.changes():
            raise RuntimeError(f"the cache changed without an event: {changed[:3]}")
        steps, self.steps = self.steps, []
        return steps

    def changes(self):
        """Returns the blocks whose number of copies changed since the last call, with that number."""
        now = self.cached()
        keys = now.keys() | self.known.keys()
        changed = [[*key, now.get(key, 0)] for key in keys if now.get(key, 0) != self.known.get(key, 0)]
        self.known = now
        return changed

    def cached(self):
        """Returns the number of copies of each block that is cached."""
        found = {}
        for key, blocks in self.pool.cached_block_hash_to_block._cache.items():
            external = self.utils.maybe_convert_block_hash(self.utils.get_block_hash(key))
            name = self.utils.get_group_id(key), text(external)
            found[name] = found.get(name, 0) + (len(blocks) if isinstance(blocks, dict) else 1)
        return found


class Sender:
    """The publisher's socket, whose sends can be made to fail."""

    def __init__(self, socket):
        self.socket = socket
        self.done = 0
        self.fail = False

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def send_multipart(self, frames):
        try:
            if self.fail:
                raise OSError("this send is to fail")
            self.socket.send_multipart(frames)
        finally:
            self.done += 1

    def wait(self, batches):
        deadline = time.monotonic() + SEND_TIMEOUT
        while self.done < batches:
            if time.monotonic() > deadline:
                raise TimeoutError("the publisher does not send")
            time.sleep(0.0002)


def text(external):
    """Returns a block hash of an event as hexadecimal digits; integers have 8 bytes."""
    return (external.to_bytes(8, "big") if isinstance(external, int) else external).hex()
