"""Which engines have most of a prompt: against servers that follow a script, and the real one."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import ssl
import tempfile
import threading
import time
import unittest
from array import array
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

from hitline import (
    BadReply,
    Client,
    ConnectionFailed,
    HitlineError,
    Holder,
    Holders,
    HoldersClient,
    NotAllowed,
    NotAuthenticated,
    RefusedError,
    RequestTimeout,
)
from tests.support import CERTS, PATIENCE, hashes, needs_certs, needs_server, router_server, unused_address

# An answer with these counts: tokens, those of a medium, and those of a rank.
BAD_COUNT = '{"instances": {"e": {"longest_matched": %s, "gpu": %s, "cpu": 0, "disk": 0, "dp": {"%s": %s}}}}'

NOBODY = '{"instances": {}}'


NO_HTTP = "the server does not speak HTTP; give the address of router.listen, with https:// if it has TLS"


class Script(BaseHTTPRequestHandler):
    """Answers with status and reply, and keeps what was asked."""

    protocol_version = "HTTP/1.1"
    status, reply, pause, hang_up = 200, NOBODY, 0.0, False
    drip = 0.0  # seconds before each byte of the reply
    lacks = 0  # bytes of the reply
    replies: dict[str, str] = {}  # by path, in place of reply
    requests: list[tuple[str, Any, Any]]
    connections: set[Any]
    released: threading.Event

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "null")
        self.reply = self.replies.get(self.path, self.reply)
        self.requests.append((self.path, body, self.headers))
        self.connections.add(self.client_address)
        if self.pause:
            self.released.wait(self.pause)
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client has waited for long enough
            self.send_response(self.status)
            self.send_header("Content-Length", str(len(self.reply) + self.lacks))
            self.end_headers()
            for byte in [self.reply] if not self.drip else self.reply:
                self.released.wait(self.drip)
                self.wfile.write(byte.encode())
            self.close_connection = self.hang_up

    def do_GET(self) -> None:
        self.do_POST() if self.path in self.replies else self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def scripted(kind: type[Script] = Script, **settings: Any) -> Iterator[tuple[type[Script], str]]:
    script: Any = type("Scripted", (kind,), {**settings, "requests": [], "connections": set()})
    script.released = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), script)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        script.released.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


@contextlib.contextmanager
def raw_server(answer: bytes, drip: float = 0.0) -> Iterator[str]:
    """The address of a server that sends one answer, with drip bytes by bytes, each after so many seconds."""
    stopping = threading.Event()

    def serve() -> None:
        conn, _ = listener.accept()
        with conn, contextlib.suppress(OSError):
            conn.recv(1 << 16)
            for part in [answer] if not drip else (answer[i : i + 1] for i in range(len(answer))):
                conn.sendall(part)
                if stopping.wait(drip):
                    return
            stopping.wait(PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join(PATIENCE)


class Scripted(unittest.TestCase):
    def setUp(self) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HITLINE_T")}
        patched = mock.patch.dict(os.environ, variables, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def test_all_fields(self) -> None:
        reply = """{"instances": {"e1": {"longest_matched": 32, "gpu": 16, "cpu": 32, "disk": 0, "dp": {"0": 16, "1": 32}},
            "e0": {"longest_matched": 16, "gpu": 0, "cpu": 0, "disk": 0, "dp": {"0": 16}, "media": {"predicted": 16}}},
            "tenant_id": "t", "loadable_tokens": 0, "loadable_unknown": "why", "unsure": {"e2": ["incomplete", "stale"]},
            "unsure_ranks": {"e2": {"3": ["incomplete"], "4": ["stale"]}}, "kv_hints": {"e1": {"actions": []}}}"""
        with scripted(reply=reply) as (script, address), HoldersClient(address + "/", token="secret") as client:
            model: dict[str, Any] = {"model": "llama", "tenant": "t", "block_size": 16}
            adapter = {"lora_name": "l", "lora_path": "/l", "cache_salt": "s"}
            found = client.holders([b"a" * 32, b"\xff" * 32], engine="e", loadable=True, num_tokens=40, **model)
            client.holders(token_ids=[1, 2], last_known=True, kv_hints=True, **adapter)
            client.predict("e", [b"a" * 8], rank=3, **model)
            client.predict("e", token_ids=[1], **adapter)
        path, body, headers = script.requests[0]
        self.assertEqual((path, headers["Authorization"]), ("/query", "Bearer secret"))
        names = {"model": "llama", "tenant_id": "t", "instance_id": "e", "block_size": 16}
        self.assertEqual(body, {**names, "loadable": True, "num_tokens": 40, "seq_hashes": ["61" * 32, "ff" * 32]})
        path, body, _ = script.requests[1]
        self.assertEqual(path, "/query")
        self.assertEqual(body, {"token_ids": [1, 2], "last_known": True, "kv_hints": True, **adapter})
        self.assertEqual(script.requests[2][:2], ("/predict", {**names, "dp_rank": 3, "seq_hashes": ["61" * 8]}))
        self.assertEqual(script.requests[3][:2], ("/predict", {"instance_id": "e", "token_ids": [1], **adapter}))
        first = Holder("e1", 32, {"GPU": 16, "CPU": 32, "DISK": 0}, {0: 16, 1: 32})
        second = Holder("e0", 16, {"GPU": 0, "CPU": 0, "DISK": 0, "predicted": 16}, {0: 16})
        ranks = {"e2": {3: ("incomplete",), 4: ("stale",)}}
        want = Holders((first, second), 0, {"e2": ("incomplete", "stale")}, "why", ranks, {"e1": {"actions": []}})
        self.assertEqual(found, want)
        self.assertEqual(len(script.connections), 1)

    def test_defaults(self) -> None:
        with scripted() as (script, address), HoldersClient(address) as client:
            for empty in ([], ()):
                self.assertEqual(client.holders(empty), Holders((), None, {}))
            client.holders(token_ids=[])
        self.assertEqual([body for _, body, _ in script.requests], [{"seq_hashes": []}] * 2 + [{"token_ids": []}])
        self.assertIsNone(script.requests[0][2]["Authorization"])

    def test_bad_replies(self) -> None:
        for reply in (
            "",
            "[]",
            "{}",
            '{"instances": 1}',
            '{"instances": {"e": 1}}',
            '{"instances": {"e": {"longest_matched": 1}}}',
            '{"instances": {}, "loadable_tokens": "many"}',
            '{"instances": {}, "loadable_tokens": -1}',
            '{"instances": {}, "unsure": ["e"]}',
            '{"instances": {}, "unsure": {"e": "stale"}}',
            '{"instances": {}, "unsure_ranks": {"e": {"x": []}}}',
            '{"instances": {}, "kv_hints": []}',
            "[" * 60_000,
            *(BAD_COUNT % (count, 1, "0", 1) for count in ("-5", "1.9", "1e999", "NaN", "true", '"7"', "[7]", str(1 << 63))),
            *(BAD_COUNT % (1, count, "0", 1) for count in ("-5", "1.9", "Infinity", "null")),
            *(BAD_COUNT % (1, 1, "0", count) for count in ("-5", "1.9", "1e999")),
            *(BAD_COUNT % (1, 1, rank, 1) for rank in ("-1", "1.5", "x", "٣", " 1", "9" * 5000)),
        ):
            with self.subTest(reply[:99]), scripted(reply=reply) as (_, address), HoldersClient(address) as client:
                with self.assertRaises(BadReply) as raised:
                    client.holders([b"a" * 8])
            self.assertTrue(str(raised.exception).isprintable() and len(str(raised.exception)) < 600)

    def test_what_is_not_read(self) -> None:
        with scripted(lacks=5 << 20, reply=" " * (32 << 20)) as (_, address), HoldersClient(address) as client:
            with self.assertRaises(BadReply, msg="it does not wait for the rest") as raised:
                client.holders([])
        self.assertRegex(str(raised.exception), "more than 32 MiB")

    def test_what_a_server_says_is_cut_and_printable(self) -> None:
        for status, reply in (
            (404, json.dumps({"error": {"code": "no\nWARNING forged", "message": "\x1b[31m" + "x" * 60_000}})),
            (404, json.dumps({"error": {"code": {}, "message": ["\n"] * 1000}})),
            (404, "[" * 60_000),
            (404, '{"error": {"code": "a", "message": "' + "x" * 70_000),
        ):
            with scripted(status=status, reply=reply) as (_, address), HoldersClient(address) as client:
                with self.assertRaises(RefusedError) as raised:
                    client.holders([])
            self.assertTrue(str(raised.exception).isprintable() and len(str(raised.exception)) < 1200, raised.exception)
        for line in (b"HTTP/1.1 503 a\x1b[31mb", b"\x1b[31m" * 1000, b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000):
            with raw_server(line + b"\r\n\r\n") as address, HoldersClient(address) as client:
                with self.assertRaises(HitlineError) as failed:
                    client.holders([])
            self.assertTrue(str(failed.exception).isprintable() and len(str(failed.exception)) < 600, failed.exception)

    def test_the_timeout_bounds_headers_that_trickle(self) -> None:
        """Every byte of them arrives in time, and the answer does not."""
        with raw_server(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, drip=0.02) as address:
            begun = time.monotonic()
            with HoldersClient(address, timeout=0.2) as client, self.assertRaises(RequestTimeout):
                client.holders([])
            self.assertLess(time.monotonic() - begun, PATIENCE / 2)

    def test_refusals(self) -> None:
        for status, code, kind in (
            (401, "unauthorized", NotAuthenticated),
            (403, "forbidden", NotAllowed),
            (404, "no_model", RefusedError),
        ):
            reply = json.dumps({"error": {"code": code, "message": "not so"}})
            with scripted(status=status, reply=reply) as (script, address), HoldersClient(address) as client:
                for _ in range(2):
                    with self.assertRaisesRegex(RefusedError, rf"{address}: not so \({code}\)") as caught:
                        client.holders([])
                    self.assertIs(type(caught.exception), kind)
                self.assertEqual(len(script.connections), 1)
        for status in (302, 503):
            with scripted(status=status, reply="x") as (_, address), HoldersClient(address) as client:
                with self.assertRaisesRegex(RefusedError, f"{address}: {status} "):
                    client.holders([])

    def test_a_token_in_plain_text_is_warned_of_once(self) -> None:
        remote = mock.patch("hitline.connection.ipaddress.ip_address", return_value=ipaddress.ip_address("192.0.2.1"))
        with remote, scripted() as (_, address):
            with HoldersClient(address, token="t" * 16) as client, self.assertLogs("hitline", "WARNING") as logs:
                for _ in range(2):
                    client.holders([])
            self.assertEqual(len(logs.output), 1)
            want = f"the token goes to {address} in plain text, for all on the way to read; use https://"
            self.assertIn(want, logs.output[0])

    def test_lost_connections(self) -> None:
        address = unused_address(self).replace("tcp", "http")
        with HoldersClient(address) as client, self.assertRaisesRegex(ConnectionFailed, address):
            client.holders([])
        with raw_server(b"220 ready\r\n") as address, HoldersClient(address) as client:  # another kind of server
            with self.assertRaisesRegex(ConnectionFailed, f"{address}: {NO_HTTP}"):
                client.holders([])
        with scripted(hang_up=True) as (script, address), HoldersClient(address) as client:
            for _ in range(3):  # each time on another connection
                self.assertEqual(client.holders([]).holders, ())
        self.assertEqual(len(script.connections), 3)
        with scripted(pause=PATIENCE) as (script, address), HoldersClient(address, timeout=0.2) as client:
            with self.assertRaisesRegex(RequestTimeout, "no answer within 0.2 s"):
                client.holders([])
            script.pause, client._timeout = 0.0, PATIENCE
            client.holders([])
            client.close()
            self.assertEqual(client.holders([]).holders, ())
        with scripted(lacks=1, hang_up=True) as (script, address), HoldersClient(address) as client:
            with self.assertRaisesRegex(ConnectionFailed, "1 more expected"):
                client.holders([])
            self.assertEqual(len(script.requests), 1)
        with scripted(drip=0.05) as (script, address), HoldersClient(address, timeout=0.2) as client:
            with self.assertRaisesRegex(RequestTimeout, "no answer within 0.2 s"):  # though no byte is that late
                client.holders([])

    def test_what_cannot_be_asked(self) -> None:
        for address in ("127.0.0.1:1", "tcp://a:1", "http://a", "http://a:x", "http://a:1/query", "http://u@a:1", ""):
            with self.subTest(address), self.assertRaisesRegex(ValueError, "must be http://host:port"):
                HoldersClient(address)
        for token in ("a\nb", "a\r", "\0"):
            with self.assertRaisesRegex(ValueError, "the token has a line break or a zero byte"):
                HoldersClient(token=token)
        with self.assertRaisesRegex(ValueError, "tls is for an address of https://"):
            HoldersClient(tls=ssl.create_default_context())
        with self.assertRaisesRegex(ValueError, "timeout"):
            HoldersClient(timeout=0)
        for make in (
            lambda: HoldersClient(8557),
            lambda: HoldersClient(timeout="1"),
            lambda: HoldersClient("https://a:1", tls="ca.pem"),
        ):
            with self.assertRaises(TypeError):
                make()
        with HoldersClient("http://127.0.0.1:1") as client:
            for asked, text in (
                ({"block_hashes": ["aa"]}, r"block_hashes\[0\] is str, must be bytes"),
                ({"block_hashes": b"aa"}, "block_hashes is bytes, must be a list of bytes"),
                ({"block_hashes": [1.5]}, r"block_hashes\[0\] is float, must be bytes"),
                ({"block_hashes": [array("Q", [1])]}, r"block_hashes\[0\] is array, must be bytes"),
                ({"token_ids": "12"}, r"token_ids\[0\] is '1', must be an int"),
                ({"token_ids": 7}, "token_ids is 7, must be a list of int"),
                ({"token_ids": [1, 1.5]}, r"token_ids\[1\] is 1.5, must be an int"),
                ({"block_hashes": [], "num_tokens": "16"}, "num_tokens is '16', must be an int"),
                ({"block_hashes": [], "block_size": "16"}, "block_size is '16', must be an int"),
                ({"block_hashes": [], "engine": 7}, "engine is 7, must be a str"),
                ({"token_ids": [], "cache_salt": b"s"}, "cache_salt is b's', must be a str"),
            ):
                with self.subTest(asked), self.assertRaisesRegex(TypeError, f"^{text}"):
                    client.holders(**asked)
            for asked, text in (
                ({"block_hashes": [b"a" * 8, b"a" * 9]}, r"block_hashes\[1\] has 9 bytes"),
                ({"token_ids": [5, -3]}, r"token_ids\[1\] is -3, must be 0 to"),
                ({"token_ids": [1 << 63]}, r"token_ids\[0\] is 9223372036854775808, must be 0 to"),
                ({"block_hashes": [], "num_tokens": -1}, "num_tokens is -1, must be 0 to"),
            ):
                with self.subTest(asked), self.assertRaisesRegex(ValueError, f"^{text}"):
                    client.holders(**asked)
        for prompt in ({}, {"block_hashes": [], "token_ids": []}):
            with HoldersClient() as client, self.assertRaisesRegex(ValueError, "and not both"):
                client.holders(**prompt)


@needs_server
class AgainstTheServer(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_answers(self) -> None:
        server = router_server(self)
        blocks = hashes("holders", 3)
        with HoldersClient(f"http://{server.router}") as client:
            self.assertEqual(client.holders(blocks), Holders((), None, {}))
            client.predict("i", blocks[:2], rank=1)
            media = {"GPU": 0, "CPU": 0, "DISK": 0, "predicted": 32}
            want = Holders((Holder("i", 32, media, {1: 32}),), None, {})
            self.assertEqual(client.holders(blocks), want)
            self.assertEqual(client.holders([block[-8:] for block in blocks], model="m"), want)
            self.assertEqual(client.holders(token_ids=range(64)), Holders((), None, {}))
            with Client(server.address) as lookups:
                lookups.store(blocks)
            self.assertEqual(client.holders(blocks, loadable=True).loadable_tokens, 32)
            self.assertEqual(client.holders(blocks, loadable=True, num_tokens=50).loadable_tokens, 48)
            with self.assertRaisesRegex(RefusedError, "no_model"):
                client.holders(blocks, model="x")
            with self.assertRaisesRegex(RefusedError, "bad_field"):
                client.holders([b"a", b"b"])
        with HoldersClient(server.address.replace("tcp", "http")) as client:  # that of lookups
            with self.assertRaisesRegex(ConnectionFailed, NO_HTTP):
                client.holders(blocks)

    @needs_certs
    def test_token_over_tls(self) -> None:
        tokens, own = self.folder / "tokens.yaml", self.folder / "token"
        tokens.write_text('tokens: [{name: router, token: "' + "r" * 32 + '", allow: [holders]}]\n')
        tokens.chmod(0o600)
        own.write_text("r" * 32 + "\n")
        own.chmod(0o600)
        tls = {"cert": f"{CERTS}/server.crt", "key": f"{CERTS}/server.key"}
        server = router_server(self, {"address": "tls://127.0.0.1:0", "tokens": str(tokens), "tls": tls})
        address = f"https://{server.router}"
        with mock.patch.dict(os.environ, {"HITLINE_TLS_CA": f"{CERTS}/ca.crt"}):
            with HoldersClient(address, token_file=own) as client:
                self.assertEqual(client.holders([]), Holders((), None, {}))
                with self.assertRaisesRegex(NotAllowed, "needs the permission lookup"):
                    client.holders([], loadable=True)
            with HoldersClient(address, token="x" * 32) as client, self.assertRaises(NotAuthenticated):
                client.holders([])
        with mock.patch.dict(os.environ, {"HITLINE_TLS_CA": f"{CERTS}/other.crt"}):
            with HoldersClient(address) as client, self.assertRaisesRegex(ConnectionFailed, "certificate"):
                client.holders([])


if __name__ == "__main__":
    unittest.main()
