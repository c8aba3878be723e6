"""Lookups by anchors: a few hashes in place of all, and the same hits."""

from __future__ import annotations

import collections
import os
import random
import struct
import unittest
import zlib
from typing import Any
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, LookupResult, TailKeyBoundary, client as module
from tests.support import Scripted, Server, chained, hashes, lasting_address, message, needs_server
from tests.test_client import eventually

# Set where the Go test has installed xxhash.
XXHASH = os.environ.get("HITLINE_TEST_XXHASH", "")

needs_xxhash = unittest.skipUnless(module._digest, "no module xxhash")

REFUSAL = message(b"\0", b"not here")
PARAMS = b"\0\0\0\1" + b"\0\0\0\1"
ASK = [b"anchors", bytes(16), b"\0\x08", b"", b"", b""]


def params(stride: int, unit: int) -> bytes:
    return message(b"\3", struct.pack(">II", stride, unit))


def more(known: int, said: int, end: int) -> bytes:
    return message(b"\2", struct.pack(">III", known, said, end))


def hit(tokens: int) -> bytes:
    return message(b"\1", struct.pack(">I", tokens))


def full(tokens: int) -> bytes:
    return message(struct.pack(">I", tokens))


def u32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}I", *numbers)


def u64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


class Script(Scripted):
    """Gives replies one after the other; None closes the connection."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        super().__init__(lambda _: self.replies.pop(0))

    def tags(self) -> list[str]:
        return ["params" if r[:2] == ASK[:2] else r[0].decode() for r in self.requests]


class Requests(unittest.TestCase):
    """What is sent, against servers that follow a script."""

    def asked(self, chain: list[bytes], *replies: bytes, digest: Any = None, **patches: int) -> list[list[bytes]]:
        """Returns the requests of a lookup of chain, of which the server says it hits
        96 tokens, behind the one for the parameters."""
        with mock.patch.multiple(module, _digest=digest, **patches), Script(*replies, hit(96)) as server:
            with Client(server.address, raise_errors=True, anchors_from=1) as client:
                self.assertEqual(client.lookup(16 * len(chain), chain), 96)
            self.assertEqual(server.requests[0], ASK)
            return server.requests[1:]

    def test_hits_with_tail_boundaries(self) -> None:
        h = chained("bytes", 10, 8)
        want = LookupResult(96, (TailKeyBoundary(0, 112), TailKeyBoundary(1, 96)))
        tails = message(b"\1", u32(96, 0, 112, 1, 96))
        for replies in ([tails], [more(3, 6, 8), tails], [message(b"\0"), message(u32(96, 0, 112, 1, 96))]):
            with self.subTest(replies), Script(params(1, 1), *replies) as server:
                with Client(server.address, raise_errors=True, anchors_from=1) as client:
                    self.assertEqual(client.lookup_result(160, h), want)
            with Script(params(1, 1), *replies) as server:
                with Client(server.address, raise_errors=True, anchors_from=1) as client:
                    self.assertEqual(client.lookup(160, h), 96)

    def test_hits_with_one_tail_boundary_are_not_taken_for_other_replies(self) -> None:
        with Script(params(1, 1), message(b"\1", u32(4, 0, 8))) as server:
            with Client(server.address, raise_errors=True, anchors_from=1) as client:
                self.assertEqual(client.lookup_result(160, chained("one", 10)), (4, ((0, 8),)))

    def test_hits_with_tail_boundaries_that_the_release_does_not_have(self) -> None:
        stat = message(b"\1", b'{"revision":"0.26.0"}')
        with Script(stat, params(1, 1), message(b"\1", u32(96, 0, 96))) as server:
            with LookupKeyClient(server.address, raise_errors=True, anchors_from=1, vllm="0.26.0") as client:
                with self.assertRaisesRegex(hitline.BadReply, "^anchors: .*0.26.0 does not have"):
                    client.lookup("r", 160, chained("bytes", 10))

    def test_bytes_without_digests(self) -> None:
        h = chained("bytes", 10, 8)
        self.assertEqual(
            self.asked(h, params(1, 1), more(3, 6, 8)),
            [
                [b"anchors", u32(160, 10, 1, 0), b"\0\x08", u32(0, 2, 5, 8, 9), b"", h[0] + h[2] + h[5] + h[8] + h[9]],
                [b"anchors", u32(160, 10, 1, 3), b"\0\x08", u32(2), b"", b"".join(h[2:8])],
            ],
        )

    def test_bytes_where_nothing_is_known(self) -> None:
        h = chained("bytes", 10, 8)
        got = self.asked(h, params(1, 1), more(0, 0, 4))
        self.assertEqual(got[1:], [[b"anchors", u32(160, 10, 1, 0), b"\0\x08", b"", b"", b"".join(h[:4])]])

    def test_bytes_with_digests(self) -> None:
        """Digests have been sent at once: what is said and not known is not right."""
        h = chained("bytes", 10, 8)
        got = self.asked(h, params(1, 1), more(3, 6, 8), digest=zlib.crc32, _DIGESTS_UP_TO=80)
        digests = [zlib.crc32(b"".join(h[a:e])) for a, e in ((0, 1), (1, 3), (3, 6), (6, 9), (9, 10))]
        self.assertEqual(got[0][4], u64(*digests))
        self.assertEqual(got[1][1:], [u32(160, 10, 1, 3), b"\0\x08", u32(2), b"", b"".join(h[2:8])])

    def test_bytes_with_digests_that_were_left_for_the_second_request(self) -> None:
        h = chained("bytes", 10, 8)
        got = self.asked(h, params(1, 1), more(3, 6, 8), digest=zlib.crc32, _DIGESTS_UP_TO=79)
        self.assertEqual(got[0][4], b"")
        digest = zlib.crc32(b"".join(h[3:6]))
        want = [u32(160, 10, 1, 6), b"\0\x08", u32(2, 5), u64(0, digest), h[2] + h[5] + h[6] + h[7]]
        self.assertEqual(got[1][1:], want)

    def test_bytes_of_blocks_of_several_hashes(self) -> None:
        h = chained("bytes", 42, 8)
        got = self.asked(h, params(4, 2), more(4, 8, 10), digest=zlib.crc32, _DIGESTS_UP_TO=79)
        want = [u32(672, 42, 4, 0), b"\0\x08", u32(0, 3, 7, 9), b"", h[3] + h[15] + h[31] + h[39]]
        self.assertEqual(got[0][1:], want)
        digest = zlib.crc32(h[19] + h[23] + h[27] + h[31])
        want = [u32(672, 42, 4, 8), b"\0\x08", u32(3, 7), u64(0, digest), h[15] + h[31] + h[35] + h[39]]
        self.assertEqual(got[1][1:], want)

    def test_blocks_of_more_hashes_than_the_prompt_has(self) -> None:
        got = self.asked(chained("bytes", 3, 8), params(4, 1))
        self.assertEqual(got, [[b"anchors", u32(48, 3, 4, 0), b"\0\x08", b"", b"", b""]])

    def test_anchors(self) -> None:
        for blocks, unit, want in (
            (0, 1, []),
            (1, 1, [0]),
            (1, 2, [0]),
            (2, 1, [0, 1]),
            (3, 2, [0, 1]),
            (4, 1, [0, 1, 3]),
            (9, 4, [0, 3, 7]),
            (9, 1, [0, 2, 5, 8]),
            (9, 1 << 31, [0]),
        ):
            with self.subTest(blocks=blocks, unit=unit):
                self.assertEqual(module._spread(blocks, unit), want)
        for blocks, count in ((1024, 33), (4096, 65), (16384, 65), (131072, 65), (2 << 20, 65)):
            self.assertEqual(len(module._spread(blocks, 1)), count)

    def test_from_how_many_hashes_on(self) -> None:
        for anchors_from, count, size, want in (
            (None, 4095, 8, ["lookup"]),
            (None, 4096, 8, ["params", "anchors"]),
            (4, 3, 8, ["lookup"]),
            (4, 4, 8, ["params", "anchors"]),
            (4, 4, 64, ["params", "anchors"]),
            (4, 4, 65, ["lookup"]),
            (1, 0, 8, ["lookup"]),
            (1, 4, 0, ["lookup"]),
            (0, 5000, 8, ["lookup"]),
        ):
            with self.subTest(anchors_from=anchors_from, count=count, size=size):
                options = {} if anchors_from is None else {"anchors_from": anchors_from}
                replies = [full(48)] if want == ["lookup"] else [params(1, 1), hit(48)]
                blocks = [bytes(size)] * count
                with Script(*replies) as server, Client(server.address, raise_errors=True, **options) as client:
                    self.assertEqual(client.lookup(16, blocks), 48)
                    self.assertEqual(server.tags(), want)
        for make in (Client, LookupKeyClient):
            with self.assertRaisesRegex(ValueError, "anchors_from is -1"):
                make("tcp://127.0.0.1:7557", anchors_from=-1)

    def test_the_engines_client_asks_by_anchors_too(self) -> None:
        with Script(params(1, 1), hit(48), hit(64)) as server:
            with LookupKeyClient(server.address, raise_errors=True, anchors_from=2) as client:
                self.assertEqual(client.lookup("r", 64, hashes("a", 4)), 48)
                self.assertEqual(eventually(lambda: client.lookup("r", 64, hashes("a", 4), non_block=True), None), 64)
            self.assertEqual(server.tags(), ["params", "anchors", "anchors"])

    def test_any_sequence(self) -> None:
        for kind in (tuple, collections.deque):
            with Script(params(1, 1), more(0, 0, 4), hit(48)) as server:
                with Client(server.address, raise_errors=True, anchors_from=2) as client:
                    self.assertEqual(client.lookup(64, kind(hashes("a", 4))), 48)
                self.assertEqual(server.requests[2][-1], b"".join(hashes("a", 4)))


class Fallbacks(unittest.TestCase):
    """Lookups with all hashes after all, and replies that are none."""

    def tags(self, lookups: int, *replies: bytes | None, blocks: list[bytes] | None = None) -> list[str]:
        """Returns what so many lookups of a hit of 48 tokens asked."""
        with Script(*replies) as server, Client(server.address, raise_errors=True, anchors_from=2) as client:
            for _ in range(lookups):
                self.assertEqual(client.lookup(64, blocks or hashes("a", 4)), 48)
            self.assertEqual(server.replies, [])
            for request in server.requests:
                if request[0] == b"lookup":
                    self.assertEqual(request[3], b"".join(blocks or hashes("a", 4)))
            return server.tags()

    def test_a_server_that_serves_no_anchors_is_asked_once_a_connection(self) -> None:
        got = self.tags(3, REFUSAL, full(48), full(48), None, full(48))
        self.assertEqual(got, ["params", "lookup", "lookup", "lookup", "lookup"])
        for no in (params(0, 0), REFUSAL):  # a server that does not know the request refuses it
            got = self.tags(4, no, full(48), full(48), None, full(48), params(1, 1), hit(48))
            self.assertEqual(got, ["params", "lookup", "lookup", "lookup", "lookup", "params", "anchors"])

    def test_parameters_are_asked_once_a_connection(self) -> None:
        got = self.tags(4, params(1, 1), hit(48), hit(48), None, hit(48), params(1, 1), hit(48))
        self.assertEqual(got, ["params", "anchors", "anchors", "anchors", "anchors", "params", "anchors"])

    def test_a_refused_question(self) -> None:
        got = self.tags(2, params(1, 1), REFUSAL, full(48), hit(48))
        self.assertEqual(got, ["params", "anchors", "lookup", "anchors"])
        got = self.tags(1, params(1, 1), more(0, 0, 4), REFUSAL, full(48))
        self.assertEqual(got, ["params", "anchors", "anchors", "lookup"])

    def test_undetermined_twice(self) -> None:
        got = self.tags(1, params(1, 1), more(0, 0, 4), more(0, 0, 4), full(48))
        self.assertEqual(got, ["params", "anchors", "anchors", "lookup"])

    def test_hashes_of_several_lengths(self) -> None:
        a = hashes("a", 4)
        for blocks in ([*a[:3], a[3][:-1]], [a[0], a[1] + a[1], *a[2:]], [a[0], a[1] + b"1", a[2], a[3][:-1]]):
            self.assertEqual(self.tags(1, params(1, 1), full(48), blocks=blocks), ["params", "lookup"])

    def test_a_connection_lost_between_two_requests(self) -> None:
        got = self.tags(2, params(1, 1), more(0, 0, 4), None, hit(48), params(1, 1), hit(48))
        self.assertEqual(got, ["params", "anchors", "anchors", "anchors", "params", "anchors"])

    def test_wrong_replies(self) -> None:
        for replies in (
            [params(0, 1)],
            [params(1, 0)],
            [hit(48)],
            [message(b"\3", bytes(12))],
            [message(b"\3")],
            [message(b"\3", PARAMS, b"")],
            [message(b"")],
            [message(b"\4", PARAMS)],
            [full(48)],
            [params(1, 1), full(48)],
            [params(1, 1), params(1, 1)],
            [params(1, 1), message(b"\1", bytes(3))],
            [params(1, 1), message(b"\1", bytes(8))],
            [params(1, 1), message(b"\1", bytes(11))],
            [params(1, 1), message(b"\2", bytes(4))],
            [params(1, 1), message(b"\1", bytes(4), b"")],
            [params(1, 1), more(1, 0, 4)],
            [params(1, 1), more(0, 3, 2)],
            [params(1, 1), more(0, 0, 5)],
            [params(2, 1), more(0, 0, 3)],
            [params(1, 1), more(0, 0, 4), full(48)],
        ):
            with self.subTest(replies):
                with Script(*replies) as server:
                    with Client(server.address, raise_errors=True, anchors_from=2) as client:
                        with self.assertRaisesRegex(hitline.BadReply, "^anchors: "):
                            client.lookup(64, hashes("a", 4))
                with Script(*replies) as server, Client(server.address, anchors_from=2) as client:
                    with self.assertLogs("hitline", "WARNING"):
                        self.assertEqual(client.lookup(64, hashes("a", 4)), 0)

    def test_all_exchanges_of_a_lookup_have_one_deadline(self) -> None:
        with Script(params(1, 1), more(0, 0, 4), more(0, 0, 4), full(48)) as server:
            with Client(server.address, raise_errors=True, anchors_from=2) as client:
                with mock.patch.object(client, "_exchange_locked", wraps=client._exchange_locked) as exchange:
                    client.lookup(64, hashes("a", 4))
                deadlines = [call.args[1] for call in exchange.call_args_list]
                self.assertEqual((len(deadlines), len(set(deadlines))), (4, 1))


class Asker(Client):
    """Asks by anchors, and by all hashes whether that is right."""

    def __init__(self, server: Server, test: unittest.TestCase) -> None:
        super().__init__(server.address, raise_errors=True, anchors_from=1)
        self.test = test
        self.whole = Client(server.address, raise_errors=True, anchors_from=0)
        self.took: collections.Counter[int] = collections.Counter()
        self.sent = 0

    def _exchange_locked(self, frames: tuple[bytes, ...], deadline: float) -> list[bytes]:
        if frames[0] == b"lookup":
            self.sent = 0
        elif frames[0] == b"anchors" and frames[1] != bytes(16):
            self.sent += 1
        return super()._exchange_locked(frames, deadline)

    def both(self, tokens: int, blocks: list[bytes]) -> tuple[int, int]:
        """Returns the hit, and in how many exchanges by anchors it came: 0 by all
        hashes."""
        self.sent = 0
        got = self.lookup(tokens, blocks)
        self.took[self.sent] += 1
        self.test.assertEqual(got, self.whole.lookup(tokens, blocks))
        return got, self.sent

    def keep(self, chain: list[bytes], start: int, end: int, step: int = 1, **place: int) -> None:
        """Stores chunks start to end-1 of a chain, chunks of step hashes."""
        keys = chain[step - 1 :: step]
        if start < min(end, len(keys)):
            self.store(keys[start:end], first_chunk=start, key_before=keys[start - 1] if start else None, **place)

    def close(self) -> None:
        super().close()
        self.whole.close()


class Digests(unittest.TestCase):
    @unittest.skipUnless(XXHASH, "HITLINE_TEST_XXHASH does not say that there is xxhash")
    def test_xxhash_is_found(self) -> None:
        self.assertIsNotNone(module._digest)

    @needs_xxhash
    def test_digest_is_that_of_the_specification(self) -> None:
        self.assertEqual(module._digest(b""), 0x2D06800538D394C2)


class Real(unittest.TestCase):
    """Tests against the real server, without digests; with them in a subclass."""

    digests = False

    def setUp(self) -> None:
        if not self.digests:
            without = mock.patch.object(module, "_digest", None)
            without.start()
            self.addCleanup(without.stop)


@needs_server
class Answers(Real):
    def test_hits(self) -> None:
        chain = chained("chain", 5000)
        with Server() as server, Asker(server, self) as client:
            for start in range(0, 5000, 1000):
                client.keep(chain, start, start + 1000)
            # A chain that was only stored takes its digests, or its hashes.
            self.assertEqual(client.both(80_000, chain), (80_000, 1 if self.digests else 2))
            self.assertEqual(client.both(80_000, chain), (80_000, 1))
            self.assertEqual(client.both(48_000, chain), (48_000, 2))
            self.assertEqual(client.both(48_000, chain[:3000]), (48_000, 1))

            self.assertEqual(client.both(80_000, chained("first miss", 5000)), (0, 1))
            self.assertEqual(client.both(80_000, chained("grown", 1000, behind=chain)), (80_000, 2))
            fork = chained("fork", 2000, behind=chain[:3000])
            self.assertEqual(client.both(80_000, fork), (48_000, 2))
            client.keep(fork, 3000, 4000)
            self.assertEqual(client.both(80_000, fork)[0], 64_000)
            self.assertEqual(client.both(80_000, chain), (80_000, 1))

            client.evict(chain[1234:1235])
            self.assertEqual(client.both(80_000, chain)[0], 1234 * 16)
            self.assertEqual(client.both(80_000, fork)[0], 1234 * 16)
            client.evict(chain[:1])
            self.assertEqual(client.both(80_000, chain)[0], 0)
            client.keep(chain, 0, 5000)
            self.assertEqual(client.both(80_000, chain)[0], 80_000)
            client.reset()
            self.assertEqual(client.both(80_000, chain), (0, 1))

    def test_digests_that_were_left_for_the_second_request(self) -> None:
        chain = chained("long", 3000)
        with Server() as server, Asker(server, self) as client, mock.patch.object(module, "_DIGESTS_UP_TO", 0):
            client.keep(chain, 0, 2500)
            with mock.patch.object(client, "_send", wraps=client._send) as send:
                self.assertEqual(client.both(48_000, chain), (40_000, 2))
            sent = len(send.call_args_list[-1].args[0][5])
            if self.digests:
                self.assertLess(sent, 32 * 600)
            else:
                self.assertGreater(sent, 32 * 2500)

    def test_stored_without_numbers(self) -> None:
        chain = chained("without numbers", 3000)
        with Server() as server, Asker(server, self) as client:
            client.store(chain[:2000])
            self.assertEqual(client.both(48_000, chain)[0], 32_000)
            self.assertEqual(client.both(48_000, chain)[0], 32_000)

    def test_another_server_with_other_blocks_takes_the_place(self) -> None:
        chain = chained("other server", 4000)
        server = Server(lasting_address())
        try:
            with Asker(server, self) as client:
                client.keep(chain, 0, 3000)
                self.assertEqual(client.both(64_000, chain)[0], 48_000)
                server.kill()
                server = Server(server.address, POOL_GROUPS="[{kind: full_attention, block_size: 64}]")
                client.keep(chain, 0, 500, step=4)
                self.assertEqual(client.both(64_000, chain)[0], 32_000)
                self.assertEqual(client.both(32_000, chain[:2000]), (32_000, 1))
                self.assertEqual(client._anchoring, (4, 1))
        finally:
            server.stop()

    def test_a_server_without_full_attention_serves_no_anchors(self) -> None:
        window = "[{kind: sliding_window, block_size: 16, sliding_window: 64}]"
        with Server(POOL_GROUPS=window) as server, Asker(server, self) as client:
            chain = chained("window", 400)
            client.store(chain)
            self.assertEqual(client.both(6400, chain), (6400, 0))
            self.assertEqual(client._anchoring, (0, 0))

    def test_refusals_are_those_of_a_lookup(self) -> None:
        with Server() as server, Asker(server, self) as client:
            with self.assertRaisesRegex(hitline.Refused, "(?i)multiple"):
                client.lookup(17, chained("refused", 10))


@needs_xxhash
class AnswersWithDigests(Answers):
    digests = True


FULL, WINDOW = "kind: full_attention", "kind: sliding_window"

# By name: the groups of a pool, the hashes of each one's chunks, and other settings.
POOLS: dict[str, tuple[str, list[int], dict[str, str]]] = {
    "one group": (f"[{{{FULL}, block_size: 16}}]", [1], {}),
    "few entries": (f"[{{{FULL}, block_size: 16}}]", [1], {"BACKEND_MEMORY_MAX_ENTRIES": "150"}),
    "blocks of 4 hashes": (f"[{{{FULL}, block_size: 64}}]", [4], {}),
    "with a window": (f"[{{{FULL}, block_size: 16}}, {{{WINDOW}, block_size: 32, sliding_window: 64}}]", [1, 2], {}),
}


@needs_server
class History(Real):
    """Random stores, evictions and resets: every hit is that of all hashes."""

    def test_random(self) -> None:
        took: collections.Counter[int] = collections.Counter()
        for seed, (name, (groups, steps, settings)) in enumerate(POOLS.items()):
            with self.subTest(name), Server(POOL_GROUPS=groups, **settings) as server:
                with Asker(server, self) as client:
                    self.history(client, random.Random(seed), steps)
                    took += client.took
        self.assertGreater(min(took[1], took[2]), 50, took)

    def history(self, client: Asker, choose: random.Random, steps: list[int]) -> None:
        chains: list[list[bytes]] = [[]]
        for i in range(8):
            behind = choose.choice(chains)
            chains.append(chained(f"{i}", choose.randint(1, 160), 16, behind[: choose.randint(0, len(behind))]))
        for _ in range(400):
            self.step(client, choose, steps, choose.choice(chains[1:]), choose.choice(chains[1:]))

    def step(
        self, client: Asker, choose: random.Random, steps: list[int], chain: list[bytes], other: list[bytes]
    ) -> None:
        group = choose.randrange(len(steps))
        step = steps[group]
        keys = chain[step - 1 :: step]
        start, end = choose.randint(0, len(keys)), choose.randint(1, len(keys) + 1)
        what = choose.randrange(40)
        if what == 0:
            client.reset()
        elif what < 5 and start < len(keys):
            client.evict(keys[start : start + 3], group=group)
        elif what < 8 and start < end <= len(keys):  # a store that is told wrongly where it stands
            before = choose.choice((None, other[0], keys[start - 1]))
            client.store(keys[start:end], group=group, first_chunk=choose.choice((None, start, 5)), key_before=before)
        elif what < 16:  # as engines do, all groups
            share = choose.random()
            for i, step in enumerate(steps):
                client.keep(chain, 0, int(share * len(chain)) // step, step, group=i)
        elif what < 20 and start < end:
            client.keep(chain, start, end, step, group=group)
        else:
            count = choose.randint(1, len(chain))
            tokens = choose.choice((count, choose.randint(0, count))) * 16 // 64 * 64
            with mock.patch.object(module, "_DIGESTS_UP_TO", choose.choice((0, 1 << 20))):
                client.both(tokens, chain[:count])


@needs_xxhash
class HistoryWithDigests(History):
    digests = True


if __name__ == "__main__":
    unittest.main()
