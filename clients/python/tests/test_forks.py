"""Clients in forked processes, against the real server, over TCP and TLS."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import ssl
import threading
import unittest
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

from hitline import Client, HoldersClient, LookupKeyClient, PrefixScorer
from tests.support import CERTS, PATIENCE, chained, needs_certs, needs_server, router_server, sock_of
from tests.test_holders import scripted

STORED, MISSING = chained("forks", 64), chained("others", 64)
TOKENS = 16 * len(STORED)
HELD, OTHERS = list(range(64)), list(range(64, 128))


class Child:
    """A forked process that makes a call."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._replies, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
            self._pid = os.fork()
        if not self._pid:
            try:
                reply = repr(call())
            except BaseException as error:
                reply = f"raised {error!r}"
            os.write(write, reply.encode())
            os._exit(0)
        os.close(write)

    def result(self) -> str:
        """The repr of what the call returned; empty if it did not end in time."""
        with open(self._replies) as replies:
            if not select.select([replies], [], [], PATIENCE)[0]:
                os.kill(self._pid, signal.SIGKILL)
            found = replies.read()
        os.waitpid(self._pid, 0)
        return found


def poll(client: LookupKeyClient, hashes: list[bytes]) -> Any:
    """Looks up without waiting, until there is an answer."""
    while (hit := client.lookup("r", TOKENS, hashes, non_block=True)) is None:
        pass
    return hit


def held(client: HoldersClient, token_ids: list[int]) -> int:
    return sum(holder.tokens for holder in client.holders(token_ids=token_ids).holders)


# Of each client: the class, whether it asks over HTTP, a call with a prompt, and two prompts with what is held of
# them.
KINDS: dict[str, tuple[Any, bool, Callable[..., Any], tuple[Any, Any], tuple[Any, Any]]] = {
    "Client": (Client, False, lambda c, prompt: c.lookup(TOKENS, prompt), (STORED, TOKENS), (MISSING, 0)),
    "LookupKeyClient": (LookupKeyClient, False, poll, (STORED, TOKENS), (MISSING, 0)),
    "HoldersClient": (HoldersClient, True, held, (HELD, 64), (OTHERS, 0)),
    "choose": (
        PrefixScorer, True, lambda c, prompt: c.choose(prompt, ["e"]), (HELD, {"e": 1.0}), (OTHERS, {"e": 0.0}),
    ),
    "choose_async": (
        PrefixScorer, True, lambda c, prompt: asyncio.run(c.choose_async(prompt, ["e"])),
        (HELD, {"e": 1.0}), (OTHERS, {"e": 0.0}),
    ),
}  # fmt: skip


def sockets(client: Any) -> list[Any]:
    if isinstance(client, PrefixScorer):
        return [sock for each in client._clients for sock in sockets(each)]
    connection = getattr(client, "_connection", None)
    sock = connection.sock if connection else hasattr(client, "_retry") and sock_of(client)
    return [sock] if sock else []


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@needs_server
class OverTCP(unittest.TestCase):
    tls: dict[str, str] = {}

    def setUp(self) -> None:
        scheme = "tls" if self.tls else "tcp"
        listen = {"address": f"{scheme}://127.0.0.1:0", **({"tls": self.tls} if self.tls else {})}
        server = router_server(self, listen, listen, hash_block_size=16)
        self.addresses = server.address, f"http{'s' if self.tls else ''}://{server.router}"
        variables = mock.patch.dict(os.environ, {"HITLINE_TLS_CA": f"{CERTS}/ca.crt"} if self.tls else {})
        variables.start()
        self.addCleanup(variables.stop)
        with Client(server.address) as client:
            client.store(STORED)
        with HoldersClient(self.addresses[1]) as holders:
            holders._post("/predict", json.dumps({"instance_id": "e", "token_ids": HELD}).encode())

    def client(self, name: str) -> Any:
        cls, is_http, *_ = KINDS[name]
        made = cls(self.addresses[is_http], timeout=PATIENCE)
        self.addCleanup(made.close)
        return made

    def test_parent_and_child_ask_at_the_same_time(self) -> None:
        """The parent keeps its connection, also when the child has closed the client."""
        for name, (_, _, ask, (prompt, want), (other, others)) in KINDS.items():
            with self.subTest(name):
                client = self.client(name)
                self.assertEqual(ask(client, prompt), want)
                ours = sockets(client)
                descriptors, names = [sock.fileno() for sock in ours], [sock.getsockname() for sock in ours]
                self.assertEqual([isinstance(sock, ssl.SSLSocket) for sock in ours], [bool(self.tls)])

                def call(client: Any = client, ask: Any = ask, other: Any = other) -> Any:
                    copies = [is_open(descriptor) for descriptor in descriptors]
                    found = [ask(client, other) for _ in range(50)]
                    client.close()
                    return copies, found

                child = Child(call)
                self.assertEqual([ask(client, prompt) for _ in range(50)], [want] * 50)
                self.assertEqual(child.result(), repr(([False], [others] * 50)))
                self.assertEqual(ask(client, prompt), want)
                self.assertEqual([sock.getsockname() for sock in sockets(client)], names)

    def test_a_lock_that_is_held_at_the_fork(self) -> None:
        for name, (_, _, ask, (prompt, want), _) in KINDS.items():
            with self.subTest(name):
                client = self.client(name)
                self.assertEqual(ask(client, prompt), want)
                locked = [client, *getattr(client, "_clients", [])]
                locks = [vars(each).get(lock) for each in locked for lock in ("_lock", "_pending_lock")]
                locks += [client._retry.lock] if hasattr(client, "_retry") else []
                locks += [client._worker._lock] if hasattr(client, "_worker") else []
                if isinstance(client, PrefixScorer):
                    while not client._idle.empty():
                        client._idle.get()  # all are in use
                    locks.append(client._idle.mutex)
                for lock in filter(None, locks):
                    lock.acquire()
                child = Child(lambda client=client, ask=ask, prompt=prompt: ask(client, prompt))  # type: ignore[misc]
                for lock in filter(None, locks):
                    lock.release()
                self.assertEqual(child.result(), repr(want))

    def test_a_pending_lookup_is_the_parents(self) -> None:
        client = self.client("LookupKeyClient")
        release = threading.Event()
        client._worker.submit(release.wait, PATIENCE)
        self.assertIsNone(client.lookup("r", TOKENS, STORED, non_block=True))
        child = Child(lambda: poll(client, MISSING))
        release.set()
        self.assertEqual(child.result(), "0")
        self.assertEqual(poll(client, STORED), TOKENS)

    def test_a_closed_client(self) -> None:
        client = self.client("LookupKeyClient")
        client.close()
        self.assertIn("ConnectionFailed", Child(client.ping).result())
        with self.assertLogs("hitline", "WARNING"):
            self.assertEqual(client.lookup("r", TOKENS, STORED, non_block=True), 0)


@needs_certs
class OverTLS(OverTCP):
    tls = {"cert": f"{CERTS}/server.crt", "key": f"{CERTS}/server.key"}


class Reading(unittest.TestCase):
    def test_an_answer_that_another_thread_reads(self) -> None:
        """The child does not wait for it, and the thread gets it."""
        with scripted(drip=PATIENCE) as (script, address), HoldersClient(address, timeout=PATIENCE) as client:
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(client.holders([]).holders))
            thread.start()
            while not getattr(client._connection, "_HTTPConnection__response", None):  # it has the headers
                thread.join(0.01)
            script.drip = 0.0
            child = Child(lambda: client.holders([]).holders)
            self.assertEqual(child.result(), "()")
            self.assertEqual(found, [])
            script.released.set()
            thread.join(PATIENCE)
            self.assertEqual(found, [()])


if __name__ == "__main__":
    unittest.main()
