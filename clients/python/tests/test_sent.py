"""Every option of the clients, and every argument about a prompt, changes what is sent or what happens."""

from __future__ import annotations

import contextlib
import inspect
import re
import ssl
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hitline import (
    VLLM_RELEASES,
    Client,
    ConnectionFailed,
    HoldersClient,
    LookupKeyClient,
    PrefixScorer,
    RefusedError,
    RequestTimeout,
    WrongRelease,
)
from tests import support
from tests.support import CERTS, PATIENCE, Scripted, hashes, message, needs_certs, refusal, server_context
from tests.test_holders import Script, scripted

HASHES = hashes("sent", 2)
OPENAPI = Path(__file__).parents[3] / "router/httpapi/openapi.yaml"

# What each argument about a prompt is when it says something.
PROMPT: dict[str, Any] = {
    "block_hashes": HASHES, "token_ids": [1], "model": "m", "tenant": "t", "engine": "e", "rank": 1, "block_size": 16,
    "loadable": True, "last_known": True, "kv_hints": True, "num_tokens": 7,
    "lora_name": "l", "lora_path": "/l", "cache_salt": "s",
}  # fmt: skip


class Secured(Scripted):
    context = server_context() if CERTS else None


class SecuredScript(Script):
    def setup(self) -> None:
        self.request = server_context().wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(ssl.SSLError):  # the client does not trust it: there is nothing to read
            self.request.do_handshake()
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()


def parameters(function: Callable[..., Any]) -> list[str]:
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "address")]
    assert names
    return names


def context(name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=f"{CERTS}/{name}.crt")


def answer(frames: list[bytes]) -> bytes:
    replies = {b"auth": message(b"\1"), b"pool": support.pool_reply("0.28.0"), b"stat": support.stat_reply("0.28.0")}
    return replies.get(frames[0], refusal("bad_request"))


class Sent(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.token_file = Path(folder.name, "token")
        self.token_file.write_text("of-a-file\n")
        self.token_file.chmod(0o600)

    def asked(self, kind: type[Client], **options: Any) -> list[list[bytes]]:
        """What a client sends for a store, which is refused."""
        with Scripted(answer) as server, kind(server.address, timeout=PATIENCE, **options) as client:
            with self.assertRaises(RefusedError):
                client.store(HASHES)
            return server.requests

    @needs_certs
    def test_options_of_clients(self) -> None:
        def timeout(kind: type[Client]) -> None:
            with Scripted(lambda _: Scripted.SILENCE) as server, kind(server.address, timeout=0.05) as client:
                with self.assertRaises(RequestTimeout):
                    client.store(HASHES)

        def raise_errors(kind: type[Client]) -> None:
            with Scripted(answer) as server, kind(server.address, raise_errors=True) as client:
                with self.assertRaises(RefusedError):
                    client.lookup(*(["r"] if kind is LookupKeyClient else []), 16, HASHES)

        def vllm(kind: type[Client]) -> None:
            with Scripted(answer) as server, kind(server.address, raise_errors=True, vllm=VLLM_RELEASES[-1]) as client:
                with self.assertRaises(WrongRelease):
                    client.lookup(*(["r"] if kind is LookupKeyClient else []), 16, HASHES)

        def on_instance(kind: type[Client]) -> None:
            met: list[Any] = []
            self.asked(kind, on_instance=met.append)
            self.assertEqual(len(met), 1)

        def tls(kind: type[Client]) -> None:
            for authority, error in (("ca", RefusedError), ("other", ConnectionFailed)):
                with Secured(answer) as server, kind(server.address, tls=context(authority)) as client:
                    with self.assertRaises(error):
                        client.store(HASHES)

        effects: Mapping[str, Callable[[type[Client]], Any]] = {
            "timeout": timeout,
            "raise_errors": raise_errors,
            "vllm": vllm,
            "on_instance": on_instance,
            "tls": tls,
            "pool": lambda kind: self.assertIn([b"pool", b'{"name":"p"}'], self.asked(kind, pool={"name": "p"})),
            "token": lambda kind: self.assertIn([b"auth", b"a-token"], self.asked(kind, token="a-token")),
            "token_file": lambda kind: self.assertIn(
                [b"auth", b"of-a-file"], self.asked(kind, token_file=self.token_file)
            ),
        }
        for kind in (Client, LookupKeyClient):
            for name in parameters(kind.__init__):
                with self.subTest(f"{kind.__name__}: {name}"):
                    effects[name](kind)

    @needs_certs
    def test_options_of_holders_clients(self) -> None:
        def token(**options: Any) -> str:
            with scripted() as (script, address), HoldersClient(address, **options) as client:
                client.holders([])
                return str(script.requests[0][2]["Authorization"])

        def timeout() -> None:
            with scripted(pause=PATIENCE) as (_, address), HoldersClient(address, timeout=0.05) as client:
                with self.assertRaises(RequestTimeout):
                    client.holders([])

        def tls() -> None:
            with scripted(SecuredScript) as (_, address):
                address = address.replace("http://", "https://")
                with HoldersClient(address, tls=context("ca")) as client:
                    client.holders([])
                with HoldersClient(address, tls=context("other")) as client, self.assertRaises(ConnectionFailed):
                    client.holders([])

        effects: Mapping[str, Callable[[], Any]] = {
            "timeout": timeout,
            "tls": tls,
            "token": lambda: self.assertEqual(token(token="a-token"), "Bearer a-token"),
            "token_file": lambda: self.assertEqual(token(token_file=self.token_file), "Bearer of-a-file"),
        }
        for name in parameters(HoldersClient.__init__):
            with self.subTest(name):
                effects[name]()

    def test_arguments_about_a_prompt(self) -> None:
        sent: set[str] = set()
        for method in (HoldersClient.holders, HoldersClient.predict):
            for name in parameters(method):
                with self.subTest(f"{method.__name__}: {name}"), scripted() as (script, address):
                    with HoldersClient(address) as client:
                        base = {"engine": "x"} if method is HoldersClient.predict else {}
                        for more in ({}, {name: PROMPT[name]}):
                            arguments = {**base, **more}
                            if "token_ids" not in more:
                                arguments.setdefault("block_hashes", [])
                            method(client, **arguments)
                    self.assertNotEqual(script.requests[0][1], script.requests[1][1])
                    sent.update(script.requests[1][1])
        described = OPENAPI.read_text().partition("\n    Query:\n")[2].partition("\n    Predict:\n")[0]
        fields = set(re.findall(r"^        (\w+):", described, re.MULTILINE)) - {"modelname", "model_name", "block_hash"}
        self.assertEqual(sent, fields | {"dp_rank"})  # dp_rank is of /predict alone

    def test_options_of_scorers(self) -> None:
        def body(**options: Any) -> Any:
            with scripted() as (script, address), PrefixScorer(address, **{"timeout": PATIENCE, **options}) as scorer:
                scorer.choose([1], ["e"])
                return script.requests[0]

        def timeout() -> None:
            with scripted(pause=PATIENCE) as (_, address), PrefixScorer(address, timeout=0.05) as scorer:
                with self.assertLogs("hitline", "WARNING"):
                    self.assertEqual(scorer.choose([1], ["e"]), {})

        def connections() -> None:
            with scripted(pause=PATIENCE) as (script, address):
                with PrefixScorer(address, timeout=PATIENCE, connections=3) as scorer:
                    threads = [threading.Thread(target=scorer.choose, args=([1], ["e"])) for _ in range(3)]
                    for thread in threads:
                        thread.start()
                    until = time.monotonic() + PATIENCE
                    while len(script.connections) < 3 and time.monotonic() < until:
                        time.sleep(0.001)
                    self.assertEqual(len(script.connections), 3)
                    script.released.set()
                    for thread in threads:
                        thread.join(PATIENCE)

        effects: Mapping[str, Callable[[], Any]] = {
            "timeout": timeout,
            "connections": connections,
            "model": lambda: self.assertEqual(body(model="m")[1]["model"], "m"),
            "tenant": lambda: self.assertEqual(body(tenant="t")[1]["tenant_id"], "t"),
            "store_weight": lambda: self.assertTrue(body(store_weight=0.5)[1]["loadable"]),
            "last_known": lambda: self.assertTrue(body(last_known=True)[1]["last_known"]),
            "client": lambda: self.assertEqual(body(token="a-token")[2]["Authorization"], "Bearer a-token"),
        }
        for name in parameters(PrefixScorer.__init__):
            with self.subTest(name):
                effects[name]()
        for adapter in ("lora_name", "lora_path", "cache_salt"):
            with scripted() as (script, address), PrefixScorer(address, timeout=PATIENCE) as scorer:
                scorer.choose([1], ["e"], **{adapter: "x"})
                scorer.predict([1], "e", **{adapter: "x"})
                self.assertEqual([request[1][adapter] for request in script.requests], ["x", "x"])


if __name__ == "__main__":
    unittest.main()
