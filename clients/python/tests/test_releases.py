"""The client in the forms of vLLM's releases."""

from __future__ import annotations

import json
import os
import queue
import unittest
from collections.abc import Callable, Collection
from typing import Any
from unittest import mock

import hitline
from hitline import VLLM_RELEASES, Client, LookupKeyClient, LookupResult, TailKeyBoundary, client as module, errors
from hitline.client import is_since
from tests.support import (
    NEWEST,
    PATIENCE,
    RELEASES,
    UNKNOWN,
    Scripted,
    frame,
    hashes,
    message,
    pool_reply,
    refusal,
    stat_reply,
)
from tests.test_client import eventually

OLD = ("0.24.0", "0.25.0", "0.25.1", "0.26.0", "0.27.0", "0.27.1", "0.28.0")
NEW = tuple(release for release in VLLM_RELEASES if is_since(release, "0.29.0"))

# Releases without vectors, and those whose modules they have, but for the version.
SAME_MODULES = {"0.25.0": "0.25.1", "0.27.0": "0.27.1"}


def recorded_as(release: str, recorded: Collection[str]) -> str:
    """The recorded release whose answers a release has: one after all of them those of the last."""
    if release not in recorded and release not in SAME_MODULES:
        return max(recorded, key=VLLM_RELEASES.index)
    return release if release in recorded else SAME_MODULES[release]


TAILS = bytes.fromhex("00000028 00000000 00000030 00000001 00000028")
RESULT = LookupResult(40, (TailKeyBoundary(0, 48), TailKeyBoundary(1, 40)))


class Peer(Scripted):
    """Replies to stat at once, and to each other request when it is told."""

    def __init__(self, vllm: str) -> None:
        self.waiting: queue.Queue[list[bytes]] = queue.Queue()
        self.replies: queue.Queue[bytes | None] = queue.Queue()
        self.vllm = vllm
        super().__init__(self.reply)

    def reply(self, frames: list[bytes]) -> bytes | None:
        if frames == [b"stat"]:
            return stat_reply(self.vllm)
        self.waiting.put(frames)
        return self.replies.get(timeout=PATIENCE)

    def __exit__(self, *exc: object) -> None:
        self.replies.put(None)
        super().__exit__(*exc)


@unittest.skipUnless(RELEASES, "HITLINE_TEST_RELEASES names no folder of vectors")
class Wire(unittest.TestCase):
    """What the clients of the releases sent, byte for byte, and returned. They take any number as
    a hit; ours takes one that the prompt can have. They return 0 for numbers that cannot be sent,
    for which ours raises."""

    def setUp(self) -> None:
        disabled = mock.patch.object(errors.logger, "disabled", True)
        disabled.start()
        self.addCleanup(disabled.stop)

    def test_client_cases(self) -> None:
        for release, vectors in each_release():
            for case in vectors["client_cases"]:
                with self.subTest(case["id"], release=release):
                    self.follow(case, release)
            print(f"wire vectors: {release}: {len(vectors['client_cases'])} client cases", flush=True)

    def follow(self, case: dict, release: str) -> None:
        self.reply = b""  # the last
        self.asked: dict[str, int] = {}  # tokens of the lookups that have no result
        every = hashes(case["id"], case["num_hashes"], case["hash_len"])
        with Peer(release) as peer:
            with LookupKeyClient(peer.address, timeout=PATIENCE, vllm=release) as client:
                self.addCleanup(client.close)
                for step in case["steps"]:
                    if "reply" in step and not step.get("nothing_sent"):
                        self.reply = bytes.fromhex(step["reply"])
                        peer.replies.put(frame(self.reply))
                    self.step(client, peer, step, every)
                    if step.get("nothing_sent"):
                        self.assertTrue(peer.waiting.empty())
                    elif "frames" in step:
                        sent = peer.waiting.get(timeout=PATIENCE)
                        self.assertEqual([f.hex() for f in sent], step["frames"])
                peer.replies.put(None)

    def step(self, client: LookupKeyClient, peer: Peer, step: dict, every: list[bytes]) -> None:
        if step["do"] == "lookup":
            blocks = every[: step.get("hashes", len(every))]

            def lookup() -> Any:
                return client.lookup(step["req_id"], step["num_tokens"], blocks, non_block=step.get("non_block", False))

            if not 0 <= step["num_tokens"] < 1 << 32:
                self.assertRaises(ValueError, lookup)
                return
            got = lookup() if step["returns"] is None else eventually(lookup, None)
            asked = self.asked.setdefault(step["req_id"], step["num_tokens"])
            want = self.checked(result(step["returns"]), asked)
            self.assertEqual(got, want)
            self.assertIs(type(got), type(want))
            if got is not None:
                del self.asked[step["req_id"]]
            if got is None:  # the worker has it, or an older one
                eventually(lambda: not peer.waiting.empty(), False)
        elif step["do"] == "discard":
            client.discard(step["req_id"])
            self.asked.pop(step["req_id"], None)
        elif step["do"] == "reset":
            self.assertIs(client.reset(), step["returns"])
        elif step["do"] == "pending":
            self.assertEqual(list(client._pending), step["returns"])
        else:
            self.assertEqual(step["do"], "peer")

    def checked(self, want: Any, tokens: int) -> Any:
        """What our client makes of a result of the release's client."""
        if isinstance(want, int):
            return want if len(self.reply) == 4 and want <= tokens else 0
        if want is None or want[0] <= tokens and all(b[0] == g and b[1] >= want[0] for g, b in enumerate(want[1])):
            return want if want is None or want[1] else LookupResult(0)
        return LookupResult(0)

    def test_decode_cases(self) -> None:
        for release, vectors in each_release():
            cases = vectors.get("decode_cases", [])
            self.assertEqual(len(cases) > 50, release in NEW)
            for case in cases:
                with self.subTest(case["id"], release=release):
                    reply, expect = bytes.fromhex(case["reply"]), case["expect"]
                    if "result" in expect:
                        self.assertEqual(module._decode_hit(reply, release), result(expect["result"]))
                        continue
                    with self.assertRaises(hitline.BadReply):
                        module._decode_hit(reply, release)
            if cases:
                print(f"wire vectors: {release}: {len(cases)} decode cases", flush=True)


def each_release() -> list[tuple[str, dict]]:
    """All releases, with the vectors of a release with equal answers."""
    recorded = {}
    for name in sorted(os.listdir(RELEASES)):
        with open(os.path.join(RELEASES, name), encoding="ascii") as f:
            vectors = json.load(f)
        recorded.update(dict.fromkeys(vectors["reference"]["releases"], vectors))
    return [(release, recorded[recorded_as(release, recorded)]) for release in VLLM_RELEASES]


def result(expected: Any) -> Any:
    """What the client is to return for what a vector has."""
    if not isinstance(expected, dict):
        return expected
    boundaries = tuple(TailKeyBoundary(*b) for b in expected["tail_key_boundaries"])
    return LookupResult(expected["hit_length"], boundaries)


class Forms(unittest.TestCase):
    def test_releases(self) -> None:
        self.assertEqual(VLLM_RELEASES, OLD + NEW)
        self.assertEqual(module._WITHOUT_BOUNDARIES, OLD)
        for release in ("0.23.0", "0.25.2", UNKNOWN, "", "0.33"):
            with self.assertRaisesRegex(ValueError, f"must be one of 0.24.0, .*{NEWEST}"):
                LookupKeyClient("a:1", vllm=release)

    def test_a_client_of_no_release_reads_either_form(self) -> None:
        for reply, want in ((TAILS, RESULT), (TAILS[:4], LookupResult(40)), (TAILS[:12], LookupResult(40, RESULT[1][:1]))):
            with Scripted(lambda _, r=reply: message(r)) as server, Client(server.address) as client:
                self.assertEqual(client.lookup_result(64, []), want)
                self.assertEqual(client.lookup(64, []), 40)
                self.assertIs(type(client.lookup(64, [])), int)
            with Scripted(lambda _, r=reply: message(r)) as server, LookupKeyClient(server.address) as engine:
                self.assertEqual(engine.lookup("r", 64, []), 40)
                self.assertEqual(eventually(lambda: engine.lookup("r", 64, [], True), None), 40)
                self.assertNotIn([b"stat"], server.requests)
        for size in (0, 2, 3, 5, 8, 9, 10, 11, 13, 16, 19):
            with Scripted(lambda _, n=size: message(bytes(n))) as server:
                with Client(server.address, raise_errors=True) as client:
                    with self.assertRaisesRegex(hitline.BadReply, f"a hit of {size} bytes"):
                        client.lookup(64, [])

    def test_boundaries_that_a_hit_cannot_have(self) -> None:
        for tails in ((1, 40), (0, 39), (0, 48, 0, 48), (1, 40, 0, 48), (0, 48, 1, 0), (0, 48, 2, 40)):
            reply = message(b"".join(n.to_bytes(4, "big") for n in (40, *tails)))
            with self.subTest(tails), Scripted(lambda _, r=reply: r) as server:
                with Client(server.address, raise_errors=True) as client:
                    with self.assertRaisesRegex(hitline.BadReply, "^for group [01] of [12], a hit of 40 tokens has "):
                        client.lookup_result(64, [])

    def test_a_hit_without_a_tail_boundary(self) -> None:
        """From 0.29.0 on it is no hit, whether the release is the engine's or that of the server's pool."""

        def check(ask: Callable[[], Any]) -> None:
            if release in OLD:
                self.assertEqual(ask(), 40)
                return
            text = f"^a hit of 40 tokens without a tail boundary, of vLLM {release}$"
            self.assertRaisesRegex(hitline.BadReply, text, ask)

        for release in VLLM_RELEASES:
            replies = {b"lookup": message(TAILS[:4]), b"plan": message(b"\1", TAILS[:4], b"")}
            replies.update({b"stat": stat_reply(release), b"pool": pool_reply(release)})
            with self.subTest(release), Scripted(lambda frames, r=replies: r[frames[0]]) as server:
                with LookupKeyClient(server.address, vllm=release, raise_errors=True) as engine:
                    check(lambda: engine.lookup("r", 64, []))  # noqa: B023
                with Client(server.address, pool={"name": "a"}, raise_errors=True) as client:
                    check(lambda: client.lookup(64, []))  # noqa: B023
                    check(lambda: client.plan(64, []).hit_length)  # noqa: B023
                if release not in OLD:
                    with LookupKeyClient(server.address, vllm=release) as engine:
                        with self.assertLogs("hitline", "WARNING") as logs:
                            self.assertEqual(engine.lookup("r", 64, []), LookupResult(0))
                    self.assertIn("counts as a hit of 0 tokens: a hit of 40 tokens without", logs.output[0])


class Releases(unittest.TestCase):
    """The server's release is compared with the engine's."""

    def test_which_releases_fit(self) -> None:
        for fitting, release in (
            ("0.24.0", "0.24.0"),
            ("0.27.0, 0.27.1, 0.28.0", "0.27.0"),
            ("0.27.0, 0.27.1, 0.28.0", "0.28.0"),
            (f"{NEWEST}, {UNKNOWN}", NEWEST),  # a pool that fits a release which is not known here
        ):
            replies = [stat_reply(fitting), message(TAILS if release in NEW else TAILS[:4])]
            with self.subTest(fitting, release=release), Scripted(lambda _, r=replies: r.pop(0)) as server:
                with LookupKeyClient(server.address, vllm=release, raise_errors=True) as client:
                    client.lookup("r", 64, [])
                self.assertEqual([r[0] for r in server.requests], [b"stat", b"lookup"])

    def test_a_server_of_another_release(self) -> None:
        for fitting, release, found in (
            ("0.24.0", "0.25.1", "0.24.0"),
            ("0.27.0, 0.27.1, 0.28.0", NEWEST, "0.27.0, 0.27.1 or 0.28.0"),
            ("0.25.0, 0.25.1", "0.27.0", "0.25.0 or 0.25.1"),
            (f"{NEWEST}, {UNKNOWN}", "0.32.0", f"{NEWEST} or {UNKNOWN}"),
            ("", NEWEST, "an unknown release"),
        ):
            with self.subTest(fitting, release=release), Scripted(lambda _, r=stat_reply(fitting): r) as server:
                with LookupKeyClient(server.address, vllm=release, raise_errors=True) as client:
                    for _ in range(2):
                        with self.assertRaises(hitline.WrongRelease) as refused:
                            client.lookup("r", 64, [])
                        self.assertEqual(
                            str(refused.exception),
                            f"the engine is vLLM {release}, but the server's pool is for vLLM {found}: "
                            f'set pool.vllm: "{release}" in the server\'s configuration',
                        )
                self.assertEqual(server.requests, [[b"stat"]])

    def test_a_wrong_server_is_asked_once_a_connection_and_told_as_an_error(self) -> None:
        with Peer("0.29.0") as peer, LookupKeyClient(peer.address, vllm=NEWEST) as client:
            with self.assertLogs("hitline", "ERROR") as logs:
                for _ in range(3):
                    self.assertEqual(client.lookup("r", 64, []), LookupResult(0))
                    self.assertEqual(eventually(lambda: client.lookup("r", 64, [], non_block=True), None), LookupResult(0))
            self.assertEqual(peer.requests, [[b"stat"]])
            self.assertEqual(len(logs.output), 1)
            peer.vllm = NEWEST
            peer._conns[-1].shutdown(2)
            peer.replies.put(message(TAILS))
            self.assertEqual(client.lookup("r", 64, []), RESULT)

    def test_a_server_that_changes_during_a_lookup(self) -> None:
        """The lookup is not sent again on the new connection, to a server of another release."""
        replies = [stat_reply(NEWEST), message(TAILS), None, stat_reply("0.28.0")]
        with Scripted(lambda _: replies.pop(0)) as server:
            with LookupKeyClient(server.address, vllm=NEWEST, raise_errors=True) as client:
                self.assertEqual(client.lookup("r", 64, []), RESULT)
                with self.assertRaisesRegex(hitline.WrongRelease, "vLLM 0.28.0"):
                    client.lookup("r", 64, [])
            self.assertEqual([r[0] for r in server.requests], [b"stat", b"lookup", b"lookup", b"stat"])

    def test_a_server_without_stat(self) -> None:
        for reply, error in (
            (refusal("not_allowed", "stat"), hitline.NotAllowed),
            (message(b"\1"), hitline.BadReply),
            (message(b"\2"), hitline.BadReply),
            (message(b"\1", b"[]"), hitline.BadReply),
            (message(b"\1", b"{}"), hitline.WrongRelease),
            (message(b"\1", b'{"vllm": ["0.33.0"]}'), hitline.WrongRelease),
        ):
            with self.subTest(reply), Scripted(lambda _, r=reply: r) as server:
                with LookupKeyClient(server.address, vllm=NEWEST, raise_errors=True) as client:
                    with self.assertRaises(error):
                        client.lookup("r", 64, [])

    def test_resets_do_not_depend_on_the_release(self) -> None:
        with Scripted(lambda _: message(b"\1")) as server, LookupKeyClient(server.address, vllm=NEWEST) as client:
            self.assertIs(client.reset(), True)
            self.assertEqual(server.requests, [[b"reset"]])


if __name__ == "__main__":
    unittest.main()
