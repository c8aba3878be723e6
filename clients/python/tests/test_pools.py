"""Clients that say which pool their requests are about."""

from __future__ import annotations

import json
import unittest
from unittest import mock

import hitline
from hitline import (
    BadReply,
    Busy,
    Client,
    LookupKeyClient,
    LookupResult,
    NoPool,
    PoolDiffers,
    RefusedError,
    errors,
)
from tests.support import NEWEST, Scripted, hashes, hit_of, message, refusal, sock_of
from tests.test_client import eventually

POOL = {"vllm": NEWEST, "model_name": "m", "groups": [{"kind": "full_attention", "block_size": 16}]}
REPLY = {"name": "m-1", "digest": "d", "vllm": NEWEST, "alignment": 16}
ACCEPTED = message(b"\1", json.dumps(REPLY).encode())
HIT = message(hit_of(48))
DIFFERENCES = [{"field": "tp_size", "configured": 4, "described": 2}]
DIFFERS = refusal("pool_differs", "pool", "tp_size is 4, described as 2", differences=DIFFERENCES)


# Replies to pool, and what is wrong with them.
GROUPS = "groups that are no list of objects"
NUMBER = "{} where a number belongs"
WRONG_TYPES = (
    ('{"groups": 5}', GROUPS),
    ('{"groups": "ab"}', GROUPS),
    ('{"groups": [{}, 1]}', GROUPS),
    ('{"pool": [1]}', GROUPS),
    ('{"alignment": "16"}', NUMBER.format("'16'")),
    ('{"alignment": -16}', NUMBER.format("-16")),
    ('{"alignment": 1e999}', NUMBER.format("inf")),
    ('{"lease_ms": 2.5}', NUMBER.format("2.5")),
    ('{"groups": [{"stride": true}]}', NUMBER.format("True")),
    ('{"groups": [{"ranks": %d}]}' % (1 << 63), NUMBER.format(str(1 << 63))),
    ('{"pool": {"scheduler_block_size": []}}', NUMBER.format(r"\[\]")),
)


class Peer(Scripted):
    """Answers pool requests, and lookups with a hit of 48."""

    def __init__(self, pool: bytes | None = ACCEPTED, lookup: bytes | None = HIT) -> None:
        self.replies = {b"pool": pool, b"ping": message(b"\1", b""), b"lookup": lookup}
        super().__init__(lambda frames: self.replies.get(frames[0], message(b"\1")))

    def __enter__(self) -> Peer:
        return self

    def tags(self) -> list[bytes]:
        return [frames[0] for frames in self.requests]


class Requests(unittest.TestCase):
    def test_each_connection_is_put_in_the_pool(self) -> None:
        with Peer() as server, Client(server.address, pool=POOL, raise_errors=True) as client:
            self.assertIsNone(client.pool_reply)
            client.ping()  # needs none
            for _ in range(2):
                self.assertEqual(client.lookup(64, hashes("a", 4)), 48)
            self.assertEqual(server.tags(), [b"ping", b"pool", b"lookup", b"lookup"])
            self.assertEqual(json.loads(server.requests[1][1]), POOL)
            self.assertEqual(client.pool_reply, REPLY)
            server.replies[b"lookup"] = None  # it closes the connection
            with self.assertRaises(hitline.ConnectionFailed):
                client.lookup(64, hashes("a", 4))
            server.replies[b"lookup"] = HIT
            del server.requests[:]
            self.assertEqual(client.lookup(64, hashes("a", 4)), 48)
            self.assertEqual(server.tags(), [b"pool", b"lookup"])

    def test_a_pool_that_differs(self) -> None:
        with Peer(DIFFERS) as server:
            with Client(server.address, pool=POOL, raise_errors=True) as client:
                for call in (client.check_pool, lambda: client.lookup(64, hashes("a", 4)), lambda: client.store(hashes("a", 1))):
                    with self.assertRaisesRegex(PoolDiffers, "^tp_size is 4, described as 2$") as raised:
                        call()
                    self.assertEqual(raised.exception.differences, DIFFERENCES)
                self.assertIsNone(client.pool_reply)
                client.ping()
            self.assertEqual(server.tags(), [b"pool", b"ping"])  # it is asked once a connection
            self.assertEqual(server.connections, 1)

    def test_it_counts_as_a_miss(self) -> None:
        """And is logged once for each text."""
        for vllm, want in ((None, 0), (NEWEST, LookupResult(0))):
            with Peer(DIFFERS) as server, LookupKeyClient(server.address, pool=POOL, vllm=vllm) as client:
                with self.assertLogs("hitline", "WARNING") as logs, mock.patch.object(errors, "_LOG_EVERY", 0.0):
                    for _ in range(3):
                        self.assertEqual(client.lookup("r", 64, hashes("a", 4)), want)
                    self.assertEqual(eventually(lambda: client.lookup("r", 64, hashes("a", 4), non_block=True), None), want)
                    server.replies[b"pool"] = DIFFERS.replace(b"tp_size is 4", b"tp_size is 8")
                    client._retry.drop()
                    for _ in range(3):
                        self.assertEqual(client.lookup("r", 64, hashes("a", 4)), want)
                self.assertEqual([r.levelname for r in logs.records], ["ERROR", "ERROR"])
                self.assertIn("tp_size is 4", logs.output[0])
                self.assertIn("tp_size is 8", logs.output[1])
                self.assertNotIn(b"lookup", server.tags())

    def test_a_pool_that_is_refused(self) -> None:
        for code, error in (("no_pool", NoPool), ("busy", Busy), ("later", RefusedError)):
            reason = f"{code}: all described pools have connections"
            with Peer(refusal(code, "pool", reason)) as server, LookupKeyClient(server.address, pool=POOL) as client:
                with self.assertLogs("hitline", "WARNING") as logs:
                    self.assertEqual(client.lookup("r", 64, hashes("a", 4)), 0)
                self.assertEqual([r.levelname for r in logs.records], ["WARNING"])
                self.assertIn(reason, logs.output[0])
                client._raise_errors = True
                server.replies[b"pool"] = ACCEPTED
                with self.assertRaisesRegex(error, reason):
                    client.lookup("r", 64, hashes("a", 4))
                self.assertEqual(server.tags(), [b"pool"])
                client._retry.connection.refused.clear()  # it has been a while
                self.assertEqual(client.lookup("r", 64, hashes("a", 4)), 48)
                self.assertEqual(server.tags(), [b"pool", b"pool", b"lookup"])
                self.assertEqual(server.connections, 1)

    def test_bad_replies(self) -> None:
        for reply, text in (
            (message(b"\1"), "pool without a JSON document"),
            (message(b"\1", b"["), "pool without a JSON document"),
            (message(b"\1", b"[]"), "pool is not a JSON object"),
            (message(b"\2"), "status 02"),
            (message(b"\0", b"no", b"["), "a refusal without a JSON document"),
            (message(b"\0", b"no", b"[1]"), "a refusal is not a JSON object"),
            *((message(b"\1", document.encode()), f"^pool with {text}") for document, text in WRONG_TYPES),
        ):
            with Peer(reply) as server, Client(server.address, pool=POOL, raise_errors=True) as client:
                with self.assertRaisesRegex(BadReply, text):
                    client.lookup(64, hashes("a", 4))
                self.assertIsNone(sock_of(client))

    def test_bad_arguments(self) -> None:
        for pool in ({}, "p", ["p"], {"name": b"p"}):
            with self.assertRaisesRegex(ValueError, "^pool "):
                Client("tcp://127.0.0.1:1", pool=pool)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
