"""Restarts of the server, and the death of a rank."""

from __future__ import annotations

import datetime
import re
import unittest

from hitline import BadReply, Client, Instance, LookupKeyClient

from tests.support import Scripted, Server, hashes, lasting_address, message, named, needs_server, refusal


@needs_server
class Instances(unittest.TestCase):
    def test_each_instance_is_met_once(self) -> None:
        address = lasting_address()
        keys = hashes("a", 4)
        met: list[Instance] = []
        clients = [
            Client(address, on_instance=met.append),
            LookupKeyClient(address, on_instance=met.append),
            Client(address, on_instance=met.append, pool={"name": "p"}),
        ]
        for client in clients:
            self.addCleanup(client.close)
        for _ in range(2):
            with Server(address, POOL='{"hash_block_size": 16}', POOLS='{"p": {"hash_block_size": 16}}'):
                self.assertEqual(len(met), 0)
                for n, client in enumerate(clients, 1):
                    for _ in range(3):
                        client.store(keys)
                        self.assertEqual(len(met), n, "before the first answer is returned, and once")
                self.assertEqual(len(set(met)), 1)
                self.assertRegex(met[0].id, re.compile("^[0-9a-f]{16}$"))
                self.assertEqual(met[0].protocol, 1)
                age = datetime.datetime.now(datetime.timezone.utc) - started(met[0])
                self.assertLess(abs(age.total_seconds()), 300)
                stat = clients[0].stat()
                self.assertEqual((stat["instance"], stat["start_time"]), (met[0].id, met[0].start_time))
                met.clear()

    def test_lookups_that_are_not_waited_for(self) -> None:
        met: list[Instance] = []
        address = lasting_address()
        with LookupKeyClient(address, on_instance=met.append) as client:
            for run in range(1, 3):
                with Server(address):
                    while client.lookup(f"r{run}", 64, hashes("a", 4), non_block=True) is None:
                        pass
                    self.assertEqual(len(met), run)
        self.assertNotEqual(met[0].id, met[1].id)

def started(instance: Instance) -> datetime.datetime:
    return datetime.datetime.fromisoformat(instance.start_time.replace("Z", "+00:00"))


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
                server.pong = named("00ff")
                self.assertEqual(client.lookup(16, []), 16)
        self.assertEqual([each.id for each in met], ["00ff"])


if __name__ == "__main__":
    unittest.main()
