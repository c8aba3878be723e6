"""Which instance of a server a client meets."""

from __future__ import annotations

import unittest

from hitline import BadReply, Client, Instance
from tests.support import Scripted, message, named, refusal


class Hooks(unittest.TestCase):
    def test_what_it_raises_goes_no_further(self) -> None:
        def fail(_: Instance) -> None:
            raise KeyError("hook")

        with Scripted(lambda _: message(b"\0\0\0\x10")) as server:
            with Client(server.address, on_instance=fail, raise_errors=True) as client:
                with self.assertLogs("hitline", "ERROR") as logs:
                    self.assertEqual(client.lookup(16, []), 16)
                self.assertIn("KeyError", logs.output[0])
                self.assertEqual(client.lookup(16, []), 16)

    def test_a_server_that_names_no_instance(self) -> None:
        unnamed = message(b"\1"), message(b"\1", b"{}"), message(b"\1", b"[]"), message(b"\1", b'{"instance": "00ff"}'), named("")
        met: list[Instance] = []
        with Scripted(lambda _: message(b"\0\0\0\x10")) as server:
            with Client(server.address, on_instance=met.append, raise_errors=True) as client:
                for pong in unnamed:
                    server.pong = pong
                    with self.assertRaisesRegex(BadReply, "^ping "):
                        client.lookup(16, [])
                server.pong = refusal("not_allowed", "ping")  # it goes on without
                self.assertEqual(client.lookup(16, []), 16)
                client._retry.drop()
                for _ in range(2):
                    server.pong = named("00ff", "2026-11-28T00:00:00Z")
                    self.assertEqual(client.lookup(16, []), 16)
                    client._retry.drop()
        self.assertEqual(met, [Instance("00ff", "2026-11-28T00:00:00Z", "", 1)], "once")


if __name__ == "__main__":
    unittest.main()
