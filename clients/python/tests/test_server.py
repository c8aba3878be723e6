"""Both clients against the real server: right answers, lost servers, cut connections."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import unittest
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, errors
from tests.support import PATIENCE, Server, hashes, needs_server, resume
from tests.test_client import eventually

LISTEN = "tcp://127.0.0.1:0"


@needs_server
class Answers(unittest.TestCase):
    def test_all_requests(self) -> None:
        server = Server(LISTEN)
        self.addCleanup(server.stop)
        address = server.address
        keys = hashes(address, 4)
        with Client(address, raise_errors=True) as client:
            client.ping()
            client.ping(bytes(range(256)) * 256)
            client.store(keys[:2])
            client.store(keys[2:3])
            self.assertEqual(client.lookup(64, keys), 48)
            self.assertEqual(client.lookup(32, keys), 32)
            self.assertEqual(client.lookup(64, []), 0)
            client.evict(keys[1:2])
            self.assertEqual(client.lookup(64, keys), 16)
            with self.assertRaisesRegex(hitline.BadRequest, "(?i)multiple"):
                client.lookup(17, keys)
            with self.assertRaisesRegex(hitline.BadRequest, "group"):
                client.store(keys, group=9)
            self.assertEqual(client.stat()["entries"], 2)
            self.assertIs(client.reset(), True)
            self.assertEqual(client.lookup(64, keys), 0)
            counters = client.stat()
            self.assertEqual(counters["entries"], 0)
            self.assertEqual((counters["stored"], counters["evicted"]), (3, 1))
            self.assertEqual(client.store_prompt(64, keys, prompt_tokens=64), [4])
            plan = client.plan(64, keys[1:], start_token=16)
            self.assertEqual((plan.hit_length, [list(mask.chunks()) for mask in plan.masks]), (64, [[1, 2, 3]]))
            self.assertEqual([len(client.load_mask(64, 4)), len(client.store_mask(64)), len(client.lookup_mask(64))], [1] * 3)
            self.assertEqual(client.lookup(64, keys[2:], start_token=32), 64)

            many = hashes(address + "many", 50_000)
            for at in range(0, len(many), 10_000):
                client.store(many[at : at + 10_000])
            self.assertEqual(client.lookup(16 * len(many), many), 16 * len(many))
        with LookupKeyClient(address) as engine:
            self.assertEqual(engine.lookup("r", 16 * len(many), many), 16 * len(many))
            self.assertEqual(
                eventually(lambda: engine.lookup("r", 16 * len(many), many, non_block=True), None), 16 * len(many)
            )
            self.assertIs(engine.reset(), True)
            self.assertEqual(engine.lookup("r", 64, many), 0)

    def test_many_threads_on_one_client(self) -> None:
        """No answer reaches another thread's lookup."""
        with Server(LISTEN) as server, Client(server.address, timeout=PATIENCE, raise_errors=True) as client:
            with LookupKeyClient(server.address, timeout=PATIENCE, raise_errors=True) as engine:
                wrong: list[object] = []

                def ask(n: int) -> None:
                    try:
                        keys = hashes(f"thread {n}", n)
                        client.store(keys)
                        for _ in range(50):
                            hits = (
                                client.lookup(16 * n, keys),
                                engine.lookup(f"{n}", 16 * n, keys),
                                eventually(lambda: engine.lookup(f"{n}", 16 * n, keys, non_block=True), None),
                            )
                            if hits != (16 * n,) * 3:
                                wrong.append(hits)
                    except Exception as error:
                        wrong.append(error)

                threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 9)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(3 * PATIENCE)
                    self.assertFalse(thread.is_alive())
                self.assertEqual(wrong, [])


@needs_server
class Losses(unittest.TestCase):
    def setUp(self) -> None:
        quiet = mock.patch.object(errors.logger, "disabled", True)
        quiet.start()
        self.addCleanup(quiet.stop)

    def test_connections_cut_at_random_bytes(self) -> None:
        """Whatever is cut where, a hit is right or 0, and then all goes on."""
        choose = random.Random(7)
        keys = hashes("cut", 300)
        with Server(LISTEN) as server, Client(server.address) as direct:
            direct.store(keys)
            size = len(b"lookup") + 2 + 6 + 4 + 9 + 300 * 32
            with Cutter(server.address) as cutter, LookupKeyClient(cutter.address, timeout=PATIENCE) as client:
                hits = set()
                for i in range(200):
                    up = choose.choice((choose.randrange(3 * size), choose.randrange(40)))
                    cutter.limits = [up, choose.randrange(24)]
                    if i % 2:
                        hits.add(client.lookup("r", 4800, keys))
                    else:
                        hits.add(eventually(lambda: client.lookup("r", 4800, keys, non_block=True), None))
                    resume(client)
                self.assertEqual(hits, {0, 4800})
                cutter.limits = [1 << 60, 1 << 60]
                self.assertEqual(eventually(lambda: client.lookup("r", 4800, keys)), 4800)
                self.assertEqual(client._pending, {})
            self.assertEqual(direct.lookup(4800, keys), 4800)


class Cutter:
    """Passes bytes on to a server, until so many went up or down, and then cuts."""

    def __init__(self, address: str) -> None:
        host, port = address[len("tcp://") :].rsplit(":", 1)
        self.target = host, int(port)
        self.limits = [0, 0]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept)]

    def __enter__(self) -> Cutter:
        self.threads[0].start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                below, _ = self.listener.accept()
                above = socket.create_connection(self.target)
                left = list(self.limits)
                ends = [
                    threading.Thread(target=self.copy, args=(below, above, left, 0)),
                    threading.Thread(target=self.copy, args=(above, below, left, 1)),
                ]
                for thread in ends:
                    thread.start()
                for thread in ends:
                    thread.join(PATIENCE)
                below.close()
                above.close()

    def copy(self, source: socket.socket, sink: socket.socket, left: list[int], way: int) -> None:
        with contextlib.suppress(OSError):
            while left[way] > 0:
                data = source.recv(min(left[way], 1 << 16))
                if not data:
                    break
                sink.sendall(data)
                left[way] -= len(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    unittest.main()
