import io
import json
import unittest

from lookup_client import HASH_LEN, Client, ask, read_chains, serve
from lookup_server import BareStore, answer


def chains(n, hashes):
    return [[bytes([i, j]) * (HASH_LEN // 2) for j in range(hashes)] for i in range(n)]


class Socket:
    """A REQ socket over a store."""

    def __init__(self, store):
        self.store = store
        self.reply = None

    def send_multipart(self, frames, copy):
        assert not copy, "an engine sends without a copy"
        self.reply = answer(self.store, list(frames))

    def recv(self):
        return self.reply


class Clients(unittest.TestCase):
    def setUp(self):
        self.chains = chains(3, 4)
        self.store = BareStore(block_size=16)
        for hashes in self.chains:
            self.store.store(hashes)
        self.client = Client([list(c) for c in self.chains], 64, lambda _: Socket(self.store))

    def do(self, *commands):
        out = io.StringIO()
        serve(self.client, [json.dumps(c).encode() for c in commands], out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def test_batch(self):
        absent = (b"x" * HASH_LEN).hex()
        first, second, batch = self.do(
            {"connect": "a"},
            {"connect": "b"},
            {"socket": 1, "chains": [2, 0, 1], "blocks": [4, 1, 0], "absent": ["", absent, absent]},
        )
        self.assertEqual((first, second), ({"socket": 0}, {"socket": 1}))
        self.assertEqual(batch["hits"], [64, 16, 0])
        self.assertEqual(len(batch["ns"]), 3)
        self.assertTrue(all(ns > 0 for ns in batch["ns"]))

    def test_times(self):
        self.assertEqual(ask(Socket(self.store), 64, self.chains[0], iter([1000, 1700]).__next__), (64, 700))

    def test_errors(self):
        replies = self.do(
            {"socket": 0, "chains": [0], "blocks": [4], "absent": [""]}, {"connect": "a"}, {"socket": 0, "chains": [9], "blocks": [4], "absent": [""]}
        )
        self.assertEqual(replies[0], {"error": "IndexError: list index out of range", "bad": False})
        self.assertIn("error", replies[2])
        self.client.sockets[0].recv = lambda: b"\x00"
        self.assertEqual(self.do({"socket": 0, "chains": [0], "blocks": [4], "absent": [""]}), [{"error": "00", "bad": True}])

    def test_chains(self):
        blob = b"".join(b"".join(c) for c in self.chains)
        self.assertEqual(read_chains(io.BytesIO(blob + b"{}\n"), 3, 4), self.chains)
        with self.assertRaises(EOFError):
            read_chains(io.BytesIO(blob[:-1]), 3, 4)


if __name__ == "__main__":
    unittest.main()
