import hashlib
import unittest

from lookup_server import BareStore, KeyedStore, answer, leading, slice_hashes


def chain(n):
    return [hashlib.sha256(str(i).encode()).digest() for i in range(n)]


def lookup(tokens, hashes):
    return [b"lookup", tokens.to_bytes(4, "big"), (32).to_bytes(2, "big"), b"".join(hashes)]


def store(hashes):
    return [b"store", bytes(6), (32).to_bytes(2, "big"), b"".join(hashes)]


def hit(of, tokens, hashes):
    reply = answer(of, lookup(tokens, hashes))
    assert len(reply) == 4, reply
    return int.from_bytes(reply, "big")


class Frames(unittest.TestCase):
    def test_slices(self):
        self.assertEqual(slice_hashes(b"aabbc", 2), [b"aa", b"bb"])
        self.assertEqual(slice_hashes(b"aabb", 2), [b"aa", b"bb"])
        self.assertEqual(slice_hashes(b"a", 2), [])
        self.assertEqual(slice_hashes(b"aabb", 0), [])

    def test_leading(self):
        self.assertEqual(leading([b"a", b"b", b"c"], {b"a", b"c"}), 1)
        self.assertEqual(leading([], {b"a"}), 0)

    def test_refusals(self):
        for frames in [], [b"lookup"], [b"LOOKUP", b"", b"", b""], lookup(16, chain(1))[:3]:
            self.assertEqual(answer(KeyedStore(), frames), b"\x00")


class Stores(unittest.TestCase):
    def test_hits(self):
        hashes = chain(10)
        for make in KeyedStore, BareStore:
            with self.subTest(make.__name__):
                held = make(block_size=16)
                self.assertEqual(hit(held, 160, hashes), 0)
                self.assertEqual(answer(held, store(hashes[:6])), b"\x01")
                answer(held, store(hashes[7:]))
                self.assertEqual(hit(held, 160, hashes), 96)
                self.assertEqual(hit(held, 32, hashes), 32, "no more than was asked for")
                self.assertEqual(hit(held, 96, hashes[:3]), 48, "no more than there are hashes")
                self.assertEqual(hit(held, 0, hashes), 0)
                self.assertEqual(hit(held, 160, []), 0)
                self.assertEqual(hit(held, 160, hashes[9:] + hashes[:2]), 48)
                answer(held, store(hashes[6:7]))
                self.assertEqual(hit(held, 160, hashes), 160)

    def test_keys(self):
        """The keys are those of vLLM's store."""
        held = KeyedStore(model="m")
        held.store([b"a"])
        self.assertEqual(held.held, {"m@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0@61"})

    def test_every_rank_of_every_group_must_have_a_block(self):
        hashes = chain(3)
        for missing in (0, 1, 0), (0, 0, 1), (1, 1, 1):
            with self.subTest(missing):
                held = KeyedStore(block_size=1, tp_size=2, pp_size=2, groups=2)
                held.store(hashes)
                self.assertEqual(len(held.held), 3 * 2 * 2 * 2)
                self.assertEqual(hit(held, 3, hashes), 3)
                group, tp_rank, pp_rank = missing
                held.held.remove(held.key(group, hashes[1], tp_rank, pp_rank))
                self.assertEqual(hit(held, 3, hashes), 1)


if __name__ == "__main__":
    unittest.main()
