"""Requests that are looked up at every step."""

from __future__ import annotations

import math
import threading
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hitline import LookupResult
from hitline.lookup_steps import EngineLookup, ServedPool
from hitline.remembered_hits import RememberedHits
from tests.support import PATIENCE, Scripted, engine_client, hashes, message, refusal, stat_reply
from tests.test_client import eventually

BLOCKS = hashes("a", 4)
ALL = 48  # of 64 tokens that can be hit, as the engine computes the last


def served(**fields: Any) -> ServedPool:
    sizes = {"hash_block_size": 16, "scheduler_block_size": 16}
    return ServedPool({"alignment": 16, "pool": sizes, **fields}, is_local=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Hits(unittest.TestCase):
    def setUp(self) -> None:
        self.client: Any = SimpleNamespace(clock=Clock(), pool=served())
        self.clock = self.client.clock
        self.hits = RememberedHits(self.client)
        self.hits._begin_refresh = lambda hit: self.due.append(hit)  # type: ignore[method-assign]
        self.due: list[EngineLookup] = []

    def lookup(self, req_id: str = "r", **other: Any) -> EngineLookup:
        asked: dict[str, Any] = {"num_tokens": 64, "block_hashes": BLOCKS, "start": (0, 0), **other}
        return EngineLookup(req_id, non_block=False, **asked)

    def add(self, tokens: int, **pool: Any) -> None:
        self.client.pool = served(**pool)
        lookup = lookup.sent = self.lookup()
        lookup.asked_at = self.clock.now
        self.hits.found(lookup, LookupResult(tokens))

    def seen(self) -> list[str]:
        """What becomes of a hit, by its age in ms."""
        began, states = self.clock.now, []
        for ms in (0, 90, 110, 490, 510, 990, 1010):
            self.clock.now = began + ms / 1000
            self.due.clear()
            hit = self.hits.find(self.lookup())
            states.append("gone" if hit is None else "due" if self.due else "given")
        return states

    def test_a_hit_of_all_that_can_be_hit(self) -> None:
        self.add(ALL)
        self.assertEqual(self.seen(), ["given"] * 4 + ["due", "due", "gone"])
        self.assertEqual(self.hits.hits, {})

    def test_a_smaller_one(self) -> None:
        for tokens in (0, 32):
            self.add(tokens)
            self.assertEqual(self.seen(), ["given"] * 2 + ["due"] * 4 + ["gone"])

    def test_without_a_pool_any_may_grow(self) -> None:
        self.add(ALL, alignment=None)
        self.assertEqual(self.seen(), ["given"] * 2 + ["due"] * 4 + ["gone"])

    def test_half_of_the_lease(self) -> None:
        for lease_ms, want in (
            (None, ["given"] * 4 + ["due", "due", "gone"]),
            (0, ["given"] * 4 + ["due", "due", "gone"]),
            (10_000, ["given"] * 4 + ["due", "due", "gone"]),
            (1_000, ["given"] * 3 + ["due"] + ["gone"] * 3),
            (200, ["given", "due"] + ["gone"] * 5),
        ):
            self.add(ALL, lease_ms=lease_ms)
            self.assertEqual(self.seen(), want, lease_ms)

    def test_another_prompt(self) -> None:
        for other in ({"num_tokens": 63}, {"block_hashes": BLOCKS[:3]}, {"block_hashes": [*BLOCKS[:3], b"z" * 32]}, {"start": (16, 1)}):
            self.add(ALL)
            self.assertIsNone(self.hits.find(self.lookup(**other)))
            self.assertIsNone(self.hits.find(self.lookup()), "it is dropped")

    def test_another_request(self) -> None:
        self.add(ALL)
        self.assertIsNone(self.hits.find(self.lookup("other")))

    def test_asked_for_again(self) -> None:
        self.add(32)
        self.clock.now += 0.2
        hit = self.hits.hits["r"]
        hit.refreshing = True
        self.assertEqual((self.hits.find(self.lookup()), self.due), (LookupResult(32), []), "once at a time")
        self.hits.refresh(hit, LookupResult(ALL), self.clock.now)
        self.assertEqual(self.hits.find(self.lookup()), LookupResult(ALL))
        self.assertEqual(self.seen(), ["given"] * 4 + ["due", "due", "gone"])

    def test_what_was_found_before_is_never_taken_for_new(self) -> None:
        class Watched(EngineLookup):
            def __setattr__(self, name: str, value: object) -> None:
                super().__setattr__(name, value)
                seen.append((vars(self).get("result"), vars(self).get("asked_at")))

        seen: list[tuple[object, object]] = []
        hit = Watched("r", 64, BLOCKS, (0, 0), False)
        hit.result = LookupResult(0)
        self.hits.refresh(hit, LookupResult(ALL), self.clock.now)
        self.assertNotIn((LookupResult(0), self.clock.now), seen)
        self.assertEqual(seen[-1], (LookupResult(ALL), self.clock.now))

    def test_asking_again_that_fails(self) -> None:
        self.add(32)
        self.clock.now += 0.2
        self.hits.postpone(self.hits.hits["r"])
        self.assertEqual((self.hits.find(self.lookup()), self.due), (LookupResult(32), []))
        self.clock.now += 0.11
        self.hits.find(self.lookup())
        self.assertEqual(len(self.due), 1)
        self.clock.now += 0.7
        self.assertIsNone(self.hits.find(self.lookup()), "its age is that of the answer")

    def test_dropped(self) -> None:
        for drop in (lambda: self.hits.discard("r"), self.hits.forget):
            self.add(ALL)
            hit = self.hits.hits["r"]
            drop()
            self.hits.refresh(hit, LookupResult(ALL), self.clock.now)
            self.assertIsNone(self.hits.find(self.lookup()), "also if it is being asked for again")

    def test_longest_hits(self) -> None:
        for tokens, want in ((-1, 0), (0, 0), (1, 0), (16, 0), (17, 16), (64, 48), (65, 64)):
            self.assertEqual(served().max_hit(tokens), want)
        for alignment in (None, 0):
            self.assertEqual(served(alignment=alignment).max_hit(64), math.inf)


class Clients(unittest.TestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.found: list[bytes | None] = []  # the replies to come; the last is repeated
        self.server = Scripted(self.answer).__enter__()
        self.addCleanup(self.server.__exit__)
        self.client = engine_client(self, self.server.address, clock=self.clock, pool=served())

    def answer(self, frames: list[bytes]) -> bytes | None:
        if frames == [b"stat"]:
            return stat_reply("0.24.0")
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]

    def lookup(self, tokens: int = 64, name: str = "a", non_block: bool = False, start: int = 0, count: int = 4) -> Any:
        self.client.num_computed = start
        return self.client.lookup("r", tokens, hashes(name, count), non_block)

    def begin(self) -> None:
        """Begins a lookup that is not waited for, and cannot be answered yet."""
        with self.client._retry.lock:
            self.assertIsNone(self.lookup(non_block=True))

    def answers(self, *tokens: int) -> None:
        self.found[:] = [message(n.to_bytes(4, "big")) for n in tokens]

    def asked(self) -> int:
        return len(self.requests())

    def requests(self) -> list[list[bytes]]:
        return [frames for frames in self.server.requests if frames != [b"stat"]]

    def test_the_head_of_a_queue(self) -> None:
        self.answers(ALL)
        for _ in range(288):
            self.assertEqual(self.lookup(), ALL)
        self.assertEqual(self.asked(), 1)

    def test_wrong_arguments_fail_as_of_other_clients(self) -> None:
        self.client._raise_errors = True
        for blocks in ({b"a": b"b"}, {b"a"}, None, 7, iter([b"a"]), b"aa", "aa"):
            with self.assertRaisesRegex(TypeError, f"^block_hashes is {type(blocks).__name__}, must be a list of bytes"):
                self.client.lookup("r", 64, blocks)
        self.assertEqual((self.asked(), self.client.remembered.hits), (0, {}))

    def test_a_hit_that_grows_is_asked_for_off_the_thread(self) -> None:
        self.answers(32, ALL)
        self.assertEqual(self.lookup(), 32)
        self.clock.now += 0.11
        threads: list[str] = []
        ask = self.client._lookup

        def recording(*arguments: Any, **named: Any) -> LookupResult:
            threads.append(threading.current_thread().name)
            return ask(*arguments, **named)

        with mock.patch.object(self.client, "_lookup", recording):
            self.assertEqual(self.lookup(), 32, "it is not waited for")
            self.assertEqual(eventually(self.lookup, 32), ALL)
        self.assertEqual(threads, ["hitline-lookup"])
        self.assertEqual(self.asked(), 2)

    def test_a_lookup_that_fails_is_a_hit_of_0(self) -> None:
        self.found[:] = [None]
        with self.assertLogs("vllm.hitline", "WARNING"):
            self.assertEqual(self.lookup(), 0)
            asked = self.asked()
            self.assertEqual([self.lookup() for _ in range(10)], [0] * 10)
        self.assertEqual(self.asked(), asked)
        self.answers(ALL)
        self.clock.now += 0.11
        self.assertEqual(eventually(self.lookup, 0), ALL)

    def test_asking_again_that_fails(self) -> None:
        self.answers(32)
        self.lookup()
        self.found[:] = [None]
        self.clock.now += 0.11
        with self.assertLogs("vllm.hitline", "WARNING") as logs:
            self.assertEqual(self.lookup(), 32)
            hit = self.client.remembered.hits["r"]
            eventually(lambda: hit.refreshing, True)
            self.assertEqual(self.lookup(), 32)
        self.assertIn("the hit found before is given for at most 1 s", logs.output[0])
        self.clock.now += 0.9
        self.answers(16)
        self.assertEqual(self.lookup(), 16)

    def test_asking_again_that_is_refused(self) -> None:
        for name, want in (("no_pool", 0), ("not_allowed", 0), ("busy", 32)):
            self.answers(32)
            self.assertEqual(self.lookup(), 32)
            self.found[:] = [refusal(name, "lookup")]
            self.refresh()
            self.assertEqual(self.lookup(), want, name)
            self.client.discard("r")

    def test_a_busy_server_is_left_to_others(self) -> None:
        self.answers(32)
        self.assertEqual(self.lookup(), 32)
        self.found[:] = [refusal("busy", "lookup")]
        for asked in (2, 3):
            self.refresh()
            self.assertEqual(self.asked(), asked, "it is not sent again")
        self.found += [message(bytes(4))]
        self.assertEqual(self.client.lookup("other", 64, []), 0)
        self.assertEqual(self.asked(), 5, "others are not held back, and are sent again")

    def test_asking_again_has_the_time_of_one_lookup(self) -> None:
        self.answers(32)
        self.assertEqual(self.lookup(), 32)
        released = threading.Event()
        busy = self.client._worker.submit(released.wait, PATIENCE)
        self.clock.now += 0.11
        with mock.patch.object(self.client, "lookup_timeout", lambda _: 1e-6):
            self.assertEqual(self.lookup(), 32)
        released.set()
        self.assertTrue(busy.result())
        hit = self.client.remembered.hits["r"]
        eventually(lambda: hit.refreshing, True)
        self.assertEqual((self.asked(), self.lookup()), (1, 32), "the worker had no time for it")

    def refresh(self) -> None:
        """Asks for a hit again, which fails."""
        self.clock.now += 0.11
        with self.assertLogs("vllm.hitline", "WARNING") as logs:
            self.client._log._again_at.clear()
            self.assertEqual(self.lookup(), 32)
            hit = self.client.remembered.hits["r"]
            eventually(lambda: hit.refreshing, True)
            eventually(lambda: bool(logs.output), False)

    def test_without_waiting_for_lookups(self) -> None:
        self.answers(ALL)
        self.begin()
        self.assertEqual(eventually(lambda: self.lookup(non_block=True), None), ALL)
        self.assertEqual([self.lookup(non_block=True) for _ in range(10)], [ALL] * 10)
        self.assertEqual(self.asked(), 1)

    def test_its_age_begins_with_the_question(self) -> None:
        self.answers(ALL)
        self.begin()
        self.clock.now += 0.9
        for asked in (1, 2):
            eventually(lambda: self.lookup(non_block=True), None)
            self.assertEqual(self.asked(), asked)
            self.clock.now += 0.2

    def test_a_pending_answer_to_another_prompt_or_a_later_start_is_dropped(self) -> None:
        for asked, now, want in (
            ({"start": 32}, {"start": 32}, 32),
            ({"start": 32}, {"start": 48}, 32),  # the engine has more: at most too small
            ({"start": 32}, {"start": 16}, 16),
            ({"start": 32}, {}, 16),
            ({}, {"tokens": 80}, 16),
            ({}, {"count": 3}, 16),
            ({}, {"name": "b"}, 16),
        ):
            with self.subTest(asked=asked, now=now):
                self.answers(32, 16)
                with self.client._retry.lock:
                    self.assertIsNone(self.lookup(non_block=True, **asked))
                eventually(lambda: self.client._pending["r"].is_done, False)
                self.assertEqual(eventually(lambda: self.lookup(non_block=True, **now), None), want)
                self.client.discard("r")
        self.assertEqual(self.client._pending, {})

    def test_another_start_drops_what_is_remembered(self) -> None:
        self.answers(32, 48, 16)
        starts = (0, 0, 32, 32, 16, 16)
        self.assertEqual([self.lookup(start=start) for start in starts], [32, 32, 48, 48, 16, 16])
        self.assertEqual([r[0] for r in self.requests()], [b"lookup", b"lookup_from", b"lookup_from"])

    def test_it_is_asked_for_again_from_the_same_start(self) -> None:
        self.answers(32, ALL)
        self.assertEqual(self.lookup(start=32), 32)
        self.clock.now += 0.11
        self.assertEqual(eventually(lambda: self.lookup(start=32), 32), ALL)
        self.assertEqual(*self.requests())

    def test_what_drops_it(self) -> None:
        for drop in (lambda: self.client.discard("r"), self.client.reset, self.client.forget):
            self.answers(ALL)
            self.assertEqual(self.lookup(), ALL)
            self.found[:] = [message(b"\1")]
            drop()
            self.answers(0)
            self.assertEqual(self.lookup(), 0)
            self.client.discard("r")
        self.assertEqual((self.client.remembered.hits, self.client._pending), ({}, {}))

    def test_a_reset_drops_pending_lookups(self) -> None:
        self.found[:] = [message(ALL.to_bytes(4, "big")), message(b"\1"), message(b"\0\0\0\0")]
        self.begin()
        self.assertTrue(self.client.reset())
        self.assertEqual(eventually(lambda: self.lookup(non_block=True), None), 0)

    def test_memory_is_bounded_by_unfinished_requests(self) -> None:
        self.answers(ALL)
        for i in range(1000):
            self.client.lookup(str(i), 64, hashes("a", 4), i % 2 == 0)
            self.client.discard(str(i))
        self.assertEqual((self.client.remembered.hits, self.client._pending), ({}, {}))


if __name__ == "__main__":
    unittest.main()
