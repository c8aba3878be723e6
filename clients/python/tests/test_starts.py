"""Lookups that begin where an engine's own cache ends."""

from __future__ import annotations

import struct
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, errors
from tests.support import Scripted, hashes, message, refusal
from tests.test_client import eventually

BLOCKS = hashes("a", 4)


def knows_starts(frames: list[bytes]) -> bytes:
    return message(b"\0\0\0\x30")


def knows_none(frames: list[bytes]) -> bytes:
    return refusal("unknown_request", "lookup_from") if frames[0] == b"lookup_from" else message(b"\0\0\0\x10")


def whole(blocks: list[bytes] = BLOCKS) -> list[bytes]:
    return [b"lookup", struct.pack(">I", 64), b"\0\x20", b"".join(blocks)]


def later(start: int, blocks: list[bytes]) -> list[bytes]:
    return [b"lookup_from", struct.pack(">II", 64, start), b"\0\x20" if blocks else b"\0\0", b"".join(blocks)]


class Requests(unittest.TestCase):
    """What is sent to servers that follow a script, by each way to look up."""

    WAYS: tuple[tuple[Any, Callable[..., Any]], ...] = (
        (Client, lambda c, *arguments, **start: c.lookup(*arguments, **start)),
        (Client, lambda c, *arguments, **start: c.lookup_result(*arguments, **start).hit_length),
        (LookupKeyClient, lambda c, *arguments, **start: c.lookup("r", *arguments, **start)),
        (
            LookupKeyClient,
            lambda c, *arguments, **start: eventually(lambda: c.lookup("r", *arguments, True, **start), None),
        ),
    )

    def test_only_hashes_from_the_start_on_are_sent(self) -> None:
        for cls, lookup in self.WAYS:
            with Scripted(knows_starts) as server, cls(server.address, raise_errors=True) as client:
                for blocks, start in (
                    (BLOCKS[2:], {"start_token": 32}),
                    (BLOCKS, {"start_token": 32, "hashes_before": 2}),
                    ([], {"start_token": 64}),
                    (BLOCKS, {"start_token": 64, "hashes_before": 4}),
                    (BLOCKS, {"start_token": 0}),
                ):
                    self.assertEqual(lookup(client, 64, blocks, **start), 48)
                want = [later(32, BLOCKS[2:])] * 2 + [later(64, [])] * 2 + [whole()]
                self.assertEqual(server.requests, want)

    def test_values_that_cannot_be_sent_raise(self) -> None:
        for cls, lookup in self.WAYS:
            with Scripted(knows_starts) as server, cls(server.address) as client:
                for wrong, error, text in (
                    ({"start_token": -16}, ValueError, "start_token is -16, must be 0 to"),
                    ({"start_token": 65}, ValueError, "start_token is 65, must be at most token_len, 64"),
                    ({"start_token": 1 << 32}, ValueError, "start_token is 4294967296, must be 0 to"),
                    ({"start_token": "16"}, TypeError, "start_token is '16', must be an int"),
                    ({"start_token": 16.0}, TypeError, "start_token is 16.0, must be an int"),
                    ({"start_token": None}, TypeError, "start_token is None, must be an int"),
                    ({"start_token": 16, "hashes_before": -1}, ValueError, "hashes_before is -1, must be 0 to"),
                    ({"start_token": 16, "hashes_before": 1.0}, TypeError, "hashes_before is 1.0, must be an int"),
                    ({"start_token": 16, "hashes_before": 5}, ValueError, "hashes_before is 5, but block_hashes has 4"),
                    ({"hashes_before": 1}, ValueError, "hashes_before is 1, must be 0 without a start_token"),
                ):
                    with self.subTest(wrong), self.assertRaisesRegex(error, f"^{text}"):
                        lookup(client, 64, BLOCKS, **wrong)
                with self.assertRaisesRegex(TypeError, "^block_hashes is dict, must be a list of bytes"):
                    lookup(client, 64, {b"a": b"b"}, start_token=16, hashes_before=1)
                self.assertEqual(server.requests, [])

    def test_a_server_that_knows_no_starts_is_asked_for_the_whole_prompt(self) -> None:
        start = {"start_token": 32, "hashes_before": 2}
        for cls, lookup in self.WAYS:
            with self.subTest(cls), Scripted(knows_none) as server, cls(server.address, raise_errors=True) as client:
                with self.assertLogs("hitline", "INFO") as logs:
                    self.assertEqual([lookup(client, 64, BLOCKS, **start) for _ in range(3)], [16] * 3)
                self.assertEqual(len(logs.output), 1)
                found = [later(32, BLOCKS[2:]), whole(), whole(), whole()]
                self.assertEqual(server.requests, found, "once per connection")
                client._retry.drop()
                server.answer = knows_starts
                self.assertEqual(lookup(client, 64, BLOCKS, **start), 48)
                self.assertEqual(server.requests, [*found, later(32, BLOCKS[2:])])

    def test_without_the_hashes_before_it_fails(self) -> None:
        for cls, lookup in self.WAYS:
            with Scripted(knows_none) as server, cls(server.address, raise_errors=True) as client:
                for _ in range(2):
                    with self.assertRaises(hitline.UnknownRequest):
                        lookup(client, 64, BLOCKS[2:], start_token=32)
            with Scripted(knows_none) as server, cls(server.address) as client:
                with mock.patch.object(errors.logger, "disabled", True):
                    self.assertEqual(lookup(client, 64, BLOCKS[2:], start_token=32), 0)

    def test_other_refusals_are_failures(self) -> None:
        for code in ("bad_request", "not_allowed", "store_failed"):
            with Scripted(lambda _, c=code: refusal(c)) as server, Client(server.address) as client:
                with mock.patch.object(errors.logger, "disabled", True):
                    self.assertEqual(client.lookup(64, BLOCKS, start_token=32, hashes_before=2), 0)
                self.assertEqual([r[0] for r in server.requests], [b"lookup_from"])

    def test_hashes_before_of_another_length(self) -> None:
        mixed = [*hashes("a", 2, 16), *BLOCKS[2:]]
        with Scripted(knows_none) as server, Client(server.address, raise_errors=True) as client:
            with self.assertRaisesRegex(ValueError, "block_hashes has hashes of 16 and of 32 bytes"):
                client.lookup(64, mixed, start_token=32, hashes_before=2)


if __name__ == "__main__":
    unittest.main()
