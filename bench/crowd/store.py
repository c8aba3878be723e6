"""Loads and saves blocks as the workers of engines do, with Mooncake's own client.

    store.py MASTER SEGMENT SIZE PREFIX...

MASTER is the master's host:port. The client holds SEGMENT bytes of the store, and each of its objects
has SIZE bytes. A rank has the PREFIX of its keys.

It reads one JSON object a line from standard input and answers each with one line. The first line that
it writes says that it is ready. It ends with its input.
"""

import ctypes
import json
import os
import sys
import time

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

BUFFERS = 16 << 20  # bytes of a store client
PUT_AT_ONCE = 1000  # keys, while the store is filled
FULL_WAIT = 0.05  # seconds to the next try when the store has no place
FULL_TRIES = 600


class Store:
    def __init__(self, master, segment, size, prefixes):
        self.store, self.size, self.prefixes = MooncakeDistributedStore(), size, prefixes
        code = self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, BUFFERS, "tcp", "", master)
        if code:
            raise SystemExit(f"store: the Mooncake master at {master} cannot be used: setup returned {code}")
        self.buffer = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.buffer)
        self.store.register_buffer(self.address, size)
        self.config = ReplicateConfig()
        self.config.preferred_segment = self.store.get_hostname()  # its own memory, where a copy costs least

    def put_all(self, keys):
        """Returns those of the keys that could not be put."""
        codes = self.store.batch_put_from_multi_buffers(
            keys, [[self.address]] * len(keys), [[self.size]] * len(keys), self.config
        )
        return [key for key, code in zip(keys, codes) if code < 0]

    def fill(self, request):
        """Puts blocks on all ranks, and waits for the store to evict if it is full."""
        keys = [prefix + h for h in hexes(request) for prefix in self.prefixes]
        for start in range(0, len(keys), PUT_AT_ONCE):
            rest = self.put_all(keys[start : start + PUT_AT_ONCE])
            for _ in range(FULL_TRIES):
                if not rest:
                    break
                time.sleep(FULL_WAIT)
                rest = self.put_all(rest)
            if rest:
                raise SystemExit(f"store: {len(rest)} keys cannot be put: the store stays full")
        return {}

    def turn(self, request):
        """What the workers do of a turn, rank by rank: they load the blocks [start, hit) of its prompt, and save it:
        they ask for all of its keys and put those that there are not."""
        names = hexes(request)
        loaded = names[request["start"] : request["hit"]]
        counts = dict.fromkeys(("loads", "lost", "asked", "found", "puts", "failed"), 0)
        for prefix in self.prefixes:
            if loaded:
                keys = [prefix + h for h in loaded]
                codes = self.store.batch_get_into_multi_buffers(
                    keys, [[self.address]] * len(keys), [[self.size]] * len(keys)
                )
                counts["loads"] += len(keys)
                counts["lost"] += sum(code < 0 for code in codes)
            keys = [prefix + h for h in names]
            there = self.store.batch_is_exist(keys)
            missing = [key for key, exists in zip(keys, there) if exists != 1]
            counts["asked"] += len(keys)
            counts["found"] += len(keys) - len(missing)
            if missing:
                counts["puts"] += len(missing)
                counts["failed"] += len(self.put_all(missing))
        return counts


def hexes(request):
    """Returns the hashes of a request, which it has joined."""
    text = request["hashes"]
    return [text[i : i + 64] for i in range(0, len(text), 64)]


def main(master, segment, size, *prefixes):
    store = Store(master, int(segment), int(size), prefixes)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(store, request.pop("do"))(request)), flush=True)
    os._exit(0)  # without the client's own end, which waits for its threads


if __name__ == "__main__":
    main(*sys.argv[1:])
