"""Looks up at a steady rate, as an engine does, until standard input ends. The Go test that replaces servers runs it.

The first line of standard input has hashes in hex, whose blocks of 16 tokens are all stored. Of these each lookup asks
for another number. Prints a line of JSON for each: when it was due in seconds since 1970, seconds from then until its
answer, those in which the engine did nothing else, and the hit less what is stored, null for a hit of 0."""

from __future__ import annotations

import argparse
import collections
import json
import sys
import threading
import time

from hitline.engine_client import EngineClient, Settings

BLOCK = 16
POLL = 0.001  # seconds from one poll of the pending lookups to the next


class Engine:
    def __init__(self, client: EngineClient, hashes: list[bytes], non_block: bool) -> None:
        self.client, self.hashes, self.non_block = client, hashes, non_block
        self.number = 0
        self.pending: dict[int, float] = {}  # when a lookup was due, by its number
        self.waited: collections.defaultdict[int, float] = collections.defaultdict(float)  # seconds in calls, likewise

    def begin(self, due: float) -> None:
        self.pending[self.number] = due
        self.number += 1

    def poll(self) -> None:
        for number, due in list(self.pending.items()):
            prompt = self.hashes[: 1 + number % len(self.hashes)]
            tokens = BLOCK * len(prompt)
            began = time.time()
            result = self.client.lookup(str(number), tokens + 1, prompt, non_block=self.non_block)
            now = time.time()
            self.waited[number] += now - began
            if result is None:
                continue
            self.client.discard(str(number))
            more = result.hit_length - tokens if result.hit_length else None
            print(json.dumps([due, now - due, self.waited.pop(number), more]), flush=True)
            del self.pending[number]


def connect(address: str, timeout: float, release: str) -> EngineClient:
    class Client(EngineClient):
        settings = Settings(address, "", timeout, release, "fail", "")

    client = Client(object())
    client._set_pool({"name": ""})
    return client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--rate", type=float, required=True, help="lookups a second")
    parser.add_argument("--timeout", type=float, required=True, help="seconds")
    parser.add_argument("--non-block", action="store_true")
    parser.add_argument("--vllm", required=True)
    options = parser.parse_args()
    hashes = [bytes.fromhex(text) for text in sys.stdin.readline().split()]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()

    client = connect(options.address, options.timeout, options.vllm)
    engine = Engine(client, hashes, options.non_block)
    due = time.time()
    while not ended.is_set() or engine.pending:
        if not ended.is_set() and time.time() >= due:
            engine.begin(due)
            due += 1 / options.rate
        engine.poll()
        left = max(0.0, due - time.time())
        time.sleep(min(left, POLL) if engine.pending else left)
    client.close()


if __name__ == "__main__":
    main()
