"""Clients with credentials, against a server that has tokens, TLS and pools for tenants."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, NotAllowed, NotAuthenticated
from tests.support import CERTS, Server, chained, needs_certs, needs_server
from tests.test_client import eventually

# Tokens by their names. The tokens file does not have that of stranger.
TOKENS = {name: f"{name}-token-0123456789" for name in ("engine", "writer", "operator", "expired", "tenant", "stranger")}

CREDENTIALS: list[dict[str, Any]] = [
    {"name": "engine", "token": TOKENS["engine"], "allow": ["lookup", "stat", "ping", "pool"]},
    {"name": "writer", "token": TOKENS["writer"], "allow": ["store", "evict", "ping"]},
    {"name": "operator", "token": TOKENS["operator"], "allow": "all"},
    {"name": "expired", "token": TOKENS["expired"], "allow": "all", "expires": "2020-01-01T00:00:00Z"},
    {"name": "tenant", "token": TOKENS["tenant"], "allow": "all", "pools": ["llama"]},
    {"name": "engine's certificate", "certificate": "engine.example", "allow": ["lookup", "ping"]},
]

TLS = {"cert": f"{CERTS}/server.crt", "key": f"{CERTS}/server.key"}

# Requests by the permission that they need.
REQUESTS: dict[str, Callable[[Client], object]] = {
    "ping": lambda c: c.ping(),
    "lookup": lambda c: c.lookup(64, chained("a", 4)),
    "stat": lambda c: c.stat(),
    "plan": lambda c: c.plan(64, chained("a", 4)),
    "store": lambda c: c.store(chained("a", 4)),
    "evict": lambda c: c.evict(chained("b", 4)),
    "reset": lambda c: c.reset_rank(),
}
ALL = list(REQUESTS)


@needs_server
@needs_certs
class Permissions(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HITLINE_T")}
        environ = mock.patch.dict(os.environ, {**variables, "HITLINE_TLS_CA": f"{CERTS}/ca.crt"}, clear=True)
        environ.start()
        self.addCleanup(environ.stop)

    def write_tokens(self, credentials: list[dict[str, Any]] = CREDENTIALS) -> str:
        path = self.folder / "tokens.yaml"
        new = self.folder / "new"
        new.write_text(json.dumps({"tokens": credentials}))
        new.rename(path)
        return str(path)

    def server(self, address: str = "tcp://127.0.0.1:0", **listener: Any) -> Server:
        """A server with a pool of its own and the pool llama, and one listener."""
        block = {"hash_block_size": 16}
        config = {"pool": block, "pools": {"llama": block}, "listen": [{"address": address, **listener}]}
        path = self.folder / "hitline.yaml"
        path.write_text(json.dumps(config))
        return Server(config=str(path), POOL="{hash_block_size: 16}")

    def check(self, server: Server, allowed: list[str], **arguments: Any) -> None:
        """A client may make these requests and no others."""
        with Client(server.address, raise_errors=True, **arguments) as client:
            for name, request in REQUESTS.items():
                with self.subTest(arguments=arguments, request=name):
                    raises = contextlib.nullcontext() if name in allowed else self.assertRaisesRegex(NotAllowed, "^not allowed: ")
                    with raises:
                        request(client)

    def test_without_credentials(self) -> None:
        """All is allowed on loopback, unless the listener says otherwise. It has no tokens."""
        with self.server() as server:
            self.check(server, ALL)
            with Client(server.address, token=TOKENS["engine"]) as client, self.assertRaises(NotAuthenticated):
                client.ping()
        with self.server(allow=["lookup", "plan"]) as server:
            self.check(server, ["lookup", "plan"])

    def test_tokens(self) -> None:
        for scheme, more in (("tcp", {}), ("tls", {"tls": TLS})):
            with self.server(f"{scheme}://127.0.0.1:0", tokens=self.write_tokens(), **more) as server:
                self.check(server, ["ping"])
                self.check(server, ["lookup", "stat", "ping"], token=TOKENS["engine"])
                self.check(server, ["store", "evict", "ping"], token=TOKENS["writer"])
                for name in ("expired", "stranger"):
                    with Client(server.address, token=TOKENS[name], raise_errors=True) as client:
                        for request in REQUESTS.values():
                            with self.subTest(name), self.assertRaisesRegex(NotAuthenticated, "^not authenticated: "):
                                request(client)
                with Client(server.address, token=TOKENS["operator"]) as client:
                    stat = client.stat()
                self.check(server, ALL, token=TOKENS["operator"])
            self.assertEqual(stat["auth_failures"], 2)
            # Of these three clients, each of which made each request once.
            self.assertEqual(stat["not_allowed"]["store"], 2)
            self.assertEqual(stat["not_allowed"]["lookup"], 2)
            self.assertEqual(stat["not_allowed"].get("ping", 0), 0)

    def test_certificates(self) -> None:
        tls = {**TLS, "client_ca": f"{CERTS}/ca.crt"}
        with self.server("tls://127.0.0.1:0", tokens=self.write_tokens(), allow=["stat"], tls=tls) as server:
            for name, allowed in (("engine", ["lookup", "ping"]), ("guest", ["stat"])):
                variables = {"HITLINE_TLS_CERT": f"{CERTS}/{name}.crt", "HITLINE_TLS_KEY": f"{CERTS}/{name}.key"}
                with mock.patch.dict(os.environ, variables):
                    self.check(server, allowed)
                    self.check(server, ["store", "evict", "ping"], token=TOKENS["writer"])
            stranger = {"HITLINE_TLS_CERT": f"{CERTS}/stranger.crt", "HITLINE_TLS_KEY": f"{CERTS}/stranger.key"}
            for variables in ({}, stranger):
                with mock.patch.dict(os.environ, variables), Client(server.address) as client:
                    with self.subTest(variables), self.assertRaises(hitline.ConnectionFailed):
                        client.ping()

    def test_a_tenant(self) -> None:
        keys = chained("a", 4)
        with self.server(tokens=self.write_tokens()) as server:
            with Client(server.address, token=TOKENS["tenant"], raise_errors=True) as tenant:
                tenant.store(keys)
                self.assertEqual(tenant.lookup(64, keys), 64)
            for pool, want in ((None, 0), ({"name": "llama"}, 64)):
                with Client(server.address, token=TOKENS["operator"], pool=pool, raise_errors=True) as operator:
                    self.assertEqual(operator.lookup(64, keys), want)
            texts = []
            for name in ("nobody's", "default"):
                with Client(server.address, token=TOKENS["tenant"], pool={"name": name}) as tenant:
                    with self.assertRaises(hitline.PoolRefused) as raised:
                        tenant.check_pool()
                    texts.append(str(raised.exception).replace(name, "NAME"))
            self.assertEqual(texts[0], texts[1])

    def test_a_token_is_replaced(self) -> None:
        """While a client looks up. Its file changes first, as the guide says."""
        keys = chained("a", 4)
        old, new = ({"name": name, "token": f"{name}-token-0123456789", "allow": "all"} for name in ("old", "new"))
        file = self.folder / "token"
        file.write_text(old["token"])
        with self.server(tokens=self.write_tokens([old])) as server:
            with Client(server.address, token_file=file, raise_errors=True) as client:
                client.store(keys)

                def change(*credentials: dict[str, Any]) -> None:
                    self.write_tokens(list(credentials))
                    server.process.send_signal(signal.SIGHUP)

                change(old, new)
                with Client(server.address, token=new["token"]) as other:

                    def known() -> bool:
                        other._auth_retry_at = 0.0
                        with contextlib.suppress(NotAuthenticated):
                            other.ping()
                            return True
                        return False

                    eventually(known, False)
                file.write_text(new["token"])
                self.assertEqual(client.lookup(64, keys), 64)
                before = client._sock
                change(new)

                def moved() -> bool:
                    self.assertEqual(client.lookup(64, keys), 64)
                    return client._sock is not before

                eventually(moved, False)
                change(old)
                with self.assertRaises(NotAuthenticated):
                    eventually(lambda: client.lookup(64, keys), 64)

    def test_an_engine(self) -> None:
        """Its lookups are misses until its token is known."""
        keys = chained("a", 4)
        file = self.folder / "token"
        file.write_text(TOKENS["stranger"])
        variables = mock.patch.dict(os.environ, HITLINE_TOKEN_FILE=str(file))
        with self.server("tls://127.0.0.1:0", tokens=self.write_tokens(), tls=TLS) as server:
            with Client(server.address, token=TOKENS["operator"]) as operator:
                operator.store(keys)
            with variables, LookupKeyClient(server.address, pool={"hash_block_size": 16}) as engine:
                with self.assertLogs("hitline", "WARNING") as logs:
                    self.assertEqual([engine.lookup("r", 64, keys) for _ in range(3)], [0] * 3)
                self.assertEqual(len(logs.output), 1)
                self.assertNotIn(TOKENS["stranger"], logs.output[0])
                file.write_text(TOKENS["engine"])
                engine._auth_retry_at = 0.0
                self.assertEqual(engine.lookup("r", 64, keys), 64)


if __name__ == "__main__":
    unittest.main()
