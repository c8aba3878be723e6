"""Servers to test against: the real one, and one that follows a script."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from hitline import VLLM_RELEASES
from hitline.engine_client import EngineClient, Settings
from hitline.probe import Probe

# Set by the Go test that runs these tests.
BINARY = os.environ.get("HITLINE_TEST_BINARY", "")
RELEASES = os.environ.get("HITLINE_TEST_RELEASES", "")
WHEELS = os.environ.get("HITLINE_TEST_WHEELS", "")
CONFIGS = os.environ.get("HITLINE_TEST_CONFIGS", "")
CERTS = os.environ.get("HITLINE_TEST_CERTS", "")

PATIENCE = 20.0

NEWEST = VLLM_RELEASES[-1]
UNKNOWN = "999.0.0"  # a release that vLLM does not have

needs_certs = unittest.skipUnless(CERTS, "HITLINE_TEST_CERTS names no folder of certificates")
needs_server = unittest.skipUnless(BINARY, "HITLINE_TEST_BINARY names no hitline to run")


def hashes(name: str, count: int, size: int = 32) -> list[bytes]:
    return [hashlib.sha256(f"{name}:{i}".encode()).digest()[:size] for i in range(count)]


def chained(name: str, count: int, size: int = 32, behind: Sequence[bytes] = ()) -> list[bytes]:
    """Hashes that stand for all in front of them, as an engine's do: behind, and count
    more."""
    chain = list(behind)
    for i in range(count):
        link = b"".join(chain[-1:]) + f"{name}:{i}".encode()
        chain.append(hashlib.sha256(link).digest()[:size])
    return chain


def stat_reply(vllm: str) -> bytes:
    """A reply to stat, as of a server whose pool fits these releases of vLLM."""
    return message(b"\1", json.dumps({"vllm": vllm}).encode())


def hit_of(tokens: int, vllm: str = VLLM_RELEASES[-1]) -> bytes:
    """The frame of a hit in a pool of one group: from vLLM 0.29.0 on it has a tail boundary."""
    is_old = VLLM_RELEASES.index(vllm) < VLLM_RELEASES.index("0.29.0")
    return struct.pack(">I", tokens) if is_old else struct.pack(">III", tokens, 0, tokens)


def pool_reply(vllm: str, backend: str = "memory", **fields: Any) -> bytes:
    """A reply to a pool, as of a server whose pool fits these releases of vLLM. Each block of the
    scheduler has two hashes."""
    sizes = {"hash_block_size": 8, "scheduler_block_size": 16}
    described = {"vllm": vllm, "backend": backend, "alignment": 16, "pool": sizes, **fields}
    return message(b"\1", json.dumps(described).encode())


def sock_of(client: Any) -> Any:
    """The socket of a client's connection, None if it has none."""
    connection = client._retry.connection
    return connection and connection.sock


def resume(client: Any) -> None:
    """Has a client's requests no longer fail at once, and pings be none."""
    client._retry.probe.stop()
    client._retry.probe = Probe(lambda: True, wait=lambda _: True)
    client._retry.retry_at = 0.0


def engine_client(
    test: unittest.TestCase, address: str, release: str = "0.24.0", timeout: float = PATIENCE, **named: Any
) -> EngineClient:
    """The client of an engine, which the plug-in makes; named are attributes of it."""

    class Engine(EngineClient):
        settings = Settings(address, "", timeout, release, "fail", "")

    with mock.patch.object(Engine._logger, "disabled", True):
        client = Engine(object())
    test.addCleanup(client.close)
    vars(client).update(named)
    return client


def unused_address(test: unittest.TestCase) -> str:
    """An address that refuses connections until the test ends: its port is bound, so
    that nobody else is given it."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    test.addCleanup(sock.close)
    return f"tcp://127.0.0.1:{sock.getsockname()[1]}"


def lasting_address() -> str:
    """An address for a server that is started again: its port is none of those that
    the system gives to who asks for any."""
    while True:
        port = random.randrange(12_000, 22_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return f"tcp://127.0.0.1:{port}"


def mooncake_config(test: unittest.TestCase, **fields: Any) -> str:
    """A configuration of Mooncake, whose master nobody is."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    path = Path(folder.name) / "mooncake.json"
    path.write_text(json.dumps({"master_server_address": "127.0.0.1:1", **fields}))
    return str(path)


def refusal(code: str, request: str = "", text: str = "no", status: bytes = b"\0", **fields: Any) -> bytes:
    """A reply that refuses a request, or with the status 04 does a part of it."""
    return message(status, text.encode(), json.dumps({"refusal": code, "request": request, **fields}).encode())


def named(instance: str = "00" * 8, start_time: str = "") -> bytes:
    """A reply to a ping that names an instance."""
    return message(b"\1", json.dumps({"instance": instance, "start_time": start_time, "protocol": 1}).encode())


class Server:
    """A hitline process: one full-attention group, blocks of 16 tokens, unless
    settings, variables without HITLINE_ in front, say otherwise. With POOL or ACCEPT_POOLS
    among them it has no pool but theirs. It listens where config, a file, says if there is one."""

    def __init__(self, *listen: str, config: str = "", **settings: str) -> None:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("HITLINE_")}
        default = {} if settings.keys() & {"POOL", "ACCEPT_POOLS"} else {"POOL_HASH_BLOCK_SIZE": "16"}
        settings = {**default, "LOG_FORMAT": "json", **settings}
        environ.update((f"HITLINE_{name}", value) for name, value in settings.items())
        command = [BINARY, "serve"]
        if config:
            command += ["--config", config]
        for address in listen or (() if config else ("tcp://127.0.0.1:0",)):
            command += ["--listen", address]
        self.process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.addresses: list[str] = []
        self.router = ""  # host:port of router.listen
        said = []
        for line in self.process.stderr:
            said.append(line)
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if record.get("msg") == "ready":
                    self.addresses, self.router = record["listen"], record.get("router", "")
                    break
        if not self.addresses:
            self.stop()
            raise RuntimeError("".join(said))
        self.address = self.addresses[0]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        self.process.wait(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def router_server(
    test: unittest.TestCase, router: Any = "127.0.0.1:0", listen: Any = "tcp://127.0.0.1:0", **pool: Any
) -> Server:
    """A server of a pool, with a router of one model at the address router, until the test ends."""
    models = [{"name": "m", "block_size": 16, "hash": {"type": "vllm"}}]
    config = {"listen": [listen], "pool": pool or {"vllm": NEWEST}, "router": {"listen": router, "models": models}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hitline.json"
        path.write_text(json.dumps(config))
        server = Server(config=str(path))
    test.addCleanup(server.stop)
    return server


def frame(body: bytes, more: bool = False) -> bytes:
    if len(body) < 256:
        return bytes([more, len(body)]) + body
    return bytes([2 | more]) + struct.pack(">Q", len(body)) + body


def message(*frames: bytes) -> bytes:
    return b"".join(frame(f, i < len(frames) - 1) for i, f in enumerate(frames))


def read_message(file: BinaryIO) -> list[bytes]:
    """Reads a request; EOFError if the peer closed before it."""
    frames = []
    while True:
        head = file.read(2)
        if len(head) < 2:
            raise EOFError
        flags, size = head
        if flags & 2:
            (size,) = struct.unpack(">Q", bytes([size]) + file.read(7))
        body = file.read(size)
        if len(body) < size:
            raise EOFError
        frames.append(body)
        if not flags & 1:
            return frames


class Scripted:
    """Accepts one connection after the other; answer(frames) gives the bytes to
    reply, None to close the connection, SILENCE to say nothing more on it. A ping without
    further frames is no request of a test: it is answered with pong. With a context its TCP
    connections are TLS."""

    SILENCE = b""
    context: ssl.SSLContext | None = None

    def __init__(self, answer: Callable[[list[bytes]], bytes | None], path: str = "") -> None:
        self.answer = answer
        self.pong = named()
        self.stopping = threading.Event()
        self.requests: list[list[bytes]] = []
        self.connections = 0
        if path:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(path)
            self._listener.listen()
            self.address = f"ipc://{path}"
        else:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self.port = self._listener.getsockname()[1]
            self.address = self.address_of("127.0.0.1")
        self._is_tls = self.context is not None and not path
        self._conns: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def address_of(self, host: str) -> str:
        """The address of its TCP port at a host."""
        return f"{'tls' if self.context else 'tcp'}://{host}:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn, _ = self._listener.accept()
                self.connections += 1
                with contextlib.suppress(EOFError, OSError), self._secured(conn) as conn:
                    self._conns.append(conn)
                    self._serve(conn)

    def _secured(self, conn: socket.socket) -> socket.socket:
        if not self._is_tls:
            return conn
        assert self.context is not None
        conn.settimeout(PATIENCE)
        return self.context.wrap_socket(conn, server_side=True)

    def _serve(self, conn: socket.socket) -> None:
        with conn.makefile("rb") as file:  # may read ahead
            while True:
                frames = read_message(file)
                if frames == [b"ping"]:
                    conn.sendall(self.pong)
                    continue
                self.requests.append(frames)
                reply = self.answer(frames)
                if reply is None:
                    return
                if reply == self.SILENCE:
                    file.read()  # until the client closes
                    return
                conn.sendall(reply)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for conn in self._conns:
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Deaf(Scripted):
    """Accepts connections and reads nothing."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)

    def _serve(self, conn: socket.socket) -> None:
        self.stopping.wait(PATIENCE)


def server_context(name: str = "server", client_ca: str = "") -> ssl.SSLContext:
    """The context of a server with a certificate of CERTS, which wants clients to have one of
    client_ca."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{CERTS}/{name}.crt", f"{CERTS}/{name}.key")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(f"{CERTS}/{client_ca}.crt")
    return context


@contextlib.contextmanager
def no_thread_left(test: unittest.TestCase) -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    test.assertEqual(set(threading.enumerate()) - before, set())
