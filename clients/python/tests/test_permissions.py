"""Clients with credentials, against a server with tokens that wants certificates: a smoke test. Which
request needs which permission is the server's to test."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, NotAllowed, NotAuthenticated
from tests.support import CERTS, Server, chained, needs_certs, needs_server
from tests.test_client import eventually

OLD, NEW, WRITER = ("old-token-0123456789", "new-token-0123456789", "writer-token-0123456789")
ENGINE = {"name": "engine", "token": OLD, "allow": ["lookup", "ping", "pool"]}


@needs_server
@needs_certs
class Permissions(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("HITLINE_T")}
        variables.update(HITLINE_TLS_CA=f"{CERTS}/ca.crt", HITLINE_TLS_CERT=f"{CERTS}/engine.crt", HITLINE_TLS_KEY=f"{CERTS}/engine.key")
        environ = mock.patch.dict(os.environ, variables, clear=True)
        environ.start()
        self.addCleanup(environ.stop)
        tls = {"cert": f"{CERTS}/server.crt", "key": f"{CERTS}/server.key", "client_ca": f"{CERTS}/ca.crt"}
        self.write_tokens(ENGINE)
        listen = {"address": "tls://127.0.0.1:0", "tls": tls, "tokens": str(self.folder / "tokens.yaml")}
        (self.folder / "hitline.yaml").write_text(json.dumps({"listen": [listen]}))
        self.server = Server(config=str(self.folder / "hitline.yaml"))
        self.addCleanup(self.server.stop)
        self.keys = chained("a", 4)
        with Client(self.server.address, token=WRITER) as writer:
            writer.store(self.keys)

    def write_tokens(self, *credentials: dict) -> None:
        new = self.folder / "new"
        new.write_text(json.dumps({"tokens": [*credentials, {"name": "writer", "token": WRITER, "allow": ["store"]}]}))
        new.rename(self.folder / "tokens.yaml")

    def test_one_request_is_allowed_and_another_is_not(self) -> None:
        with Client(self.server.address, token=OLD, raise_errors=True) as client:
            self.assertEqual(client.lookup(64, self.keys), 64)
            with self.assertRaisesRegex(NotAllowed, "^not allowed: store; "):
                client.store(self.keys)
        with Client(self.server.address, token=NEW, raise_errors=True) as client, self.assertRaises(NotAuthenticated):
            client.lookup(64, self.keys)

    def test_an_expired_certificate(self) -> None:
        expired = mock.patch.dict(os.environ, HITLINE_TLS_CERT=f"{CERTS}/late.crt", HITLINE_TLS_KEY=f"{CERTS}/late.key")
        with expired, Client(self.server.address, token=OLD) as client, self.assertRaises(hitline.ConnectionFailed):
            client.ping()

    def test_a_token_is_replaced(self) -> None:
        """Lookups of an engine are misses until it has the new one."""
        file = self.folder / "token"
        file.write_text(OLD)
        token = mock.patch.dict(os.environ, HITLINE_TOKEN_FILE=str(file))
        with token, LookupKeyClient(self.server.address, pool={"hash_block_size": 16}) as engine:
            self.assertEqual(engine.lookup("r", 64, self.keys), 64)
            self.write_tokens({**ENGINE, "token": NEW})
            self.server.process.send_signal(signal.SIGHUP)
            with self.assertLogs("hitline", "WARNING") as logs:
                eventually(lambda: engine.lookup("r", 64, self.keys), 64)
            self.assertNotIn(OLD, "".join(logs.output))
            file.write_text(NEW)
            engine._retry.connection.refused.clear()
            self.assertEqual(engine.lookup("r", 64, self.keys), 64)


if __name__ == "__main__":
    unittest.main()
