"""Lists of servers: which is used, what follows when it fails, and who goes back to it."""

from __future__ import annotations

import collections
import contextlib
import os
import socket
import unittest
from typing import Any
from unittest import mock

from hitline import Client, ConnectionFailed, LookupKeyClient, NoPool, PoolDiffers, RequestTimeout, vllm_plugin
from hitline.connection import Connection
from hitline.retry import BACK_AFTER
from tests.support import PATIENCE, Scripted, message, no_thread_left, pool_reply, refusal
from tests.test_client import eventually
from tests.test_outage import HIT, Clock


class Lists(unittest.TestCase):
    def setUp(self) -> None:
        self.backend = "redis"
        self.refusing: set[int] = set()
        self.asked: collections.Counter[tuple[int, bytes]] = collections.Counter()
        self.servers = [self.server(i) for i in range(3)]
        self.away: set[str] = set()
        self.dials: list[int] = []
        real = Connection._open

        def open_one(connection: Connection, *arguments: Any) -> None:
            address = connection.endpoint.address
            self.dials.append([server.address for server in self.servers].index(address))
            if address in self.away:
                raise ConnectionRefusedError(111, "refused")
            real(connection, *arguments)

        patch = mock.patch.object(Connection, "_open", open_one)
        patch.start()
        self.addCleanup(patch.stop)

    def server(self, i: int) -> Scripted:
        def answer(frames: list[bytes]) -> bytes:
            self.asked[i, frames[0]] += 1
            if frames[0] == b"pool":
                return refusal("no_pool") if i in self.refusing else pool_reply("0.24.0", self.backend)
            return HIT if frames[0] == b"lookup" else message(b"\1", b"")

        server = Scripted(answer)
        self.addCleanup(server.__exit__, None, None, None)
        return server

    def client(self, count: int = 3, **named: Any) -> LookupKeyClient:
        """A client that begins with the first server."""
        addresses = ", ".join(server.address for server in self.servers[:count])
        client = LookupKeyClient(addresses, timeout=PATIENCE, raise_errors=True, pool={"name": ""}, **named)
        self.addCleanup(client.close)
        self.clock = Clock(client)
        return client

    def stop(self, i: int) -> None:
        self.away.add(self.servers[i].address)
        for conn in self.servers[i]._conns:
            with contextlib.suppress(OSError):  # it has ended
                conn.shutdown(socket.SHUT_RDWR)

    def start(self, i: int) -> None:
        self.away.remove(self.servers[i].address)

    def lookups(self, client: LookupKeyClient, count: int = 20) -> list[int]:
        """Makes lookups that are all answered, and returns how many each server was asked."""
        before = self.asked.copy()
        for i in range(count):
            if i % 2:
                self.assertEqual(client.lookup("r", 64, []), 48)
            else:
                self.assertEqual(eventually(lambda: client.lookup("r", 64, [], non_block=True), None), 48)
        return [self.asked[i, b"lookup"] - before[i, b"lookup"] for i in range(3)]

    def dialled(self, client: LookupKeyClient) -> None:
        """Waits for the end of what is dialled in a thread."""
        eventually(lambda: client._retry._spare is None or client._retry._spare[1].is_done, False)

    def test_it_goes_on_and_back(self) -> None:
        client = self.client()
        self.assertEqual(self.lookups(client), [20, 0, 0])
        self.stop(0)
        self.assertEqual(self.lookups(client), [0, 20, 0])
        self.assertEqual(client.address, self.servers[1].address)
        self.assertEqual(self.clock.spent, 0.0, "at once")
        self.start(0)
        self.clock.now += BACK_AFTER - 0.001
        self.assertEqual(self.lookups(client), [0, 20, 0])
        self.clock.now += 0.001
        self.lookups(client, 1)  # the first is dialled meanwhile
        self.dialled(client)
        self.assertEqual(self.lookups(client), [20, 0, 0])
        self.assertEqual([self.asked[i, b"pool"] for i in range(3)], [2, 1, 0], "each is told the pool anew")

    def test_the_first_stays_away(self) -> None:
        client = self.client()
        self.lookups(client)
        self.stop(0)
        self.lookups(client)
        self.dials.clear()
        for _ in range(5):
            self.clock.now += BACK_AFTER
            self.assertEqual(self.lookups(client)[1], 20)
            self.dialled(client)
            self.assertEqual(self.lookups(client)[1], 20)
        self.assertEqual(self.dials, [0] * 5)

    def test_all_are_away(self) -> None:
        client = self.client()
        for i in range(3):
            self.stop(i)
        with self.assertRaisesRegex(ConnectionFailed, "^cannot connect"):
            client.lookup("r", 64, [])
        self.assertEqual(self.dials, [0, 1, 2])
        self.start(2)
        self.assertIs(client._retry.ping_once(), True)
        client._retry.probe._end()
        self.assertEqual(self.lookups(client), [0, 0, 20])

    def test_one_that_hangs_is_left(self) -> None:
        client = self.client()
        self.lookups(client)
        self.servers[0].answer = lambda _: Scripted.SILENCE
        client._timeout = 0.05
        with self.assertRaises(RequestTimeout):
            client.lookup("r", 64, [])
        client._timeout = PATIENCE
        self.assertIs(client._retry.ping_once(), True)
        client._retry.probe._end()
        self.assertEqual(self.lookups(client), [0, 20, 0])

    def test_one_that_refuses_the_pool(self) -> None:
        self.refusing = {0}
        client = self.client()
        with self.assertRaises(NoPool):
            client.lookup("r", 64, [])  # at the start
        client.close()
        self.refusing = set()
        client = self.client()
        self.lookups(client)
        self.refusing = {0}
        self.servers[0]._conns[-1].shutdown(socket.SHUT_RDWR)
        self.assertEqual(self.lookups(client), [0, 20, 0])
        self.refusing = {0, 1, 2}
        self.servers[1]._conns[-1].shutdown(socket.SHUT_RDWR)
        self.dials.clear()
        for _ in range(10):
            with self.assertRaises(NoPool):
                client.lookup("r", 64, [])
        self.assertEqual(self.dials, [1, 2, 0], "once")

    def test_blocks_in_memory(self) -> None:
        self.backend = "memory"
        client = self.client(2)
        with self.assertRaisesRegex(PoolDiffers, "^its blocks are in its memory, so each server of the list has others; give one address$"):
            client.check_pool()
        client.close()
        self.assertEqual(self.client(1).check_pool()["backend"], "memory")

    def test_each_has_an_instance(self) -> None:
        instances: list[str] = []
        self.servers[1].pong = message(b"\1", b'{"instance":"b","protocol":1}')
        client = self.client(2, on_instance=lambda instance: instances.append(instance.id))
        self.lookups(client)
        self.stop(0)
        self.lookups(client)
        self.start(0)
        self.stop(1)
        self.lookups(client)
        self.assertEqual(instances, ["00" * 8, "b"], "none was restarted")

    def test_close(self) -> None:
        with no_thread_left(self):
            client = self.client()
            self.lookups(client)
            self.stop(0)
            self.lookups(client)
            self.clock.now += BACK_AFTER
            self.lookups(client)
            client.close()


class Choice(unittest.TestCase):
    def first(self, addresses: str = "tcp://a:1,tcp://b:1,ipc:///c", **pool: Any) -> int:
        with Client(addresses, pool=pool or None) as client:
            return client._retry._first

    def test_pools_are_spread(self) -> None:
        self.assertEqual(self.first(), 0)
        self.assertEqual(self.first(name="", client={"process": "x"}), 0)
        found = collections.Counter(self.first(name=f"pool-{i}") for i in range(300))
        self.assertTrue(all(70 <= count <= 130 for count in found.values()) and len(found) == 3, found)
        # As the Go client: lookup/client/list_test.go has these, too.
        self.assertEqual([self.first(name=name) for name in ("tiny", "pool-3", "pool-6")], [1, 0, 2])

    def test_engines_of_a_pool_stay_together(self) -> None:
        described = {"model_name": "m", "groups": [{"kind": "full_attention"}]}
        for i in range(10):
            self.assertEqual(self.first(**described, client={"process": str(i)}, name=""), self.first(**described))
            self.assertEqual(self.first(**described, name="tiny", client={"process": str(i)}), 1)

    def test_addresses(self) -> None:
        for addresses in ("tcp://a:1,", ",tcp://a:1", "tcp://a:1,auto", "tcp://a:1,b"):
            with self.assertRaises(ValueError):
                Client(addresses)
        with mock.patch.dict(os.environ, HITLINE_ADDRESS="tcp://a:1,auto"):
            with self.assertRaisesRegex(ValueError, "auto is no address of a list"):
                vllm_plugin.register()


if __name__ == "__main__":
    unittest.main()
