"""Which engines have most of a prompt: byte by byte, and at a server that keeps no holders."""

from __future__ import annotations

import json
import unittest
from typing import Any

from hitline import BadReply, Client, Holder, Holders, NotAllowed, Refused
from tests.support import Scripted, message


class Requests(unittest.TestCase):
    """Against servers that follow a script."""

    def exchanged(self, reply: bytes, ask: Any) -> tuple[list[bytes], Any]:
        """Returns the frames that ask(client) sends, and what it returns."""
        with Scripted(lambda _: reply) as server, Client(server.address) as client:
            returned = ask(client)
            return server.requests[0], returned

    def test_all_fields(self) -> None:
        document = {
            "block_size": 16,
            "holders": [
                {"instance": "engine-0", "rank": 1, "tokens": 32, "media": {"GPU": 16, "CPU": 32}},
                {"instance": "engine-1", "rank": 0, "tokens": 16, "media": {"predicted": 16}},
            ],
            "left_out": 3,
            "loadable_tokens": 0,
        }
        request, found = self.exchanged(
            message(b"\1", json.dumps(document).encode()),
            lambda c: c.holders(
                [b"a" * 32, b"b" * 32],
                model="llama",
                tenant="t",
                instance="engine-0",
                loadable=True,
                num_tokens=40,
                limit=2,
            ),
        )
        self.assertEqual(request[0], b"holders")
        self.assertEqual(
            json.loads(request[1]),
            {
                "model": "llama",
                "tenant": "t",
                "instance": "engine-0",
                "loadable": True,
                "num_tokens": 40,
                "limit": 2,
            },
        )
        self.assertEqual(request[2:], [b"\0\x20", b"a" * 32 + b"b" * 32])
        holders = Holder("engine-0", 1, 32, {"GPU": 16, "CPU": 32}), Holder("engine-1", 0, 16, {"predicted": 16})
        self.assertEqual(found, Holders(16, holders, 3, 0))

    def test_defaults(self) -> None:
        reply = message(b"\1", b'{"block_size": 16, "holders": []}')
        request, found = self.exchanged(reply, lambda c: c.holders([b"a" * 8]))
        self.assertEqual(request, [b"holders", b"{}", b"\0\x08", b"a" * 8])
        self.assertEqual(found, Holders(16, (), 0, None))
        request, _ = self.exchanged(reply, lambda c: c.holders([]))
        self.assertEqual(request, [b"holders", b"{}", b"\0\0", b""])

    def test_bad_replies(self) -> None:
        for reply in (
            message(b"\1"),
            message(b"\1", b"{}", b""),
            message(b"\1", b"[]"),
            message(b"\1", b"{}"),
            message(b"\1", b'{"block_size": 16, "holders": 1}'),
            message(b"\1", b'{"block_size": 16, "holders": [1]}'),
            message(b"\1", b'{"block_size": 16, "holders": [{"instance": "e"}]}'),
            message(b"\1", b'{"block_size": 16, "holders": [], "loadable_tokens": "many"}'),
            message(b"\2", b'{"block_size": 16, "holders": []}'),
        ):
            with self.subTest(reply.hex()), self.assertRaises(BadReply):
                self.exchanged(reply, lambda c: c.holders([b"a" * 8]))

    def test_refusals(self) -> None:
        refusal = json.dumps({"refusal": "not_allowed", "request": "holders"}).encode()
        with self.assertRaisesRegex(NotAllowed, "may not"):
            self.exchanged(message(b"\0", b"may not", refusal), lambda c: c.holders([b"a" * 8]))
        with self.assertRaisesRegex(Refused, "no such model"):
            self.exchanged(message(b"\0", b"no such model"), lambda c: c.holders([b"a" * 8]))

    def test_what_cannot_be_sent(self) -> None:
        with Client("tcp://127.0.0.1:1") as client:
            for blocks in ([b""], [b"a" * 65], [b"a" * 8, b"b" * 9]):
                with self.subTest(blocks), self.assertRaises(ValueError):
                    client.holders(blocks)


