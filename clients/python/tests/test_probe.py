"""What a server that hangs or stays busy costs the scheduler."""

from __future__ import annotations

import os
import queue
import socket
import tempfile
import threading
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from hitline import Busy, ConnectionFailed, LookupKeyClient, RequestTimeout
from hitline.probe import FIRST_INTERVAL, MAX_INTERVAL, Probe
from tests.support import PATIENCE, Scripted, hashes, message, no_thread_left, refusal
from tests.test_client import connected, eventually, unanswering

HIT = message(b"\0\0\0\x30")
NOT_TRIED = "^not tried until a ping is answered, after this: "


class Times:
    """A clock that only waiting and pings move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pings: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def ping(self, *seconds: float) -> Callable[[], bool]:
        """A ping that takes these times, one after the other; the last is answered."""
        left = list(seconds)

        def ping() -> bool:
            self.pings.append(round(self.now, 6))
            self.now += left.pop(0)
            return not left

        return ping


class Probes(unittest.TestCase):
    def pings(self, *seconds: float) -> list[float]:
        times = Times()
        probe = Probe(times.ping(*seconds), clock=lambda: times.now, wait=times.wait)
        probe._idle.clear()
        probe.run()
        self.assertFalse(probe.active)
        return times.pings

    def test_the_first_reply_ends_it(self) -> None:
        self.assertEqual(self.pings(0.0), [FIRST_INTERVAL])

    def test_pings_that_fail_at_once(self) -> None:
        self.assertEqual(self.pings(*[0.0] * 8), [0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5, 5.5])
        self.assertEqual(MAX_INTERVAL, 1.0)

    def test_a_ping_is_nearly_always_on_its_way(self) -> None:
        self.assertEqual(self.pings(1.0, 1.0, 1.0, 1.0, 0.0), [0.1, 1.1, 2.1, 3.1, 4.1])

    def test_without_a_thread_requests_go_on(self) -> None:
        probe = Probe(lambda: True, wait=lambda _: False)
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            probe.begin()
        self.assertFalse(probe.active)
        probe.join(PATIENCE)
        probe.begin()
        probe.wait_idle(PATIENCE)
        self.assertFalse(probe.active, "a later one has a thread")

    def test_stopped_while_it_waits(self) -> None:
        pings: list[int] = []
        probe = Probe(lambda: bool(pings.append(1)), wait=lambda _: True)
        probe.run()
        probe.stop()
        probe.begin()
        self.assertEqual((pings, probe.active, probe._thread), ([], False, None))


class ProbingClient(LookupKeyClient):
    """A client whose resets wait as an engine's do."""

    def _reset(self, timeout: float) -> bool:
        return super()._reset(self._retry.wait_for_ping(timeout))


class Clients(unittest.TestCase):
    def client(self, address: str, timeout: float = 0.05, **named: Any) -> ProbingClient:
        """A client whose probe pings when the test says so."""
        client = ProbingClient(address, timeout=timeout, raise_errors=True, **named)
        self.addCleanup(client.close)
        self.turns: queue.Queue[bool] = queue.Queue()  # whether the probe is to stop
        self.waits: list[float] = []  # how long it would have waited, in seconds
        client._retry.probe = Probe(client._retry.ping_once, clock=lambda: 0.0, wait=self.wait)
        self.addCleanup(self.turns.put, True)
        return client

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self.turns.get(timeout=PATIENCE)

    def lookup(self, client: ProbingClient) -> Any:
        return client.lookup("r", 64, hashes("a", 4))

    def outage(self, client: ProbingClient) -> None:
        """A lookup that is not answered in time, and a ping that is."""
        client._timeout = 0.05
        with self.assertRaises(RequestTimeout):
            self.lookup(client)
        client._timeout = PATIENCE
        self.turns.put(False)
        eventually(lambda: client._retry.probe.active, True)

    def test_a_server_that_hangs_costs_one_timeout(self) -> None:
        silent = True
        with Scripted(lambda _: Scripted.SILENCE if silent else HIT) as server:
            client = connected(self.client(server.address))
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            self.assertEqual(len(server.requests), 1)
            client._retry.retry_at, client._timeout = 0.0, PATIENCE  # however late it is
            for call in (lambda: self.lookup(client), client.stat) * 100:
                with self.assertRaisesRegex(ConnectionFailed, NOT_TRIED + ".*did not answer in time"):
                    call()
            self.assertEqual(len(server.requests), 1)
            silent = False
            self.turns.put(False)
            eventually(lambda: client._retry.probe.active, True)
            self.assertEqual(self.lookup(client), 48)
            self.assertEqual(server.connections, 2, "the one that was pinged on")

    def test_the_first_answered_lookup_is_logged_once_in_a_while(self) -> None:
        answers = {b"ping": message(b"\1", b""), b"lookup": Scripted.SILENCE}
        with Scripted(lambda frames: answers[frames[0]]) as server, self.assertLogs("hitline", "INFO") as logs:
            client = connected(self.client(server.address))

            def outage() -> None:
                answers[b"lookup"] = Scripted.SILENCE
                self.outage(client)

            def answered() -> None:
                answers[b"lookup"] = HIT
                self.assertEqual(self.lookup(client), 48)

            again = f"INFO:hitline:hitline at {server.address} answers lookups again"
            for _ in range(3):
                outage()
            self.assertEqual(logs.output, [], "it answers pings alone")
            for _ in range(3):
                answered()
            self.assertEqual(logs.output, [again])
            for _ in range(3):
                outage()
                answered()
            self.assertEqual(logs.output, [again])
            client._log._again_at.clear()  # as some seconds later
            for _ in range(3):
                answered()
            self.assertEqual(logs.output, [again] * 2, "the last word is true")

    def test_a_server_that_answers_only_pings_is_asked_less_often(self) -> None:
        answers = {b"ping": message(b"\1", b""), b"lookup": Scripted.SILENCE}
        with Scripted(lambda frames: answers[frames[0]]) as server:
            client = connected(self.client(server.address))

            for _ in range(6):
                self.outage(client)
            self.assertEqual(self.waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
            answers[b"lookup"] = HIT
            self.assertEqual(self.lookup(client), 48)
            answers[b"lookup"] = Scripted.SILENCE
            self.outage(client)
            self.assertEqual(self.waits[6:], [FIRST_INTERVAL])

    def test_a_longer_request_in_front_costs_one_timeout(self) -> None:
        with Scripted(lambda _: HIT) as server:
            client = connected(self.client(server.address))
            with client._retry.lock:  # as of the thread that asks again
                with self.assertRaisesRegex(RequestTimeout, "^other requests took all of"):
                    self.lookup(client)
                client._timeout = PATIENCE
                for _ in range(100):
                    with self.assertRaisesRegex(ConnectionFailed, NOT_TRIED + "other requests took all of"):
                        self.lookup(client)
            self.turns.put(False)
            eventually(lambda: client._retry.probe.active, True)
            self.assertEqual(self.lookup(client), 48)

    def test_without_waiting_for_lookups(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server:
            client = connected(self.client(server.address))
            with client._retry.lock:  # none can be answered yet
                for name in "abc":
                    self.assertIsNone(client.lookup(name, 64, [], non_block=True))
            for name, error in (("a", RequestTimeout), ("b", ConnectionFailed), ("c", ConnectionFailed)):
                with self.assertRaises(error):
                    eventually(lambda: client.lookup(name, 64, [], non_block=True), None)
            self.assertEqual(len(server.requests), 1)

    def test_a_reset_waits_for_the_reply(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server:
            client = connected(self.client(server.address))
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            with self.assertRaisesRegex(ConnectionFailed, NOT_TRIED):
                client.reset(timeout=0.01)
            client._timeout = PATIENCE
            server.answer = lambda _: message(b"\1")
            done = client._worker.submit(client._reset, PATIENCE)
            self.turns.put(False)
            self.assertIs(done.result(), True)
            self.assertEqual([r[0] for r in server.requests], [b"lookup", b"ping", b"reset"])

    def test_a_reset_does_not_wait_for_a_server_that_has_ended(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for path in ("", f"{folder}/s"):
                with Scripted(lambda _: Scripted.SILENCE, path) as server:
                    client = connected(self.client(server.address))
                    with self.assertRaises(RequestTimeout):
                        self.lookup(client)
                if path:
                    os.unlink(path)
                done = client._worker.submit(client._reset, 3 * PATIENCE)
                self.turns.put(False)
                with self.assertRaisesRegex(ConnectionFailed, NOT_TRIED):
                    done.result()
                self.assertTrue(client._retry.probe.active)

    def test_pings_that_are_not_answered(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server:
            client = connected(self.client(server.address))
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            replies = [Scripted.SILENCE, None, b"no message", Scripted.SILENCE]
            server.answer = lambda _: replies.pop(0) if replies else HIT
            with mock.patch("hitline.retry.PING_TIMEOUT", 0.05):
                for left in range(len(replies) - 1, -1, -1):
                    self.assertTrue(client._retry.probe.active)
                    self.turns.put(False)
                    eventually(lambda: len(replies) == left, False)
                self.turns.put(False)
                eventually(lambda: client._retry.probe.active, True)

    def test_any_reply_is_one(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server:
            client = connected(self.client(server.address))
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            server.answer = lambda _: refusal("not_allowed", "ping")
            self.turns.put(False)
            eventually(lambda: client._retry.probe.active, True)

    def test_the_connection_is_in_the_pool(self) -> None:
        answers = {b"pool": message(b"\1", b"{}"), b"ping": message(b"\1", b""), b"lookup": Scripted.SILENCE}
        with Scripted(lambda frames: answers[frames[0]]) as server:
            client = self.client(server.address, timeout=PATIENCE, pool={"name": "p"})
            client.check_pool()
            client._timeout = 0.05
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            client._timeout = PATIENCE
            answers[b"lookup"] = HIT
            self.turns.put(False)
            eventually(lambda: client._retry.probe.active, True)
            self.assertEqual(self.lookup(client), 48)
            asked = [r[0].decode() for r in server.requests]
            self.assertEqual(asked, ["pool", "ping", "lookup", "pool", "ping", "lookup"])

    def test_connecting_that_takes_too_long(self) -> None:
        with unanswering() as port:
            client = self.client(f"tcp://127.0.0.1:{port}")
            with self.assertRaisesRegex(RequestTimeout, "^cannot connect to .*timed out"):
                self.lookup(client)
            with self.assertRaisesRegex(ConnectionFailed, NOT_TRIED + "cannot connect"):
                self.lookup(client)

    def test_a_server_that_stays_busy_costs_one_timeout(self) -> None:
        busy = refusal("busy", "lookup")
        with Scripted(lambda _: busy) as server:
            client = self.client(server.address, timeout=0.1)
            with self.assertRaises(Busy):
                self.lookup(client)
            self.assertGreater(len(server.requests), 1)
            client._timeout = PATIENCE
            for _ in range(10):
                client._retry.retry_at, asked = 0.0, len(server.requests)
                with self.assertRaises(Busy):
                    self.lookup(client)
                self.assertEqual(len(server.requests), asked + 1)
            server.answer = lambda _: HIT
            client._retry.retry_at = 0.0
            self.assertEqual(self.lookup(client), 48)
            replies = [busy, HIT]
            server.answer = lambda _: replies.pop(0)
            self.assertEqual(self.lookup(client), 48, "sent again")

    def test_close_ends_a_ping(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server, no_thread_left(self):
            client = ProbingClient(server.address, timeout=0.05, raise_errors=True)
            with self.assertRaises(RequestTimeout):
                self.lookup(connected(client))
            client.close()
            with self.assertRaisesRegex(ConnectionFailed, "the client is closed"):
                self.lookup(client)

    def test_a_client_that_is_dropped_without_close(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server, mock.patch("hitline.retry.PING_TIMEOUT", 0.05):
            client = connected(ProbingClient(server.address, timeout=0.05, raise_errors=True))
            with self.assertRaises(RequestTimeout):
                self.lookup(client)
            thread = client._retry.probe._thread
            assert thread is not None and client._retry.probe.active
            del client
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())

    def test_close_does_not_wait_for_the_look_up_of_a_name(self) -> None:
        for looks_up in ("worker", "probe"):
            with self.subTest(looks_up), Scripted(lambda _: Scripted.SILENCE) as server:
                client = ProbingClient(server.address, timeout=0.05, raise_errors=True)
                if looks_up == "probe":
                    with self.assertRaises(RequestTimeout):
                        self.lookup(connected(client))
                self.closes_at_once(client)

    def closes_at_once(self, client: ProbingClient) -> None:
        find, begun, release = socket.getaddrinfo, threading.Event(), threading.Event()

        def wait(*args: Any, **more: Any) -> Any:
            begun.set()
            release.wait(3 * PATIENCE)
            return find(*args, **more)

        closing = threading.Thread(target=client.close, daemon=True)
        with mock.patch.object(socket, "getaddrinfo", wait), mock.patch("hitline.client._CLOSE_TIMEOUT", 0.01):
            if not client._retry.probe.active:
                client.lookup("r", 64, [], non_block=True)
            self.assertTrue(begun.wait(PATIENCE))
            closing.start()
            closing.join(PATIENCE)
            closed = not closing.is_alive()
            release.set()
            closing.join(PATIENCE)
        self.assertTrue(closed)


if __name__ == "__main__":
    unittest.main()
