"""Clients over TLS, against servers that follow a script. Certificates are those that the Go
test has written."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import ssl
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

import hitline
from hitline import Client, LookupKeyClient, connection
from tests import test_async, test_client, test_pools
from tests.support import CERTS, PATIENCE, Scripted, message, server_context, sock_of

HIT = message((48).to_bytes(4, "big"))


class OverTLS(unittest.TestCase):
    """Its servers have the certificate server, and clients trust its authority."""

    def setUp(self) -> None:
        super().setUp()
        if not CERTS:
            self.skipTest("HITLINE_TEST_CERTS names no folder of certificates")
        variables = {k: v for k, v in os.environ.items() if not k.startswith("HITLINE_T")}
        for target in (
            mock.patch.dict(os.environ, {**variables, "HITLINE_TLS_CA": f"{CERTS}/ca.crt"}, clear=True),
            mock.patch.object(Scripted, "context", server_context()),
        ):
            target.start()
            self.addCleanup(target.stop)


# What holds without TLS holds with it.
class Failures(OverTLS, test_client.Failures):
    pass


class Connections(OverTLS, test_client.Connections):
    pass


class Pools(OverTLS, test_pools.Requests):
    pass


class WithoutWaiting(OverTLS, test_async.Async):
    pass


class Records(OverTLS):
    def test_tickets_do_not_end_an_idle_connection(self) -> None:
        with Scripted(lambda _: HIT) as server:
            with test_client.connected(Client(server.address, raise_errors=True)) as client:
                assert sock_of(client) is not None
                self.assertTrue(select.select([sock_of(client)], [], [], PATIENCE)[0])  # they are there
                self.assertEqual(client.lookup(64, []), 48)
            self.assertEqual(server.connections, 1)

    def test_messages_of_many_records(self) -> None:
        counters = {"text": "x" * 300_000}
        with Scripted(lambda _: message(b"\1", json.dumps(counters).encode())) as server:
            with Client(server.address) as client:
                for _ in range(3):
                    self.assertEqual(client.stat(), counters)
                client.store([bytes(32)] * 400_000)  # more than the buffers of the sockets take
            self.assertEqual(server.requests[3][3], bytes(12_800_000))
            self.assertEqual(server.connections, 1)

    def test_close_leaves_the_encryption(self) -> None:
        """Otherwise a thread inside a request would send the rest of it in plain text."""
        with Scripted(lambda _: HIT) as server, Client(server.address) as client:
            client.lookup(64, [])
            sock = sock_of(client)
            assert isinstance(sock, ssl.SSLSocket)
            with client._retry.lock:  # as in a request
                closing = threading.Thread(target=client.close)
                closing.start()
                self.assertTrue(select.select([sock], [], [], PATIENCE)[0])
                with self.assertRaises(OSError):
                    sock.setblocking(True)
                    while sock.recv(1):
                        pass
                    sock.send(b"x")
                self.assertIsNotNone(sock._sslobj)  # type: ignore[attr-defined]
            closing.join(PATIENCE)

    def test_close_wakes_a_handshake(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = Client(f"tls://127.0.0.1:{silent.getsockname()[1]}", timeout=PATIENCE * 2)
            failed: list[Exception] = []

            def ask() -> None:
                try:
                    client.ping()
                except hitline.ConnectionFailed as error:
                    failed.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            conn, _ = silent.accept()
            with conn:
                self.assertTrue(conn.recv(1))  # the handshake has begun
                client.close()
                thread.join(PATIENCE)
            self.assertEqual(len(failed), 1)

    def test_timeout_bounds_a_handshake(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            begun = time.monotonic()
            with Client(f"tls://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05) as client:
                with self.assertRaisesRegex(hitline.RequestTimeout, "timed out"):
                    client.ping()
                with self.assertRaisesRegex(hitline.ConnectionFailed, "^not tried until a ping is answered, after this: .*timed out"):
                    client.ping()
            self.assertLess(time.monotonic() - begun, PATIENCE / 2)


class Certificates(OverTLS):
    def refused(self, text: str, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        """The client refuses the server, and sends nothing."""
        with Scripted(lambda _: HIT) as server:
            with Client(server.address_of(host), timeout=PATIENCE, tls=tls) as client:
                with self.assertRaisesRegex(hitline.ConnectionFailed, text):
                    client.ping()
                with self.assertLogs("hitline", "WARNING"):
                    self.assertEqual(client.lookup(64, []), 0)
            self.assertEqual(server.requests, [])

    def test_the_host_of_the_address(self) -> None:
        with Scripted(lambda _: HIT) as server:
            for host in ("127.0.0.1", "localhost"):
                with Client(server.address_of(host), raise_errors=True) as client:
                    self.assertEqual(client.lookup(64, []), 48)
                with LookupKeyClient(server.address_of(host), raise_errors=True) as engine:
                    self.assertEqual(engine.lookup("r", 64, []), 48)
        with mock.patch.object(Scripted, "context", server_context("elsewhere")):
            self.refused("CERTIFICATE_VERIFY_FAILED.*IP address mismatch")
            self.refused("CERTIFICATE_VERIFY_FAILED.*Hostname mismatch", "localhost")

    def test_a_server_that_is_not_trusted(self) -> None:
        with mock.patch.object(Scripted, "context", server_context("expired")):
            self.refused("expired")
        with mock.patch.dict(os.environ, HITLINE_TLS_CA=f"{CERTS}/other.crt"):
            self.refused("CERTIFICATE_VERIFY_FAILED")
        with mock.patch.dict(os.environ, HITLINE_TLS_CA=""):  # the system's
            self.refused("CERTIFICATE_VERIFY_FAILED")

    def test_older_tls(self) -> None:
        old = server_context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with mock.patch.object(Scripted, "context", old):
            self.refused("(?i)protocol.version")

    def test_a_context_of_the_caller(self) -> None:
        context = ssl.create_default_context(cafile=f"{CERTS}/other.crt")
        self.refused("CERTIFICATE_VERIFY_FAILED", tls=context)
        context.load_verify_locations(f"{CERTS}/ca.crt")
        with mock.patch.dict(os.environ, HITLINE_TLS_CA="/nowhere", HITLINE_TLS_CERT="/nowhere"):
            with Scripted(lambda _: HIT) as server, Client(server.address, tls=context, raise_errors=True) as client:
                self.assertEqual(client.lookup(64, []), 48)
        with self.assertRaisesRegex(ValueError, "tls is for an address of tls://"):
            Client("tcp://a:1", tls=context)

    def test_a_clients_certificate(self) -> None:
        """Its files are read at each connection."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cert, key = (str(Path(folder.name) / name) for name in ("cert", "key"))

        def use(name: str) -> None:
            shutil.copy(f"{CERTS}/{name}.crt", cert)
            shutil.copy(f"{CERTS}/{name}.key", key)

        names: list[object] = []

        def answer(_: list[bytes]) -> bytes:
            names.append(server._conns[-1].getpeercert()["subjectAltName"][0][1])  # type: ignore[attr-defined]
            return HIT

        context = mock.patch.object(Scripted, "context", server_context(client_ca="ca"))
        with context, Scripted(answer) as server, mock.patch.dict(os.environ, HITLINE_TLS_CERT=cert, HITLINE_TLS_KEY=key):
            use("engine")
            with Client(server.address, raise_errors=True) as client:
                for name in ("engine", "guest"):
                    use(name)
                    self.assertEqual(client.lookup(64, []), 48)
                    client._retry.drop()
                os.remove(cert)
                with self.assertRaisesRegex(hitline.ConnectionFailed, "HITLINE_TLS_CERT is .*No such file"):
                    client.lookup(64, [])
            use("stranger")
            with Client(server.address, raise_errors=True) as client, self.assertRaises(hitline.ConnectionFailed):
                client.lookup(64, [])
            self.assertEqual(names, ["engine.example", "guest.example"])
        with context, Scripted(answer) as server, Client(server.address) as client:
            with self.assertRaises(hitline.ConnectionFailed):
                client.ping()

    def test_files_that_cannot_be_used(self) -> None:
        cert, key = f"{CERTS}/engine.crt", f"{CERTS}/engine.key"
        for variables, text in (
            ({"CA": "/nowhere"}, "^HITLINE_TLS_CA is '/nowhere', must be a file of certificates in PEM: .*No such file"),
            ({"CA": key}, "^HITLINE_TLS_CA is .*engine.key"),
            ({"CERT": cert}, "^HITLINE_TLS_CERT and HITLINE_TLS_KEY must be set together$"),
            ({"KEY": key}, "together"),
            ({"CERT": cert, "KEY": f"{CERTS}/guest.key"}, "^HITLINE_TLS_CERT is .*engine.crt"),
            ({"CERT": "/nowhere", "KEY": key}, "^HITLINE_TLS_CERT is '/nowhere'.*No such file"),
        ):
            with self.subTest(variables), mock.patch.dict(os.environ, {f"HITLINE_TLS_{k}": v for k, v in variables.items()}):
                for cls in (Client, LookupKeyClient):
                    with self.assertRaisesRegex(ValueError, text):
                        cls("tls://127.0.0.1:1")
                Client("tcp://127.0.0.1:1").close()  # needs none

    def test_an_encrypted_key_asks_nobody(self) -> None:
        """OpenSSL itself would ask the terminal for its password."""
        key = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\nAAAA\n"
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(f"-----BEGIN EC PRIVATE KEY-----\n{key}-----END EC PRIVATE KEY-----\n")
            file.flush()
            variables = mock.patch.dict(os.environ, HITLINE_TLS_CERT=f"{CERTS}/engine.crt", HITLINE_TLS_KEY=file.name)
            with variables, mock.patch.object(connection, "_no_password", return_value="") as asked:
                with self.assertRaisesRegex(ValueError, "^HITLINE_TLS_CERT is "):
                    Client("tls://a:1")
                asked.assert_called_once_with()


if __name__ == "__main__":
    unittest.main()
