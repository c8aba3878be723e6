"""Masks, plans and prompts that are stored: byte by byte, and at the real server."""

from __future__ import annotations

import struct
import unittest
from typing import Any

from hitline import BadReply, BadRequest, Client, Mask, PartlyDone, Plan, TailKeyBoundary
from tests.support import Scripted, message, refusal

NO_GROUP = 0xFFFFFFFF


def numbers(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


class Requests(unittest.TestCase):
    """Against servers that follow a script."""

    def exchanged(self, reply: bytes, ask: Any) -> tuple[list[bytes], Any]:
        """Returns the frames that ask(client) sends, and what it returns."""
        with Scripted(lambda _: reply) as server, Client(server.address, raise_errors=True) as client:
            returned = ask(client)
            return server.requests[0], returned

    def test_masks(self) -> None:
        frame = numbers(0, 0, 4, 0xFFFFFFFF) + numbers(NO_GROUP, 2, 6, 2, 2, 3, 4, 6) + numbers(1, 0, 0, 0)
        want = (
            Mask(0, 0, 4, ((0, 4),), True),
            Mask(None, 2, 6, ((2, 3), (4, 6)), False),
            Mask(1, 0, 0, (), False),
        )
        for name, ask, sent in (
            ("load_mask", lambda c: c.load_mask(64, 5), numbers(64, 5)),
            ("store_mask", lambda c: c.store_mask(64, 16, 70), numbers(64, 16, 70)),
            ("store_mask", lambda c: c.store_mask(64), numbers(64, 0, 0xFFFFFFFF)),
            ("lookup_mask", lambda c: c.lookup_mask(64), numbers(64)),
        ):
            with self.subTest(name):
                request, masks = self.exchanged(message(b"\1", frame), ask)
                self.assertEqual(request, [name.encode(), sent])
                self.assertEqual(masks, want)
        self.assertEqual(list(want[1].chunks()), [2, 4, 5])

    def test_bad_masks(self) -> None:
        for frame in (b"\0", numbers(0, 0, 4), numbers(0, 0, 4, 1, 2), numbers(0, 0, 4, 0x20000000)):
            with self.subTest(frame.hex()), self.assertRaises(BadReply):
                self.exchanged(message(b"\1", frame), lambda c: c.lookup_mask(64))
        with self.assertRaises(BadReply):
            self.exchanged(message(b"\1"), lambda c: c.lookup_mask(64))

    def test_plan(self) -> None:
        reply = message(b"\1", numbers(40, 0, 48, 1, 40), numbers(0, 0, 3, 1, 0, 3))
        request, plan = self.exchanged(reply, lambda c: c.plan(41, [b"a" * 4, b"b" * 4]))
        self.assertEqual(request, [b"plan", numbers(41, 0), b"\0\4", b"aaaabbbb"])
        tails = (TailKeyBoundary(0, 48), TailKeyBoundary(1, 40))
        self.assertEqual(plan, Plan(40, tails, (Mask(0, 0, 3, ((0, 3),), False),)))
        request, _ = self.exchanged(reply, lambda c: c.plan(41, [b"b" * 4], start_token=32))
        self.assertEqual(request, [b"plan", numbers(41, 32), b"\0\4", b"bbbb"])
        for hit in (b"\0\0\0\0\0", numbers(42), numbers(40, 1, 40)):
            with self.assertRaises(BadReply):
                self.exchanged(message(b"\1", hit, b""), lambda c: c.plan(41, []))

    def test_store_prompt(self) -> None:
        request, stored = self.exchanged(
            message(b"\1", numbers(3, 0)),
            lambda c: c.store_prompt(
                48, [b"abcd"], start_token=16, prompt_tokens=50, first_hash=2, ranks=[(1, 2, 3)], states=[(1, 48)]
            ),
        )
        self.assertEqual(
            request,
            [b"store_prompt", numbers(48, 16, 50, 2), b"\0\1\0\2\0\3", numbers(1, 48), b"\0\4", b"abcd"],
        )
        self.assertEqual(stored, [3, 0])
        request, _ = self.exchanged(message(b"\1", b""), lambda c: c.store_prompt(48, [b"abcd"]))
        self.assertEqual(request[1:4], [numbers(48, 0, 0xFFFFFFFF, 0), b"", b""])

    def test_parts_that_are_not_stored(self) -> None:
        part = {"group": 1, "tp_rank": 0, "pp_rank": 0, "pcp_rank": 0, "first_chunk": 4, "chunks": 2, "error": "full"}
        for more in ({}, {"more_parts": 3}):
            reply = refusal("partly_done", "store_prompt", "one part is not stored", b"\4", parts=[part], **more)
            with self.assertRaisesRegex(PartlyDone, "one part") as raised:
                self.exchanged(reply, lambda c: c.store_prompt(48, [b"abcd"]))
            self.assertEqual((raised.exception.parts, raised.exception.more_parts), ([part], len(more) * 3))
        with self.assertRaisesRegex(BadRequest, "no such rank"):
            self.exchanged(refusal("bad_request", text="no such rank"), lambda c: c.store_prompt(48, [b"abcd"]))


if __name__ == "__main__":
    unittest.main()
