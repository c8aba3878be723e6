"""The blocking client, against servers that follow a script."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import tempfile
import threading
import time
import unittest
from array import array
from collections.abc import Iterator
from typing import Any, TypeVar
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, connection, errors, retry
from hitline.connection import Connection
from tests.support import PATIENCE, Deaf, Scripted, frame, hashes, message, refusal, resume, sock_of, unused_address

HIT = (48).to_bytes(4, "big")
QUIET = "hitline"


AnyClient = TypeVar("AnyClient", Client, LookupKeyClient)


def connected(client: AnyClient) -> AnyClient:
    """Connects a client whose timeout may be too short for that."""
    with client._retry.lock:
        client._retry._connect(time.monotonic() + PATIENCE)
    return client


class Wire(unittest.TestCase):
    def test_long_frames(self) -> None:
        for size, joined in ((255, 300), (256, 300), (60_000, 300), (60_000, 60_000)):
            body = bytes(size)
            head = b"\0\xff" if size < 256 else b"\2" + size.to_bytes(8, "big")
            want = b"\1\4ping" + head + body
            reply = b"\1\1\1" + head + body
            with mock.patch.object(connection, "_JOINED", joined):
                got, _ = raw_exchange(reply, lambda c: c.ping(body), len(want))
            self.assertEqual(got, want)

    def test_long_frames_in_replies_may_be_short(self) -> None:
        _, hit = raw_exchange(b"\2\0\0\0\0\0\0\0\4" + HIT, lambda c: c.lookup(64, []), 20)
        self.assertEqual(hit, 48)

    def test_places(self) -> None:
        with Scripted(lambda _: frame(b"\1")) as server, Client(server.address) as client:
            keys = hashes("k", 2, 8)
            blob = b"".join(keys)
            client.store(keys)
            client.store(keys, group=1, tp_rank=2, pp_rank=3)
            client.store(keys, group=1, pcp_rank=4)
            client.store(keys, tp_rank=65535)
            client.evict(keys, group=1, tp_rank=2, pp_rank=3)
            client.evict(keys, pcp_rank=1)
            client.reset_rank(group=1, pp_rank=2)
            client.reset_rank()
            eight = b"\0\x08"
            self.assertEqual(
                server.requests,
                [
                    [b"store", bytes(6), eight, blob],
                    [b"store", b"\0\1\0\2\0\3", eight, blob],
                    [b"store", b"\0\1\0\0\0\0\0\4", eight, blob],
                    [b"store", b"\0\0\xff\xff\0\0", eight, blob],
                    [b"evict", b"\0\1\0\2\0\3", eight, blob],
                    [b"evict", b"\0\0\0\0\0\0\0\1", eight, blob],
                    [b"reset_rank", b"\0\1\xff\xff\0\2\xff\xff"],
                    [b"reset_rank", b"\xff" * 8],
                ],
            )


def raw_exchange(reply: bytes, call, size: int):
    """Returns the first size bytes that call made the client send, and its result."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sent = []

        def serve() -> None:
            conn, _ = listener.accept()
            with conn:
                data = b""
                while len(data) < size:
                    data += conn.recv(1 << 20)
                sent.append(data)
                conn.sendall(reply)
                conn.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with Client(f"127.0.0.1:{listener.getsockname()[1]}", raise_errors=True) as client:
                result = call(client)
        finally:
            thread.join(PATIENCE)
        return sent[0], result


class Failures(unittest.TestCase):
    def check(self, answer, error, *, text: str = "") -> None:
        """A lookup that gets answer raises error, or reads as 0 and is logged."""
        with Scripted(answer) as server:
            with Client(server.address, timeout=PATIENCE, raise_errors=True) as client:
                with self.assertRaisesRegex(error, text):
                    client.lookup(16, hashes("a", 1))
            with Client(server.address, timeout=PATIENCE) as client, self.assertLogs(QUIET, "WARNING") as logs:
                self.assertEqual(client.lookup(16, hashes("a", 1)), 0)
            self.assertRegex(logs.output[0], f"counts as a hit of 0 tokens: .*{text.strip('^$')}")
            said = logs.records[0].getMessage()
            self.assertTrue(said.isprintable() and len(said) < 1000, said[:1000])
            with LookupKeyClient(server.address, timeout=PATIENCE) as engine, self.assertLogs(QUIET, "WARNING"):
                poll = lambda: engine.lookup("r", 16, hashes("a", 1), non_block=True)  # noqa: E731
                self.assertEqual(eventually(poll, None), 0)

    def test_refusals_are_of_their_types(self) -> None:
        codes = {**errors.REFUSALS, "later": hitline.RefusedError}
        del codes["busy"]
        replies: list[bytes] = []
        with Scripted(lambda _: replies.pop()) as server, Client(server.address, raise_errors=True) as client:
            for code, error in codes.items():
                for call in (lambda c: c.lookup(16, []), lambda c: c.plan(16, []), Client.stat, Client.ping, Client.reset):
                    replies.append(refusal(code, "r", "not aligned", limit=7))
                    with self.subTest(code), self.assertRaisesRegex(hitline.RefusedError, "^not aligned$") as raised:
                        call(client)
                    found = raised.exception
                    self.assertIs(type(found), error)
                    self.assertEqual((found.code, found.request, found.text), (code, "r", "not aligned"))
                    self.assertEqual(found.refusal["limit"], 7)
            self.assertEqual(server.connections, 1)
        self.check(lambda _: refusal("bad_request", text="not aligned"), hitline.BadRequest, text="^not aligned$")

    def test_refusals_without_all_frames(self) -> None:
        for frames in ([b"\0"], [b"\0", b"no"], [b"\0", b"no", b"{"], [b"\0", b"no", b"[]"], [b"\4"]):
            self.check(lambda _, f=frames: message(*f), hitline.BadReply, text="a refusal")

    def test_hits_that_a_prompt_cannot_have(self) -> None:
        for reply in (b"", b"\1", b"\0\0\x10", b"\0" * 5, b"\0\0\0\x11", b"\x7f" * 4):
            self.check(lambda _, r=reply: message(r), hitline.BadReply, text="a hit of")

    def test_what_is_busy_is_sent_again(self) -> None:
        replies = [refusal("busy")] * 3 + [message(HIT)]
        with Scripted(lambda _: replies.pop(0)) as server, Client(server.address, raise_errors=True) as client:
            begun = time.monotonic()
            self.assertEqual(client.lookup(64, []), 48)
            self.assertGreaterEqual(time.monotonic() - begun, 0.02 + 0.04 + 0.08)
            self.assertEqual((len(server.requests), server.connections), (4, 1))

    def test_a_server_that_stays_busy(self) -> None:
        """Until the call's timeout, and then it is left alone for a while."""
        with Scripted(lambda _: refusal("busy", text="1024 requests wait")) as server:
            with Client(server.address, timeout=PATIENCE) as client:
                with mock.patch.object(retry, "_FIRST_PAUSE", PATIENCE * 0.7), mock.patch.object(retry, "_MAX_PAUSE", PATIENCE * 2):
                    with mock.patch.object(Connection, "wait", return_value=True):  # a pause is over at once
                        with self.assertRaisesRegex(hitline.Busy, "^1024 requests wait$"):
                            client.ping(b"a")
                with self.assertRaisesRegex(hitline.ConnectionFailed, "not tried so soon after this: 1024"):
                    client.ping()
                self.assertGreater(len(server.requests), 1)
                self.assertEqual(server.connections, 1)

    def test_a_busy_server_that_closes(self) -> None:
        def answer(_: list[bytes]) -> bytes:
            server._conns[-1].sendall(refusal("busy"))
            eventually(lambda: waiting.is_set(), False)
            return b"\0"  # which nobody asked for

        waiting = threading.Event()
        with Scripted(answer) as server, Client(server.address, timeout=PATIENCE) as client:
            real = Connection.wait

            def wait(connection: Connection, deadline: float) -> bool:
                waiting.set()
                return real(connection, deadline)

            with mock.patch.object(retry, "_FIRST_PAUSE", PATIENCE / 2), mock.patch.object(Connection, "wait", wait):
                begun = time.monotonic()
                with self.assertRaisesRegex(hitline.ConnectionFailed, "closed the connection"):
                    client.ping(b"a")
                self.assertLess(time.monotonic() - begun, PATIENCE / 4)

    def test_closed_before_the_reply(self) -> None:
        self.check(lambda _: None, hitline.ConnectionFailed)

    def test_reset_before_the_reply(self) -> None:
        def answer(_: list[bytes]) -> None:
            server._conns[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        with Scripted(answer) as server, Client(server.address, raise_errors=True) as client:
            with self.assertRaises(hitline.ConnectionFailed):
                client.lookup(16, [])

    def test_bad_flags(self) -> None:
        for flags in (0x04, 0x08, 0x80):
            self.check(lambda _, f=flags: bytes([f, 4]) + HIT, hitline.BadReply, text="flags")

    def test_bytes_behind_the_reply(self) -> None:
        self.check(lambda _: message(HIT) + b"\0", hitline.BadReply, text="1 bytes behind")

    def test_too_many_frames(self) -> None:
        for count in (4, 33):
            self.check(lambda _, n=count: message(*[b""] * n), hitline.BadReply, text="frame 4 of a reply to lookup")
        self.check(lambda _: message(HIT, b""), hitline.BadReply, text="a hit of 2 frames")

    def test_what_is_not_read(self) -> None:
        """A frame that is longer than the reply can have is refused by its header, which is all that comes."""

        def header(size: int, more: bool = False) -> bytes:
            return bytes([2 | more]) + size.to_bytes(8, "big")

        hit, refused, reason = 4 + 8 * 4096, frame(b"\0", True), frame(b"no", True)
        for reply, text in (
            (header(hit + 1), f"frame 1 .* has {hit + 1} bytes, at most {hit} in 3 frames are read"),
            (header(62 << 20), "frame 1 of a reply to lookup has 65011712 bytes"),
            (header(1 << 63), "frame 1 of a reply to lookup has 9223372036854775808 bytes"),
            (refused + header((64 << 10) + 1, True), "frame 2 of a reply to lookup has 65537 bytes, at most 65536"),
            (refused + reason + header((64 << 10) + 1), "frame 3 of a reply to lookup has 65537 bytes, at most 65536"),
        ):
            with self.subTest(text):
                self.check(lambda _, r=reply: r, hitline.BadReply, text=text)
        whole = message(b"".join(n.to_bytes(4, "big") for n in (16, *(n for g in range(4096) for n in (g, 16)))))
        with Scripted(lambda _: whole) as server, Client(server.address, raise_errors=True) as client:
            self.assertEqual(len(client.lookup_result(16, []).tail_key_boundaries), 4096)

    def test_what_is_not_read_by_other_requests(self) -> None:
        group = {"kind": "full_attention", "block_size": 16}
        pool = {"groups": [group] * 2}
        calls: tuple[tuple[Any, Any, int], ...] = (
            (None, lambda c: c.ping(b"a"), 64 << 10),
            (None, Client.stat, (64 << 10) + 4096 * (2 << 10)),
            (pool, Client.stat, (64 << 10) + 2 * (2 << 10)),
            (pool, lambda c: c.lookup(16, []), 4 + 2 * 8),
            ({"name": "p"}, lambda c: c.lookup(16, []), 4 + 8 * 4096),
            ({"vllm": "0.28.0"}, lambda c: c.lookup(16, []), 4 + 8),
            (None, lambda c: c.plan(16, []), 2 << 20),
            (None, lambda c: c.load_mask(16, 1), 2 << 20),
            (None, lambda c: c.store(hashes("a", 1)), 2 << 20),
            (None, lambda c: c.store_prompt(16, hashes("a", 1)), 2 << 20),
        )
        for described, call, limit in calls:
            size = [0]

            def answer(frames: list[bytes], size: list[int] = size) -> bytes:
                if frames[0] == b"pool":
                    return message(b"\1", b"{}")
                return b"\2" + size[0].to_bytes(8, "big")

            with Scripted(answer) as server:
                with Client(server.address, pool=described, timeout=PATIENCE, raise_errors=True) as client:
                    size[0] = limit + 1
                    with self.subTest(limit), self.assertRaisesRegex(hitline.BadReply, f" at most {limit} in"):
                        call(client)
                    size[0] = limit
                    client._timeout = 0.05
                    with self.subTest(limit), self.assertRaises(hitline.RequestTimeout):
                        call(client)

    def test_what_a_server_says_is_cut_and_printable(self) -> None:
        for text, want in (
            ("x" * 512, "x" * 512),
            ("x" * 60_000, "x" * 512 + "…"),
            ("ü" * 600, "ü" * 512 + "…"),
            ("a\nWARNING forged\r\x1b[31m\0\u202e", r"a\nWARNING forged\r\x1b[31m\x00\u202e"),
            ("\n" * 600, r"\n" * 256 + "…"),
        ):
            reply = refusal("bad_request", text=text)
            with Scripted(lambda _, r=reply: r) as server:
                with Client(server.address, raise_errors=True) as client, self.assertRaises(hitline.BadRequest) as raised:
                    client.lookup(16, [])
                self.assertEqual((str(raised.exception), raised.exception.text), (want, want))
        for text in (b"\xff\xfe" * 300, b"x" * 511 + "ü".encode()):
            self.assertTrue(errors.printable(text).isprintable() and len(errors.printable(text)) <= 513)
        self.assertEqual(errors.printable("a\ud800"), r"a\ud800")

    def test_refusals_of_wrong_types(self) -> None:
        fields = {"request": {}, "differences": 7, "parts": [1, {"group": 0}], "more_parts": "x"}
        for code, wrong in (("partly_done", [1]), ("pool_differs", {}), (["busy"], None), (None, None)):
            reply = refusal(code, text="no", **{**fields, "request": wrong})  # type: ignore[arg-type]
            with Scripted(lambda _, r=reply: r) as server:
                with Client(server.address, raise_errors=True) as client, self.assertRaises(hitline.RefusedError) as raised:
                    client.stat()
            error = raised.exception
            self.assertEqual((type(error.code), error.request, error.text), (str, "", "no"))
            if isinstance(error, hitline.PartlyDone):
                self.assertEqual((error.parts, error.more_parts), ([{"group": 0}], 0))
            if isinstance(error, hitline.PoolDiffers):
                self.assertEqual(error.differences, [])

    def test_documents_that_cannot_be_read(self) -> None:
        """Whatever fails, it is an error of this module."""
        for document in (b"[" * 60_000, b'{"a":' * 10_000, b"1" * 60_000, b"\xff\xfe\0\xd8", b"\0"):
            with self.subTest(document[:10]):
                self.check(lambda _, d=document: message(b"\0", b"no", d), hitline.BadReply, text="a refusal without")
                reply = message(b"\1", document)
                with Scripted(lambda _, r=reply: r) as server:
                    server.pong = reply
                    for call in (Client.stat, Client.check_pool, lambda c: c.lookup(16, [])):
                        settings: Any = {"pool": {"name": "p"}} if call is Client.check_pool else {"on_instance": print}
                        with Client(server.address, raise_errors=True, **settings) as client:
                            with self.assertRaisesRegex(hitline.BadReply, "without a JSON document"):
                                call(client)

    def test_a_call_may_have_a_timeout_of_its_own(self) -> None:
        keys = hashes("a", 1)
        with Scripted(lambda _: Scripted.SILENCE) as server, Client(server.address, raise_errors=True) as client:
            self.assertEqual(client._timeout, 10.0)
            for call in (
                client.ping,
                client.stat,
                client.check_pool,
                client.reset,
                client.reset_rank,
                lambda timeout: client.lookup(16, keys, timeout=timeout),
                lambda timeout: client.lookup_result(16, keys, timeout=timeout),
                lambda timeout: client.store(keys, timeout=timeout),
                lambda timeout: client.evict(keys, timeout=timeout),
                lambda timeout: client.store_prompt(16, keys, timeout=timeout),
                lambda timeout: client.plan(16, keys, timeout=timeout),
                lambda timeout: client.load_mask(16, 1, timeout=timeout),
                lambda timeout: client.store_mask(16, timeout=timeout),
                lambda timeout: client.lookup_mask(16, timeout=timeout),
            ):
                resume(client)
                connected(client)
                with self.assertRaises(hitline.RequestTimeout):
                    call(timeout=0.02)
                with self.assertRaisesRegex(ValueError, "^timeout is 0, must be"):
                    call(timeout=0)

    def test_timeout_bounds_a_trickling_reply(self) -> None:
        """Every byte arrives in time and the reply does not."""

        def answer(_: list[bytes]) -> None:
            for byte in b"\2\0\0\0\0\0\1\0\0" + bytes(round(PATIENCE / 0.04)):
                server._conns[-1].sendall(bytes([byte]))  # raises when the client has closed
                time.sleep(0.04)

        begun = time.monotonic()
        with Scripted(answer) as server, connected(Client(server.address, timeout=0.2, raise_errors=True)) as client:
            with self.assertRaises(hitline.RequestTimeout):
                client.lookup(16, [])
            self.assertLess(time.monotonic() - begun, PATIENCE / 2)

    def test_timeout_bounds_a_request_that_is_not_taken(self) -> None:
        with Deaf() as server, connected(Client(server.address, timeout=0.1, raise_errors=True)) as client:
            with self.assertRaisesRegex(hitline.RequestTimeout, "did not take"):
                client.lookup(16, [bytes(32)] * 1_000_000)

    def test_a_late_reply_answers_nothing(self) -> None:
        release = threading.Event()

        def answer(frames: list[bytes]) -> bytes:
            if frames[1] == b"\0\0\0\x10":
                release.wait(PATIENCE)
            return message(frames[1])  # the tokens as the hit

        with Scripted(answer) as server, connected(Client(server.address, timeout=0.2)) as client:
            with self.assertLogs(QUIET, "WARNING"):
                self.assertEqual(client.lookup(16, []), 0)
            release.set()
            self.assertEqual(eventually(lambda: client.lookup(32, [])), 32)

    def test_ping_and_stat_with_wrong_payloads(self) -> None:
        for frames in ([b"\1"], [b"\1", b"x"], [b"\1", b"[]"], [b"\1", b"{}", b"{}"]):
            with Scripted(lambda _, f=frames: message(*f)) as server, Client(server.address) as client:
                with self.assertRaises(hitline.BadReply):
                    client.stat()
                with self.assertRaises(hitline.BadReply):
                    client.ping(b"payload")

    def test_wrong_arguments_always_raise(self) -> None:
        """They are no failure of the server's, so nothing is sent and nothing counts as 0."""
        lookups: list[tuple[object, object, type[Exception], str]] = [
            (64, ["aa"], TypeError, r"block_hashes\[0\] is str, must be bytes, as bytes.fromhex returns"),
            (64, [b"aa", "aa"], TypeError, r"block_hashes\[1\] is str, must be bytes"),
            (64, [b"1", 2], TypeError, r"block_hashes\[1\] is int, must be bytes"),
            (64, [None], TypeError, r"block_hashes\[0\] is NoneType, must be bytes"),
            (64, "aabb", TypeError, "block_hashes is str, must be a list of bytes"),
            (64, b"aabb", TypeError, "block_hashes is bytes, must be a list of bytes"),
            (64, b"", TypeError, "block_hashes is bytes, must be a list of bytes"),
            (64, "", TypeError, "block_hashes is str, must be a list of bytes"),
            (64, None, TypeError, "block_hashes is NoneType, must be a list of bytes"),
            (64, 7, TypeError, "block_hashes is int, must be a list of bytes"),
            (64, {b"a": b"b"}, TypeError, "block_hashes is dict, must be a list of bytes"),
            (64, {b"a"}, TypeError, "block_hashes is set, must be a list of bytes"),
            (64, iter([b"a"]), TypeError, "block_hashes is list_iterator, must be a list of bytes"),
            (None, [], TypeError, "token_len is None, must be an int"),
            ("64", [], TypeError, "token_len is '64', must be an int"),
            (64.0, [], TypeError, "token_len is 64.0, must be an int"),
            (-1, [], ValueError, "token_len is -1, must be 0 to 4294967295"),
            (1 << 32, [], ValueError, "token_len is 4294967296, must be 0 to 4294967295"),
            (64, [b"aaaa", b"aaa"], ValueError, r"block_hashes\[1\] has 3 bytes and block_hashes\[0\] has 4: all must have"),
            (64, [b"aaaa", b"aaa", b"aaaaa"], ValueError, r"block_hashes\[1\] has 3 bytes"),
            (64, [b"", b""], ValueError, r"block_hashes\[0\] has 0 bytes .*, 1 to 64 bytes"),
            (64, [b"a" * 65], ValueError, r"block_hashes\[0\] has 65 bytes"),
            # len counts their items.
            (64, [array("Q", range(4))], TypeError, r"block_hashes\[0\] is array, must be bytes"),
            (64, [b"aaaa", array("I", range(4))], TypeError, r"block_hashes\[1\] is array, must be bytes"),
            (64, [memoryview(b"aaaa").cast("I")], TypeError, r"block_hashes\[0\] is a memoryview of 4 bytes as \(1,\), must be"),
            (64, [b"aaaa", memoryview(b"aaaaaaaa").cast("B", (4, 2))], TypeError, r"block_hashes\[1\] is a memoryview"),
            (64, [memoryview(b"abcd")[::2]], TypeError, r"block_hashes\[0\] is a memoryview"),
        ]
        with Scripted(lambda _: message(HIT)) as server, self.assertNoLogs() as logs:
            with Client(server.address) as plain, LookupKeyClient(server.address) as engine:
                for tokens, blocks, error, text in lookups:
                    for name, call in (
                        ("lookup", lambda: plain.lookup(tokens, blocks)),
                        ("lookup_result", lambda: plain.lookup_result(tokens, blocks)),
                        ("plan", lambda: plain.plan(tokens, blocks)),
                        ("engine", lambda: engine.lookup("r", tokens, blocks)),
                        ("non_block", lambda: engine.lookup("r", tokens, blocks, non_block=True)),
                    ):
                        with self.subTest(name, tokens=tokens, blocks=blocks), self.assertRaisesRegex(error, f"^{text}"):
                            call()
                self.assertEqual(engine._pending, {})
                for call in (
                    lambda: plain.lookup(64, [], timeout="1"),
                    lambda: plain.reset(timeout="1"),
                    lambda: engine.reset(timeout="1"),
                    lambda: plain.ping("text"),
                    lambda: plain.ping(7),
                    lambda: plain.store("aabb"),
                    lambda: plain.store(["aa"]),
                    lambda: plain.store([b"k"], group="0"),
                    lambda: plain.store([b"k"], pcp_rank="1"),
                    lambda: plain.evict([b"k"], tp_rank=0.5),
                    lambda: plain.reset_rank(tp_rank="1"),
                    lambda: plain.store_prompt("16", [b"k"]),
                    lambda: plain.store_prompt(16, ["aa"]),
                    lambda: plain.store_prompt(16, [b"k"], ranks=["abc"]),
                    lambda: plain.store_prompt(16, [b"k"], ranks=[0]),
                    lambda: plain.store_prompt(16, [b"k"], states=[(0, "16")]),
                    lambda: plain.load_mask(16, "1"),
                    lambda: plain.store_mask(16, prompt_tokens=16.0),
                    lambda: plain.lookup_mask(None),
                ):
                    with self.assertRaises(TypeError):
                        call()
                for call in (
                    lambda: plain.lookup(64, [], timeout=-1),
                    lambda: plain.reset(timeout=0),
                    lambda: engine.reset(timeout=0),
                    lambda: plain.store([]),
                    lambda: plain.store([b""]),
                    lambda: plain.store([b"k" * 65]),
                    lambda: plain.store([b"k"], group=65536),
                    lambda: plain.evict([b"k"], tp_rank=-1),
                    lambda: plain.store_prompt(16, []),
                    lambda: plain.store_prompt(-1, [b"k"]),
                    lambda: plain.store_prompt(16, [b"k"], ranks=[(0, 0)]),
                    lambda: plain.store_prompt(16, [b"k"], ranks=[(1 << 16, 0, 0)]),
                    lambda: plain.store_prompt(16, [b"k"], states=[(0, -1)]),
                    lambda: plain.load_mask(-1, 0),
                    lambda: plain.store_mask(1 << 32),
                    lambda: plain.plan(16, [], start_token=17),
                    lambda: plain.reset_rank(group=-1),
                ):
                    with self.assertRaises(ValueError):
                        call()
                self.assertEqual(plain.lookup(64, [bytearray(b"a"), memoryview(b"b")]), 48)
        self.assertEqual([r[0] for r in server.requests], [b"lookup"])
        self.assertEqual(logs, [])

    def test_a_payload_of_items(self) -> None:
        payload = array("I", range(100))
        with Scripted(lambda frames: message(b"\1", frames[1])) as server, Client(server.address) as client:
            client.ping(memoryview(payload))
            client.ping(memoryview(payload)[::2])
        self.assertEqual([r[1] for r in server.requests], [payload.tobytes(), payload[::2].tobytes()])

    @contextlib.contextmanager
    def assertNoLogs(self) -> Iterator[list[object]]:  # type: ignore[override]  # Python 3.9 has none
        found: list[object] = []
        with mock.patch.object(errors.logger, "handle", found.append):
            yield found

    def test_failures_are_logged_once_in_a_while(self) -> None:
        self.assertEqual(errors._LOG_EVERY, 10.0)
        with mock.patch.object(errors, "_LOG_EVERY", 1000.0), self.assertLogs(QUIET, "WARNING") as logs:
            with Client(unused_address(self)) as client:
                for _ in range(100):
                    self.assertEqual(client.lookup(16, []), 0)
                for _ in range(100):
                    self.assertIs(client.reset(), False)
        self.assertEqual(len(logs.output), 2, "one warning does not keep another back")
        self.assertIn("lookup at", logs.output[0])
        self.assertIn("reset at", logs.output[1])

    def test_bad_addresses(self) -> None:
        for address in (
            "", "localhost", "tcp://", "tcp://:1", "tcp://a:0", "tcp://a:65536", "tcp://a:x", "tcp://a:-1", "tcp://::1:5",
            "udp://a:1", "ipc://", "ipc://@x", "ipc:///", "ipc://x", "http://a:1", "tcp://a:１",
            "tcp//a:1", "tcp:/a:1", "tcp:///a:1", "tls//a:1", "a/b:1", "tcp://a b:1", "tcp://[a/b]:1", "user@a:1", "ipc:///a/",
            "tls://", "tls://a", "tls://:1", "tls://::1:5", "tls:///path",
        ):
            with self.assertRaises(ValueError, msg=address):
                Client(address)
        self.assertEqual(connection.parse_address("tls://[::1]:7558"), ("::1", 7558))
        for address, text in (
            ("tcp://a:99999", "the port is '99999', must be 1 to 65535"),
            ("a:0", "the port is '0', must be"),
            ("tcp://a:x", "the port is 'x', must be"),
            ("tcp://a", "want tcp://host:port"),
            ("tcp//a:1", "want tcp://host:port"),
        ):
            with self.assertRaisesRegex(ValueError, f"^address '{address}': {text}"):
                Client(address)
        for make in (
            lambda: Client(7557),
            lambda: LookupKeyClient(None),
            lambda: Client(b"tcp://127.0.0.1:1"),
            lambda: Client("a:1", timeout="1"),
            lambda: Client("a:1", on_instance="f"),
            lambda: Client("tls://a:1", tls="ca.pem"),
            lambda: Client("a:1", token_file=7),
        ):
            with self.assertRaises(TypeError):
                make()
        # 4294968 s are 0.7 s to a socket.
        for timeout in (0, -1, float("nan"), float("inf"), 1e10, 4294968, 2147484):
            with self.assertRaises(ValueError):
                Client("a:1", timeout=timeout)

    def test_the_longest_timeout(self) -> None:
        with Scripted(lambda _: message(HIT)) as server:
            with Client(server.address, timeout=connection.MAX_TIMEOUT, raise_errors=True) as client:
                self.assertEqual(client.lookup(64, []), 48)
            self.assertLess(connection.MAX_TIMEOUT * 1000, 1 << 31)


def eventually(call, not_yet: object = 0):
    """Returns the first result of call that is another than not_yet."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        result = call()
        if result != not_yet:
            return result
        time.sleep(0.001)
    raise AssertionError(f"still {not_yet}")


@contextlib.contextmanager
def long_pauses() -> Iterator[None]:
    """Pauses after failures are longer than a test."""
    with mock.patch.object(retry, "_FIRST_PAUSE", 1000.0), mock.patch.object(retry, "_MAX_PAUSE", 1000.0):
        yield


@contextlib.contextmanager
def unanswering() -> Iterator[int]:
    """A port on which connecting neither succeeds nor fails: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        socks = [queue.enter_context(socket.socket()) for _ in range(4)]
        for sock in socks:
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        select.select([], socks, [], PATIENCE)  # until one has the only place
        yield listener.getsockname()[1]


class Connections(unittest.TestCase):
    @unittest.skipUnless(hasattr(socket, "AF_UNIX"), "no unix sockets here")
    def test_unix_sockets(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            with Scripted(lambda _: message(HIT), f"{folder}/socket") as server, Client(server.address) as client:
                self.assertEqual(client.lookup(64, []), 48)
            with Client(f"ipc://{folder}/nobody", raise_errors=True) as client:
                with self.assertRaises(hitline.ConnectionFailed):
                    client.ping()

    def test_a_connection_closed_while_idle_is_replaced(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, Client(server.address, raise_errors=True) as client:
            for n in range(1, 5):
                self.assertEqual(client.lookup(64, []), 48)
                self.assertEqual(server.connections, n)
                server._conns[-1].shutdown(socket.SHUT_RDWR)

    def test_unasked_bytes_end_the_connection(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, Client(server.address, raise_errors=True) as client:
            self.assertEqual(client.lookup(64, []), 48)
            server._conns[-1].sendall(message(b"\0\0\0\1"))
            self.assertTrue(select.select([sock_of(client)], [], [], PATIENCE)[0])
            server._conns[-1].shutdown(socket.SHUT_RD)  # the script goes on with the next one
            self.assertEqual(client.lookup(64, []), 48)
            self.assertEqual(server.connections, 2)

    def test_a_request_lost_on_an_old_connection_is_sent_again_once(self) -> None:
        answers = [message(HIT), None, message(HIT), None, None, message(HIT)]
        with Scripted(lambda _: answers.pop(0)) as server, Client(server.address, raise_errors=True) as client:
            client.lookup(61, [])
            self.assertEqual(client.lookup(62, []), 48)
            with self.assertRaises(hitline.ConnectionFailed):
                client.lookup(63, [])
            self.assertEqual(client.lookup(64, []), 48)
            self.assertEqual([r[1][3] for r in server.requests], [61, 62, 62, 63, 63, 64])

    def test_a_request_answered_in_part_is_not_sent_again(self) -> None:
        def answer(frames: list[bytes]) -> bytes:
            if len(server.requests) == 2:
                server._conns[-1].sendall(message(HIT)[:3])
                server._conns[-1].shutdown(socket.SHUT_RDWR)
            return message(HIT)

        with Scripted(answer) as server, Client(server.address, raise_errors=True) as client:
            client.lookup(64, [])
            with self.assertRaisesRegex(hitline.ConnectionFailed, "inside a reply"):
                client.lookup(64, [])
            self.assertEqual(len(server.requests), 2)

    def test_after_failures_requests_fail_at_once_for_a_while(self) -> None:
        with Client(unused_address(self)) as client:
            client._retry.clock = lambda: 7.0
            with mock.patch.object(retry, "_FIRST_PAUSE", 300.0), mock.patch.object(retry, "_MAX_PAUSE", 1000.0):
                for pause in (300.0, 600.0, 1000.0, 1000.0):
                    client._retry.back_off("it is busy")
                    self.assertEqual((client._retry.pause, client._retry.retry_at), (pause, 7.0 + pause))
                    with self.assertRaisesRegex(hitline.ConnectionFailed, "^not tried so soon after this: it is busy"):
                        client.ping()
        self.assertEqual((retry._FIRST_PAUSE, retry._MAX_PAUSE), (0.02, 1.0))

    def test_success_ends_the_pauses(self) -> None:
        with Scripted(lambda _: message(b"\1")) as server, Client(server.address) as client:
            client._retry.pause = 0.5
            client.reset()
            self.assertEqual(client._retry.pause, 0.0)

    def test_interrupted_requests_leave_no_reply_behind(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, Client(server.address) as client:
            with mock.patch.object(Connection, "_receive", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    client.lookup(16, [])
            self.assertIsNone(sock_of(client))
            self.assertEqual(client.lookup(64, []), 48)

    def test_an_address_that_does_not_answer_leaves_time_for_the_others(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, unanswering() as silent:
            port = server.port
            found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", p)) for p in (silent, port)]
            left = []
            with mock.patch.object(socket, "getaddrinfo", return_value=found):
                with Client(server.address_of("pool"), timeout=PATIENCE, raise_errors=True) as client:
                    real = Connection._open

                    def open_one(connection: Connection, family: int, target: tuple, deadline: float) -> None:
                        left.append(deadline - time.monotonic())
                        if target[1] == silent:  # its time passes sooner
                            deadline = time.monotonic() + 0.1
                        real(connection, family, target, deadline)

                    with mock.patch.object(Connection, "_open", open_one):
                        self.assertEqual(client.lookup(64, []), 48)
            self.assertLessEqual(left[0], PATIENCE / 2)
            self.assertGreater(left[1], PATIENCE / 2)

    def test_close_wakes_a_request(self) -> None:
        begun, release = threading.Event(), threading.Event()

        def answer(_: list[bytes]) -> None:
            begun.set()
            release.wait(PATIENCE)

        with Scripted(answer) as server, Client(server.address, timeout=PATIENCE, raise_errors=True) as client:
            failed = []

            def ask() -> None:
                try:
                    client.ping()
                except hitline.ConnectionFailed as error:
                    failed.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            self.assertTrue(begun.wait(PATIENCE))
            at = time.monotonic()
            client.close()
            thread.join(PATIENCE)
            self.assertLess(time.monotonic() - at, PATIENCE / 2)
            self.assertEqual(len(failed), 1)
            release.set()
            with self.assertRaisesRegex(hitline.ConnectionFailed, "^the client is closed$"):
                client.ping()
            client.close()

    def test_close_ends_a_request_that_is_about_to_connect(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, Client(server.address, raise_errors=True) as client:
            found = socket.getaddrinfo

            def find(*args: object, **more: object) -> list:
                client._retry.connection.interrupt()  # as close does
                return found(*args, **more)

            with mock.patch.object(socket, "getaddrinfo", find):
                with self.assertRaisesRegex(hitline.ConnectionFailed, "the client is closed"):
                    client.lookup(64, [])
            self.assertEqual(server.requests, [])
            self.assertIsNone(sock_of(client))

    def test_small_requests_are_not_held_back(self) -> None:
        with Scripted(lambda _: message(HIT)) as server, Client(server.address) as client:
            client.lookup(64, [])
            self.assertNotEqual(sock_of(client).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 0)

    def test_waiting_for_other_threads_counts(self) -> None:
        with Client(unused_address(self), timeout=0.05) as client, client._retry.lock:
            with self.assertRaisesRegex(hitline.RequestTimeout, "other requests"):
                client.ping()


if __name__ == "__main__":
    unittest.main()
