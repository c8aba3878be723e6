"""Clients with tokens, and what a server does not allow them, against servers that follow a
script."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import tempfile
import traceback
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, NotAllowed, NotAuthenticated, connection, handshake
from hitline import errors
from tests.support import Scripted, hashes, hit_of, message, named, refusal
from tests.test_client import long_pauses
from tests.test_pools import ACCEPTED, POOL

SECRET = "s3cret-of-the-tests-0123456789"
HIT = message(hit_of(48))


class Peer(Scripted):
    """Knows tokens, and allows connections with one of them what is in replies. Others may do
    nothing."""

    def __init__(self, *tokens: str, **replies: bytes | None) -> None:
        self.tokens = {token.encode() for token in tokens}
        self.replies = {"lookup": HIT, "ping": named(), **replies}
        self.known = False  # whether the connection's last token is
        super().__init__(self._answer)

    def _answer(self, frames: list[bytes]) -> bytes | None:
        name = frames[0].decode()
        if name == "auth":
            self.known = frames[1] in self.tokens
            accepted = message(b"\1", b'{"name": "n", "allow": []}')
            return accepted if self.known else refusal("not_authenticated", name, "no such token")
        if self.tokens and not self.known or name not in self.replies:
            return refusal("not_allowed", name, f"not_allowed: {name}")
        return message(b"\1", frames[1]) if frames[0] == b"ping" and len(frames) > 1 else self.replies[name]

    @property
    def pong(self) -> bytes:
        """The reply to a ping without a payload, which is not recorded."""
        return self._answer([b"ping"]) or b""

    @pong.setter
    def pong(self, _: bytes) -> None:
        pass

    def _serve(self, conn: object) -> None:
        self.known = False
        super()._serve(conn)  # type: ignore[arg-type]

    def __enter__(self) -> Peer:
        return self

    def tags(self) -> list[str]:
        return [frames[0].decode() for frames in self.requests]

    def sent(self) -> list[bytes]:
        """The tokens that it was sent."""
        return [frames[1] for frames in self.requests if frames[0] == b"auth"]


class WithoutVariables(unittest.TestCase):
    def setUp(self) -> None:
        variables = mock.patch.dict(os.environ)
        variables.start()
        self.addCleanup(variables.stop)
        os.environ.pop("HITLINE_TOKEN_FILE", None)

    def file(self, text: bytes = SECRET.encode()) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "token"
        path.write_bytes(text)
        return path


class Tokens(WithoutVariables):
    def test_it_goes_first_on_each_connection(self) -> None:
        with Peer(SECRET, pool=ACCEPTED) as server:
            with Client(server.address, token=SECRET, pool=POOL, raise_errors=True) as client:
                for _ in range(2):
                    self.assertEqual(client.lookup(64, hashes("a", 4)), 48)
                client._retry.drop()
                self.assertEqual(client.lookup(64, hashes("a", 4)), 48)
            self.assertEqual(server.tags(), ["auth", "pool", "lookup", "lookup", "auth", "pool", "lookup"])
            self.assertEqual(server.requests[0], [b"auth", SECRET.encode()])

    def test_a_file_is_read_at_each_connection(self) -> None:
        path = self.file()
        with Peer(SECRET, "other") as server, Client(server.address, token_file=path, raise_errors=True) as client:
            for text in (SECRET, f" {SECRET}\t\r\nsecond line\n", "other", "other\n"):
                path.write_text(text)
                self.assertEqual(client.lookup(64, []), 48)
                client._retry.drop()
            self.assertEqual(server.sent(), [SECRET.encode()] * 2 + [b"other"] * 2)
            path.write_bytes(b"x" * 255)
            with self.assertRaises(NotAuthenticated):
                client.lookup(64, [])
            self.assertEqual(server.sent()[-1], b"x" * 255)

    def test_files_without_a_token(self) -> None:
        for text in (b"", b"\n", b"  \n" + SECRET.encode(), b"x" * 256, b"x" * 1000, None):
            path = self.file(text or b"")
            if text is None:
                path.unlink()
            with self.subTest(text), Peer(SECRET) as server:
                with Client(server.address, token_file=path, raise_errors=True) as client, long_pauses():
                    want = "No such file" if text is None else "its first line must be a token of 1 to 255 bytes"
                    with self.assertRaisesRegex(hitline.ConnectionFailed, f"^cannot read the token of {path}: {want}"):
                        client.lookup(64, [])
                    with self.assertRaisesRegex(hitline.ConnectionFailed, f"^not tried so soon after this: cannot .* {path}: {want}"):
                        client.ping()
                    path.write_text(SECRET)
                    client._retry.retry_at = 0.0
                    self.assertEqual(client.lookup(64, []), 48)

    @unittest.skipUnless(hasattr(os, "mkfifo"), "no pipes with names here")
    def test_a_pipe_is_no_file_of_a_token(self) -> None:
        path = self.file()
        path.unlink()
        os.mkfifo(path)
        for each in (path, path.parent):
            with Peer() as server, Client(server.address, token_file=each) as client:
                with self.assertRaisesRegex(hitline.ConnectionFailed, f"^cannot read the token of {each}: it is no regular file$"):
                    client.ping()

    def test_where_it_comes_from(self) -> None:
        path, other = self.file(), self.file(b"other")
        for variable, arguments, want in (
            ("", {}, []),
            (None, {}, []),
            (path, {}, [SECRET]),
            (path, {"token": ""}, []),
            (path, {"token": "mine"}, ["mine"]),
            (path, {"token_file": other}, ["other"]),
            (path, {"token_file": str(other)}, ["other"]),
        ):
            os.environ.pop("HITLINE_TOKEN_FILE", None)
            if variable is not None:
                os.environ["HITLINE_TOKEN_FILE"] = str(variable)
            for cls in (Client, LookupKeyClient):
                with self.subTest(variable=variable, arguments=arguments), Peer(reset=message(b"\1")) as server:
                    server.tokens = {token.encode() for token in want}
                    with cls(server.address, **arguments) as client:
                        client.reset()
                    self.assertEqual(server.sent(), [token.encode() for token in want])

    def test_arguments(self) -> None:
        for arguments, text in (
            ({"token": "x" * 256}, "^the token has 256 bytes, must have at most 255$"),
            ({"token": "é" * 128}, "^the token has 256 bytes"),
            ({"token": SECRET, "token_file": "f"}, "^token and token_file are both given$"),
            ({"token": "", "token_file": "f"}, "both given"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                Client("tcp://a:1", **arguments)
        with self.assertRaisesRegex(TypeError, "^token is bytes, must be str$"):
            Client("tcp://a:1", token=SECRET.encode())  # type: ignore[arg-type]
        with Peer("é", "x" * 255) as server:
            for token in ("é", "x" * 255):
                with Client(server.address, token=token, raise_errors=True) as client:
                    self.assertEqual(client.lookup(64, []), 48)


class Refusals(WithoutVariables):
    def test_a_token_is_sent_again_after_a_while(self) -> None:
        """With the file read again, on the same connection."""
        path = self.file(b"wrong")
        with Peer(SECRET) as server, Client(server.address, token_file=path, raise_errors=True) as client:
            for call in (lambda: client.lookup(64, []), client.ping, client.check_pool, lambda: client.store([b"k"])):
                with self.assertRaisesRegex(NotAuthenticated, "^no such token$"):
                    call()
            path.write_text(SECRET)
            with self.assertRaises(NotAuthenticated):
                client.ping()
            self.assertEqual(server.sent(), [b"wrong"])
            client._retry.connection.refused.clear()
            self.assertEqual(client.lookup(64, []), 48)
            self.assertEqual(server.sent(), [b"wrong", SECRET.encode()])
            self.assertEqual((server.connections, handshake._RETRY), (1, 10.0))


class Secrets(WithoutVariables):
    @contextlib.contextmanager
    def away_from_loopback(self) -> Iterator[None]:
        with mock.patch.object(connection.ipaddress, "ip_address", return_value=ipaddress.ip_address("192.0.2.1")):
            yield

    def test_a_token_in_plain_text_is_warned_of_once(self) -> None:
        with Peer(SECRET) as server, self.away_from_loopback():
            with Client(server.address, token=SECRET) as client, self.assertLogs("hitline", "WARNING") as logs:
                for _ in range(3):
                    self.assertEqual(client.lookup(64, []), 48)
                    client._retry.drop()
            self.assertEqual(len(logs.output), 1)
            want = f"the token goes to {server.address} in plain text, for all on the way to read; use tls://"
            self.assertIn(want, logs.output[0])
            with self.no_warnings(), Client(server.address, token="") as client:
                with self.assertRaises(NotAllowed):
                    client.ping()

    def test_elsewhere_it_is_not_warned_of(self) -> None:
        with Peer(SECRET) as server, self.no_warnings(), Client(server.address, token=SECRET) as client:
            client.lookup(64, [])
        with mock.patch.object(connection.ipaddress, "ip_address", return_value=ipaddress.ip_address("::ffff:127.0.0.1")):
            with Peer(SECRET) as server, self.no_warnings(), Client(server.address, token=SECRET) as client:
                client.lookup(64, [])
        with tempfile.TemporaryDirectory() as folder, self.away_from_loopback(), self.no_warnings():
            with Scripted(lambda _: message(b"\1"), f"{folder}/s") as server:
                with Client(server.address, token=SECRET) as client:
                    client.reset()

    @contextlib.contextmanager
    def no_warnings(self) -> Iterator[None]:
        with self.assertLogs("hitline") as logs:
            errors.logger.info("one line")
            yield
        self.assertEqual(len(logs.output), 1, logs.output)

    def test_it_is_in_no_text(self) -> None:
        """Nor in a log, an exception with its causes, or a repr."""
        texts: list[str] = []

        def failing(call: Callable[[], object]) -> None:
            try:
                call()
            except Exception as error:
                texts.extend(traceback.format_exception(type(error), error, error.__traceback__))
                texts.append(repr(error))

        path = self.file()
        with self.assertLogs("hitline", "DEBUG") as logs, self.away_from_loopback():
            for arguments in ({"token": SECRET}, {"token_file": path}):
                for replies in (message(b"\1"), message(b"\0", b"no"), message(b"\2"), b"\xff\xff", None):
                    with Scripted(lambda _, r=replies: r) as server:
                        with Client(server.address, timeout=1, **arguments) as client:
                            failing(client.stat)
                            failing(lambda: client.lookup(64, []))
                            texts += [repr(client), str(client)]
            failing(lambda: Client("a:1", token=SECRET * 10))
            failing(lambda: Client("a:1", token=SECRET + "\ud800"))
            failing(lambda: Client("a:1", token=SECRET, token_file="f"))
            failing(lambda: LookupKeyClient("nowhere", token=SECRET))
            path.write_text(SECRET * 20)
            with Scripted(lambda _: HIT) as server, Client(server.address, token_file=path) as client:
                failing(client.ping)
        texts += logs.output
        self.assertGreater(len(texts), 40)
        for text in texts:
            self.assertNotIn(SECRET, text)


if __name__ == "__main__":
    unittest.main()
