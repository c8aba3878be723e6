"""Lookups that are not waited for, against a server that follows a script."""

from __future__ import annotations

import gc
import queue
import threading
import time
import unittest
from unittest import mock

import hitline
from hitline import LookupKeyClient, errors
from tests.support import PATIENCE, Scripted, hashes, message, no_thread_left, unused_address
from tests.test_client import eventually

END = b"end"  # in place of a reply: the script replies to nothing more


class Async(unittest.TestCase):
    def setUp(self) -> None:
        self.replies: queue.Queue[bytes | None] = queue.Queue()
        self.server = self.enterContextHere(Scripted(self.reply))
        self.client = LookupKeyClient(self.server.address, timeout=PATIENCE)
        self.addCleanup(self.client.close)

    def enterContextHere(self, context: Scripted) -> Scripted:
        self.addCleanup(context.__exit__, None, None, None)
        self.addCleanup(self.replies.put, END)
        return context.__enter__()

    def reply(self, _: list[bytes]) -> bytes | None:
        """The next reply. END stays in the queue, as more connections may wait."""
        reply = self.replies.get(timeout=PATIENCE)
        if reply != END:
            return reply
        self.replies.put(END)
        return None

    def answer(self, hit: int) -> None:
        self.replies.put(message(hit.to_bytes(4, "big")))

    def poll(self, req_id: str, tokens: int = 64) -> int | None:
        return self.client.lookup(req_id, tokens, hashes("a", 4), non_block=True)

    def asked(self) -> list[int]:
        """The tokens of the lookups that the server has seen."""
        return [int.from_bytes(r[1], "big") if len(r) > 1 else -1 for r in self.server.requests]

    def wait_asked(self, count: int) -> None:
        eventually(lambda: len(self.server.requests) >= count, False)

    def test_a_second_call_ignores_its_arguments(self) -> None:
        self.assertIsNone(self.poll("r", 64))
        self.assertIsNone(self.client.lookup("r", 16, [], non_block=True))
        self.answer(48)
        self.assertEqual(self.client.lookup("r", 32, hashes("b", 2)), 48)
        self.assertEqual(self.asked(), [64])
        self.assertEqual(self.client._pending, {})

    def test_the_hashes_are_copied(self) -> None:
        blocks = hashes("a", 4)
        changed = threading.Event()
        real = self.client._lookup

        def later(*arguments: object, **more: object) -> object:
            changed.wait(PATIENCE)
            return real(*arguments, **more)

        with mock.patch.object(self.client, "_lookup", later):
            self.assertIsNone(self.client.lookup("r", 64, blocks, non_block=True))
            blocks.clear()
            changed.set()
            self.answer(64)
            self.assertEqual(self.client.lookup("r", 64, blocks), 64)
        self.assertEqual(self.server.requests[0][3], b"".join(hashes("a", 4)))

    def test_a_discarded_lookup_that_runs_completes_and_its_answer_is_thrown_away(self) -> None:
        self.assertIsNone(self.poll("r", 16))
        self.wait_asked(1)
        self.client.discard("r")
        self.assertIsNone(self.poll("r", 32))
        self.answer(16)
        self.answer(32)
        self.assertEqual(self.client.lookup("r", 0, []), 32)
        self.assertEqual(self.asked(), [16, 32])
        self.assertEqual(self.server.connections, 1)

    def test_reset_waits_its_turn(self) -> None:
        for i in range(3):
            self.assertIsNone(self.poll(str(i), i))
            self.answer(16)
        self.replies.put(message(b"\1"))
        self.assertIs(self.client.reset(), True)
        self.assertEqual(self.asked(), [0, 1, 2, -1])

    def test_an_exception_is_raised_where_that_is_asked_for(self) -> None:
        client = LookupKeyClient(unused_address(self), raise_errors=True)
        self.addCleanup(client.close)
        with self.assertRaises(hitline.ConnectionFailed):
            client.lookup("r", 16, [])
        with self.assertRaises(hitline.ConnectionFailed):
            eventually(lambda: client.lookup("r", 16, [], non_block=True), None)
        self.assertEqual(client._pending, {})
        with self.assertRaises(hitline.ConnectionFailed):
            client.reset()
        client.close()
        for call in (client.reset, lambda: client.lookup("r", 16, [], non_block=True), lambda: client.lookup("r", 16, [])):
            with self.assertRaisesRegex(hitline.ConnectionFailed, "the client is closed"):
                call()

    def test_what_is_cancelled_under_a_caller_raises_errors_of_this_module(self) -> None:
        for cancel, want, text in (
            (lambda: client.discard("second"), hitline.HitlineError, "was discarded"),
            (lambda: client.close(), hitline.ConnectionFailed, "the client is closed"),
        ):
            client = LookupKeyClient(self.server.address, timeout=PATIENCE, raise_errors=True)
            self.addCleanup(client.close)
            self.assertIsNone(client.lookup("first", 16, [], non_block=True))
            self.assertIsNone(client.lookup("second", 16, [], non_block=True))
            future = client._pending["second"]
            real = future.result

            def result() -> int:
                cancel()  # while this caller waits
                return real()

            with mock.patch.object(future, "result", result):
                with self.assertRaisesRegex(want, text):
                    client.lookup("second", 0, [])
            client.close()

    def test_close_cancels_what_is_pending(self) -> None:
        with mock.patch.object(errors.logger, "disabled", True):
            for i in range(3):
                self.assertIsNone(self.poll(str(i), i))
            self.wait_asked(1)
            waiting = self.client._pending["2"]
            at = time.monotonic()
            self.client.close()
            self.assertLess(time.monotonic() - at, PATIENCE / 2)
            self.assertRaisesRegex(hitline.ConnectionFailed, "the client is closed", waiting.result)
            self.assertEqual(self.client._pending, {})
            self.assertEqual(self.poll("2"), 0)
            self.assertEqual(self.client.lookup("2", 16, []), 0)
            self.client.close()
        self.assertEqual(self.asked(), [0])

    def test_two_threads_may_wait_for_one_lookup(self) -> None:
        self.assertIsNone(self.poll("r"))
        got: list[int | None] = []
        waiting = threading.Barrier(3)
        future = self.client._pending["r"]
        real = future.result

        def result() -> int:
            waiting.wait(PATIENCE)
            return real()

        with mock.patch.object(future, "result", result):
            threads = [threading.Thread(target=lambda: got.append(self.client.lookup("r", 0, []))) for _ in range(2)]
            for thread in threads:
                thread.start()
            waiting.wait(PATIENCE)
            self.answer(48)
            for thread in threads:
                thread.join(PATIENCE)
        self.assertEqual(got, [48, 48])
        self.assertEqual(self.client._pending, {})

    def test_no_thread_is_left_after_close(self) -> None:
        with no_thread_left(self):
            client = LookupKeyClient(unused_address(self))
            with mock.patch.object(errors.logger, "disabled", True):
                for i in range(10):
                    client.lookup(str(i), 16, [], non_block=True)
                client.close()

    def test_no_thread_is_left_of_a_client_that_is_dropped(self) -> None:
        with no_thread_left(self), mock.patch.object(errors.logger, "disabled", True):
            client = LookupKeyClient(unused_address(self), timeout=0.05)
            eventually(lambda: client.lookup("r", 16, [], non_block=True), None)
            threads = client._worker._thread, client._retry.probe._thread
            del client
            gc.collect()  # an error that has been logged may keep it
            for thread in threads:
                assert thread is not None
                thread.join(PATIENCE)

    def test_no_thread_before_the_first_lookup_that_is_not_waited_for(self) -> None:
        client = LookupKeyClient(unused_address(self))
        self.addCleanup(client.close)
        with mock.patch.object(errors.logger, "disabled", True):
            client.lookup("r", 16, [])
        self.assertIsNone(client._worker._thread)


if __name__ == "__main__":
    unittest.main()
