"""Servers that are away: who waits for them, for how long, and what is sent again."""

from __future__ import annotations

import contextlib
import socket
import time
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from hitline import ConnectionFailed, HitlineError, LookupKeyClient
from hitline.connection import Connection
from hitline.probe import Probe
from hitline.retry import DIAL_PAUSE, SEEN_LATELY
from tests.support import PATIENCE, Scripted, hashes, message, refusal
from tests.test_client import eventually

HIT = message(b"\0\0\0\x30")
TIMEOUT = PATIENCE  # by the system's clock nothing here takes as long


class Clock:
    """Only waiting moves it. It begins now, as connections have the system's."""

    def __init__(self, client: LookupKeyClient) -> None:
        self.start = self.now = time.monotonic()
        self.at: dict[float, Callable[[], None]] = {}  # what happens, seconds after the start
        self.client = client
        client._retry.clock = lambda: self.now
        client._retry._closing = mock.Mock(wait=self.wait)
        # Pings are not sent unless a test says so.
        client._retry.probe = Probe(client._retry.ping_once, wait=lambda _: True)

    @property
    def spent(self) -> float:
        return round(self.now - self.start, 6)

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        for when in [when for when in self.at if when <= self.spent]:
            self.at.pop(when)()
        return False


class Outages(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Scripted(lambda _: HIT)
        self.addCleanup(self.server.__exit__, None, None, None)
        self.client = LookupKeyClient(self.server.address, timeout=TIMEOUT, raise_errors=True)
        self.addCleanup(self.client.close)
        self.clock = Clock(self.client)
        self.is_away = False
        self.dials = 0
        real = Connection._open

        def open_one(connection: Connection, *arguments: Any) -> None:
            self.dials += 1
            if self.is_away:
                raise ConnectionRefusedError(111, "refused")
            real(connection, *arguments)

        patch = mock.patch.object(Connection, "_open", open_one)
        patch.start()
        self.addCleanup(patch.stop)

    def stop(self) -> None:
        self.is_away = True
        for conn in self.server._conns:
            with contextlib.suppress(OSError):  # it has ended
                conn.shutdown(socket.SHUT_RDWR)

    def start(self) -> None:
        self.is_away = False

    def lookup(self, waits: bool) -> int:
        if not waits:
            return self.client.lookup("r", 64, [])
        return eventually(lambda: self.client.lookup("r", 64, [], non_block=True), None)

    def test_stopped_and_started(self) -> None:
        for waits in (False, True, False, True):
            with self.subTest(waits=waits):
                self.assertEqual(self.lookup(waits), 48)
                self.stop()
                self.clock.start = self.clock.now
                self.clock.at[0.15] = self.start
                self.assertEqual([self.lookup(waits) for _ in range(3)], [48] * 3)
                self.assertEqual(self.clock.spent, 0.15)

    def test_away_for_good(self) -> None:
        """It costs one timeout, and those nothing that are waited for if it was not there lately."""
        for waits, idle, want in ((False, SEEN_LATELY, TIMEOUT), (False, SEEN_LATELY + 0.1, 0.0), (True, 3600.0, TIMEOUT)):
            with self.subTest(waits=waits, idle=idle):
                self.start()
                self.client._retry.probe._end()
                self.assertEqual(self.lookup(waits), 48)
                self.stop()
                self.clock.now += idle
                self.clock.start, dials = self.clock.now, self.dials
                for i in range(1000):
                    text = "^not tried until a ping is answered, after this: cannot connect" if i else "^cannot connect"
                    with self.assertRaisesRegex(ConnectionFailed, text):
                        self.lookup(waits)
                # By the sum of many pauses, the last dial may be a pause earlier or later.
                self.assertAlmostEqual(self.clock.spent, max(want - DIAL_PAUSE, 0.0), delta=1.5 * DIAL_PAUSE)
                self.assertAlmostEqual(self.dials - dials, max(round(want / DIAL_PAUSE), 1), delta=1)

    def test_found_again_by_a_ping(self) -> None:
        self.stop()
        with self.assertRaises(ConnectionFailed):
            self.lookup(False)
        self.assertIs(self.client._retry.ping_once(), False)
        self.start()
        self.server.answer = lambda frames: HIT if frames[0] == b"lookup" else message(b"\1", b"")
        self.assertIs(self.client._retry.ping_once(), True)
        self.client._retry.probe._end()
        dials = self.dials
        self.assertEqual(self.lookup(False), 48)
        self.assertEqual(self.dials, dials, "on the connection of the ping")

    def test_those_that_are_waited_for_do_not_queue_behind_one_that_dials(self) -> None:
        self.stop()
        failed: list[Exception] = []

        def ask() -> None:
            with self.assertRaises(ConnectionFailed) as caught:
                self.client.lookup("other", 64, [])
            failed.append(caught.exception)

        self.clock.at[0.02] = ask
        with self.assertRaisesRegex(ConnectionFailed, "^cannot connect"):
            self.lookup(True)
        self.assertRegex(str(failed[0]), "^not tried after this: cannot connect")

    def test_close_ends_the_wait(self) -> None:
        self.stop()
        self.clock.at[0.02] = lambda: setattr(self.client._retry, "closed", True)
        with self.assertRaisesRegex(ConnectionFailed, "the client is closed"):
            self.lookup(True)
        self.assertEqual(self.clock.spent, 0.02)


class SentAgain(unittest.TestCase):
    """Once, what changes nothing, and not after a refusal."""

    def check(self, ask: Callable[[LookupKeyClient], Any], losses: int, sent: int, is_lost: bool, refuse: bool = False) -> None:
        left = [losses]
        names: list[bytes] = []

        def answer(frames: list[bytes]) -> bytes | None:
            if frames[0] == b"load_mask":
                return refusal("bad_request")
            names.append(frames[0])
            if left[0]:
                left[0] -= 1
                return None
            return HIT if frames[0] == b"lookup" else message(b"\1", b"{}")

        with Scripted(answer) as server, LookupKeyClient(server.address, timeout=PATIENCE, raise_errors=True) as client:
            if refuse:
                with self.assertRaises(HitlineError):
                    client.load_mask(16, 1)
            if is_lost:
                with self.assertRaisesRegex(ConnectionFailed, "closed the connection"):
                    ask(client)
            else:
                ask(client)
            self.assertEqual(len(names), sent)

    def test_all(self) -> None:
        keys = hashes("a", 1)

        def lookup(client: LookupKeyClient) -> Any:
            return client.lookup("r", 64, [])

        self.check(lookup, 1, 2, False)
        self.check(lookup, 2, 2, True)
        self.check(lookup, 1, 1, True, refuse=True)
        self.check(lambda client: client.stat(), 1, 2, False)
        self.check(lambda client: client.store(keys), 1, 1, True)
        self.check(lambda client: client.renew(keys), 1, 1, True)
        self.check(lambda client: client.reset(), 1, 1, True)


if __name__ == "__main__":
    unittest.main()
