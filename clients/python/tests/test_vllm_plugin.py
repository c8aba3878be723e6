"""The plug-in, in a stand-in for vLLM that has the modules and names it touches."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import tempfile
import threading
import time
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from hitline import VLLM_RELEASES, LookupKeyClient, RequestTimeout, engine_client, vllm_plugin
from hitline.lookup_steps import ServedPool
from tests.support import (
    CERTS,
    NEWEST,
    PATIENCE,
    Scripted,
    hashes,
    hit_of,
    message,
    named,
    needs_certs,
    pool_reply,
    refusal,
    server_context,
)

WORKER, SCHEDULER = vllm_plugin.MODULES
DATA = vllm_plugin.DATA

# The release of the stand-in, where a test names no other.
RELEASE = NEWEST
BEFORE_RESULTS = list(VLLM_RELEASES)[: list(VLLM_RELEASES).index("0.29.0")]

DATA_TEXT = """
from dataclasses import dataclass


@dataclass(frozen=True)
class TailKeyBoundary:
    group_id: int
    num_tokens: int


@dataclass(frozen=True)
class MooncakeLookupResult:
    hit_length: int
    tail_key_boundaries: "tuple[TailKeyBoundary, ...]" = ()
"""

WORKER_TEXT = """
class LookupKeyClient:
    def __init__(self, vllm_config):
        raise AssertionError("the one that was to be replaced")

    def lookup(self, req_id, num_tokens, block_hashes, non_block=False):
        pass

    def discard(self, req_id):
        pass

    def reset(self):
        pass

    def close(self):
        pass


class LookupKeyServer:
    pass
"""

SCHEDULER_TEXT = f"""
from {WORKER} import (
    LookupKeyClient,
)


class MooncakeStoreScheduler:
    sync = False

    def __init__(self, vllm_config, kv_cache_config):
        self.client = LookupKeyClient(vllm_config)
        self.load_specs = {{}}

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if self.sync:
            hit = self.client.lookup(request.request_id, request.num_tokens, request.block_hashes)
            return max(getattr(hit, "hit_length", hit) - num_computed_tokens, 0), True
        hit = self.client.lookup(request.request_id, request.num_tokens, request.block_hashes, non_block=True)
        return (None, False) if hit is None else (getattr(hit, "hit_length", hit), True)

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    def request_finished(self, request):
        self.client.discard(request.request_id)

    def reset_store(self):
        try:
            return self.client.reset()
        except Exception:
            return False

    def shutdown(self):
        self.client.close()
"""


class StandIn(unittest.TestCase):
    """Each test begins without vLLM, and leaves the interpreter as it was."""

    def setUp(self) -> None:
        self.addCleanup(setattr, sys, "meta_path", list(sys.meta_path))
        self.addCleanup(setattr, sys, "path", list(sys.path))
        self.addCleanup(self.forget)
        for target in (
            mock.patch.dict(os.environ),
            mock.patch.object(vllm_plugin, "_refused", set()),
            mock.patch.object(vllm_plugin, "_replaced", []),
            mock.patch.object(sys, "dont_write_bytecode", True),
        ):
            target.start()
            self.addCleanup(target.stop)
        for name in ("ADDRESS", "VLLM", "ON_MISMATCH", "LOOKUP", "POOL_NAME", "TOKEN_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY"):
            os.environ.pop(f"HITLINE_{name}", None)
        os.environ["HITLINE_TIMEOUT"] = f"{PATIENCE:g}"  # that of users is too short for a busy machine
        self.forget()

    @staticmethod
    def forget() -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] == "vllm":
                del sys.modules[name]
        importlib.invalidate_caches()

    def install(
        self,
        worker: str | None = WORKER_TEXT,
        scheduler: str | None = SCHEDULER_TEXT,
        data: str | None = DATA_TEXT,
        version: object = RELEASE,
    ) -> None:
        """Puts a stand-in on the path, without the modules whose text is None."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        at = Path(folder.name)
        for part in vllm_plugin.PACKAGE.split("."):
            at /= part
            at.mkdir()
            (at / "__init__.py").touch()
        if version is not None:
            (Path(folder.name) / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}")
        for name, text in ((WORKER, worker), (SCHEDULER, scheduler), (DATA, data)):
            if text is not None:
                (at / f"{name.rpartition('.')[2]}.py").write_text(text)
        sys.path.insert(0, folder.name)
        importlib.invalidate_caches()

    def install_release(self, release: str) -> None:
        """Puts a stand-in of a release on the path."""
        worker, data = WORKER_TEXT, None if release in BEFORE_RESULTS else DATA_TEXT
        if release in ("0.24.0", "0.25.0", "0.25.1", "0.26.0"):
            worker = worker.replace("num_tokens", "token_len")
        self.install(worker, data=data, version=release)

    def again(self) -> None:
        """Makes the interpreter as it was before the test, in one with several stand-ins."""
        self.doCleanups()
        self.setUp()

    def register(self, address: str = "tcp://127.0.0.1:7557") -> None:
        os.environ["HITLINE_ADDRESS"] = address
        vllm_plugin.register()

    def assert_replaced(self) -> type:
        worker, scheduler = (importlib.import_module(name) for name in (WORKER, SCHEDULER))
        self.assertTrue(issubclass(worker.LookupKeyClient, LookupKeyClient))
        self.assertIs(scheduler.LookupKeyClient, worker.LookupKeyClient)
        return worker.LookupKeyClient


class Plugin(StandIn):
    def test_without_an_address_nothing_is_touched(self) -> None:
        for value in (None, ""):
            if value is not None:
                os.environ["HITLINE_ADDRESS"] = value
            os.environ["HITLINE_TIMEOUT"] = "nonsense"
            finders = list(sys.meta_path)
            vllm_plugin.register()  # with no vLLM to be found
            self.assertEqual(sys.meta_path, finders)
        self.install()
        vllm_plugin.register()
        self.assertEqual([m for m in sys.modules if m.startswith("vllm")], [])
        self.assertNotIsInstance(importlib.import_module(SCHEDULER).LookupKeyClient, LookupKeyClient)

    def test_before_either_module_is_imported(self) -> None:
        self.install()
        self.register()
        self.assertNotIn(WORKER, sys.modules)
        self.assertNotIn(SCHEDULER, sys.modules)
        importlib.import_module(SCHEDULER)
        self.assert_replaced()

    def test_between_the_two_imports(self) -> None:
        self.install()
        importlib.import_module(WORKER)
        self.register()
        self.assert_replaced()

    def test_modules_made_without_a_spec(self) -> None:
        for text, name in ((DATA_TEXT, DATA), (WORKER_TEXT, WORKER), (SCHEDULER_TEXT, SCHEDULER)):
            module = types.ModuleType(name)
            sys.modules[name] = module
            for parent in ("", *[vllm_plugin.PACKAGE.rsplit(".", n)[0] for n in range(9)]):
                if parent:
                    sys.modules.setdefault(parent, types.ModuleType(parent)).__path__ = []
            exec(text, module.__dict__)
        sys.modules["vllm"].__version__ = RELEASE
        self.register()
        self.assert_replaced()

    def test_a_module_imported_anew_is_replaced_again(self) -> None:
        self.install()
        self.register()
        first = self.assert_replaced()
        importlib.reload(sys.modules[WORKER])
        importlib.reload(sys.modules[SCHEDULER])
        self.assertIs(self.assert_replaced(), first)

    def test_registering_twice(self) -> None:
        self.install()
        self.register()
        first = self.assert_replaced()
        finders = list(sys.meta_path)
        self.register()
        self.assertEqual(sys.meta_path, finders)
        self.assertIs(self.assert_replaced(), first)

    def test_what_else_the_modules_hold_stays(self) -> None:
        self.install()
        self.register()
        self.assert_replaced()
        self.assertEqual(sys.modules[WORKER].LookupKeyServer.__module__, WORKER)
        self.assertEqual(Path(sys.modules[WORKER].__file__ or "").name, "worker.py")

    def scheduler(self, server: Scripted, timeout: str = "20", release: str = RELEASE) -> types.SimpleNamespace:
        self.install_release(release)
        os.environ["HITLINE_TIMEOUT"] = timeout
        self.register(server.address)
        scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(object(), object())
        self.addCleanup(scheduler.shutdown)
        return scheduler

    def start_with_token(self, server: Scripted, text: str = "right\n") -> types.SimpleNamespace:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / "token"
        path.write_text(text)
        os.environ["HITLINE_TOKEN_FILE"] = str(path)
        return self.scheduler(server)

    def lookup(self, scheduler: types.SimpleNamespace) -> Any:
        """Waits for a lookup of 64 tokens."""
        return scheduler.client.lookup("r", 64, hashes("a", 4))

    @needs_certs
    def test_a_token_over_tls(self) -> None:
        with mock.patch.object(Scripted, "context", server_context(client_ca="ca")):
            with Scripted(with_token(b"right")) as server:
                os.environ["HITLINE_TLS_CA"] = f"{CERTS}/ca.crt"
                os.environ.update(HITLINE_TLS_CERT=f"{CERTS}/engine.crt", HITLINE_TLS_KEY=f"{CERTS}/engine.key")
                scheduler = self.start_with_token(server)
                self.assertEqual(self.lookup(scheduler).hit_length, 48)
                self.assertEqual(server.requests[0], [b"auth", b"right"])

    def test_a_restart_of_the_server_is_logged(self) -> None:
        with Scripted(server_of(RELEASE, hit_of(48))) as server:
            server.pong = named("a", "start of a")
            client = self.scheduler(server).client
            with self.assertLogs("vllm.hitline", "WARNING") as logs:
                for instance in ("a", "b", "b"):
                    client._retry.drop()
                    server.pong = named(instance, f"start of {instance}")
                    client.lookup("r", 64, [])
                    client.discard("r")
            (line,) = logs.output
            self.assertRegex(line, f"hitline at {server.address} was restarted at start of b: what it had in memory")

    def test_a_restart_drops_what_was_found(self) -> None:
        with Scripted(server_of(RELEASE, hit_of(48))) as server:
            client = self.scheduler(server).client
            with self.assertLogs("vllm.hitline", "WARNING"):
                client.lookup("r", 64, [])
                client._retry.drop()
                server.pong = named("b", "start")
                client.lookup("s", 64, [])
            self.assertEqual(list(client.remembered.hits), ["s"])

    def test_a_restart_over_a_store_loses_nothing(self) -> None:
        def answer(frames: list[bytes]) -> bytes:
            return pool_reply(RELEASE, "mooncake") if frames[0] == b"pool" else message(b"\0\0\0\0")

        with Scripted(answer) as server:
            client = self.scheduler(server).client
            client._retry.drop()
            server.pong = named("b", "start of b")
            with self.assertLogs("vllm.hitline", "INFO") as logs:
                client.lookup("r", 64, [])
            (line,) = logs.output
            self.assertRegex(line, f"^INFO.*hitline at {server.address} was restarted at start of b$")

    def test_a_reset_may_take_longer_than_a_lookup(self) -> None:
        def answer(_: list[bytes]) -> bytes:
            time.sleep(0.1)
            return message(b"\1")

        with Scripted(server_of(RELEASE, b"")) as server:
            client = self.scheduler(server, "0.05").client
            server.answer = answer
            self.assertIs(client.reset(), True)

    def test_timeouts_grow_with_the_prompt_by_default(self) -> None:
        for setting, want in ((None, [0.2, 0.2, 0.4, 2.0]), ("0.1", [0.1] * 4)):
            self.again()
            self.install()
            del os.environ["HITLINE_TIMEOUT"]
            if setting:
                os.environ["HITLINE_TIMEOUT"] = setting
            self.register()
            client = self.assert_replaced()(object())
            self.addCleanup(client.close)
            with mock.patch.object(client._retry, "exchange", side_effect=RequestTimeout) as exchange, silent():
                for tokens in (16, 30_000, 60_000, 300_000):
                    client.lookup(str(tokens), tokens, [])
            self.assertEqual([call.args[1] for call in exchange.call_args_list], want)

    def test_bad_variables(self) -> None:
        self.install()
        for timeout in ("", "soon", "0", "-1", "inf", "nan", "4294968"):
            os.environ["HITLINE_TIMEOUT"] = timeout
            with self.assertRaisesRegex(ValueError, "HITLINE_TIMEOUT"):
                self.register()
        del os.environ["HITLINE_TIMEOUT"]
        with self.assertRaisesRegex(ValueError, "udp://a:1"):
            self.register("udp://a:1")
        with self.assertRaisesRegex(ValueError, "^HITLINE_TLS_CERT and HITLINE_TLS_KEY must be set together$"):
            with mock.patch.dict(os.environ, HITLINE_TLS_CERT="/cert"):
                self.register("tls://a:1")
        for release in ("0.23.0", "0.33", "newest"):
            os.environ["HITLINE_VLLM"] = release
            with self.assertRaisesRegex(ValueError, f"HITLINE_VLLM is '{release}', must be one of 0.24.0, .*{RELEASE}"):
                self.register()
        del os.environ["HITLINE_VLLM"]
        for choice in ("Fail", "warn", "0", " "):
            os.environ["HITLINE_ON_MISMATCH"] = choice
            with self.assertRaisesRegex(ValueError, f"HITLINE_ON_MISMATCH is '{choice}', must be fail .*, miss .* or own"):
                self.register()
        del os.environ["HITLINE_ON_MISMATCH"]
        for choice in ("Local", "global", "0", " "):
            os.environ["HITLINE_LOOKUP"] = choice
            with self.assertRaisesRegex(ValueError, f"^HITLINE_LOOKUP is '{choice}', must be local .* or whole"):
                self.register()
        del os.environ["HITLINE_LOOKUP"]
        for name in ("a b", 'a"', "ü", "a\n", "a" * 256):
            os.environ["HITLINE_POOL_NAME"] = name
            with self.assertRaisesRegex(ValueError, "HITLINE_POOL_NAME is .*, must be 1 to 255 printable ASCII"):
                self.register()
        del os.environ["HITLINE_POOL_NAME"]
        os.environ["HITLINE_INSTANCE_ID"] = "a" * 129
        with self.assertRaisesRegex(ValueError, "^HITLINE_INSTANCE_ID is .*, must have at most 128 bytes"):
            self.register()
        self.assertEqual([f for f in sys.meta_path if isinstance(f, vllm_plugin._Finder)], [])

    def test_misspelt_variables(self) -> None:
        injected = ["SERVICE_HOST", "SERVICE_PORT_METRICS", "PORT", "PORT_7557_TCP_ADDR", "LOOKUP_PORT", "NAME", "1_ENV_PATH"]
        others = ["POOL", "POOL_VLLM", "BACKEND_MOONCAKE_MASTERS", "DRAIN_TIMEOUT", "LOG_LEVEL", "TEST_BINARY", "KERNEL"]
        for name, near in (
            ("ADRESS", "ADDRESS"), ("ON_MISMATCHES", "ON_MISMATCH"), ("POOLNAME", "POOL_NAME"), ("TIMEOUTS", "TIMEOUT"),
            ("POOL_NAMES", "POOL_NAME"), ("TOKENFILE", "TOKEN_FILE"),
        ):  # fmt: skip
            for address in ("", "tcp://127.0.0.1:1"):
                self.again()
                self.install()
                variables = {f"HITLINE_{name}": "x" for name in (*injected, *others, name)}
                with mock.patch.dict(os.environ, variables), self.assertLogs("vllm.hitline", "WARNING") as logs:
                    self.register(address)
                text = f"HITLINE_{name} is no variable of the plug-in; did you mean HITLINE_{near}?"
                self.assertEqual(logs.output, [f"WARNING:vllm.hitline:{text}"])


class Starts(StandIn):
    """Lookups of a prompt of 60 tokens, of which the engine has some. Blocks of the scheduler have
    16 tokens and two hashes."""

    BLOCKS = hashes("a", 7)

    def scheduler(self, server: Scripted, release: str = RELEASE, role: str = "kv_both", **extra: Any) -> Any:
        self.again()
        self.install_release(release)
        self.register(server.address)
        transfer = types.SimpleNamespace(kv_role=role, kv_connector_extra_config=extra)
        config = types.SimpleNamespace(kv_transfer_config=transfer)
        scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(config, object())
        scheduler.sync = True
        self.addCleanup(scheduler.shutdown)
        return scheduler

    def match(self, scheduler: Any, num_computed: int, num_tokens: int = 60, req_id: str = "") -> Any:
        name = req_id or f"{num_computed} of {num_tokens}"
        request = types.SimpleNamespace(request_id=name, num_tokens=num_tokens, block_hashes=self.BLOCKS)
        return scheduler.get_num_new_matched_tokens(request, num_computed)

    def sent(self, server: Scripted) -> list[tuple[int, int]]:
        """Of each lookup the start and the number of hashes."""
        found = []
        for name, *frames in server.requests:
            if name in (b"lookup", b"lookup_from"):
                tokens = [int.from_bytes(frames[0][i : i + 4], "big") for i in range(0, len(frames[0]), 4)]
                found.append(((*tokens, 0)[1], len(frames[2]) // 32))
        return found

    def reply(self, release: str, **fields: Any) -> Callable[[list[bytes]], bytes]:
        return lambda frames: pool_reply(release, **fields) if frames[0] == b"pool" else message(hit_of(48, release))

    def test_they_begin_where_the_engines_own_cache_ends(self) -> None:
        for release in VLLM_RELEASES:
            with self.subTest(release), Scripted(self.reply(release)) as server:
                scheduler = self.scheduler(server, release)
                found = [self.match(scheduler, computed)[0] for computed in (0, 8, 16, 31, 32, 40)]
                self.assertEqual(found, [48, 40, 32, 17, 16, 8])
                self.assertEqual(self.sent(server), [(0, 7), (0, 7), (16, 5), (16, 5), (32, 3), (32, 3)])
                self.assertEqual(scheduler.client.num_computed, 0, "of this request alone")

    def renewed(self, scheduler: Any, server: Scripted) -> list[int]:
        """How many hashes each renewal has."""
        scheduler.client._worker.submit(lambda: None).result()  # behind them
        found = [frames for frames in server.requests if frames[0] == b"renew"]
        for _, size, blob in found:
            self.assertEqual((size, blob), (b"\0\x20", b"".join(self.BLOCKS)[: len(blob)]))
        return [len(blob) // 32 for _, _, blob in found]

    def test_what_lies_before_is_renewed_for_engines_that_only_load(self) -> None:
        for role, renew, want in (
            ("kv_consumer", "auto", [4]), ("kv_consumer", "always", [4]), ("kv_consumer", "", []),
            ("kv_both", "auto", []), ("kv_producer", "auto", []), ("kv_both", "always", [4]),
        ):  # fmt: skip
            for release in (VLLM_RELEASES[0], VLLM_RELEASES[-1]):
                answer = self.reply(release, renew=renew, lease_ms=5000)
                with self.subTest(role, renew=renew, release=release), Scripted(answer) as server:
                    scheduler = self.scheduler(server, release, role)
                    for computed in (0, 8, 32):
                        self.match(scheduler, computed)
                    self.assertEqual(self.renewed(scheduler, server), want)

    def test_an_engine_that_saves_what_it_decodes_renews_nothing(self) -> None:
        """It saves. Up to 0.28 there is no such option."""
        for release, want in (("0.28.0", [4]), ("0.29.0", [])):
            with Scripted(self.reply(release, renew="auto", lease_ms=5000)) as server:
                scheduler = self.scheduler(server, release, "kv_consumer", save_decode_cache=True)
                self.match(scheduler, 32)
                self.assertEqual(self.renewed(scheduler, server), want, release)

    def test_it_is_renewed_once_a_lease(self) -> None:
        with Scripted(self.reply(RELEASE, renew="auto", lease_ms=5000)) as server:
            scheduler = self.scheduler(server, role="kv_consumer")
            now = 0.0
            scheduler.client.clock = lambda: now
            want = []
            for now in (10.0, 12.0, 14.9, 15.0, 15.1):
                if now in (10.0, 15.0):
                    want += [4, 6]
                self.assertEqual(self.match(scheduler, 32), (16, True))
                self.assertEqual(self.match(scheduler, 48), (0, False), "a request that is not looked up")
                self.assertEqual(self.renewed(scheduler, server), want)
            with mock.patch("hitline.renewals.MAX_RENEWED", 1):
                for computed in (16, 32, 16):
                    self.match(scheduler, computed)
            self.assertEqual(self.renewed(scheduler, server), [*want, 2, 4])

    def test_renewals_that_fail_or_are_too_many(self) -> None:
        answer = self.reply(RELEASE, renew="auto", lease_ms=5000)
        with Scripted(lambda frames: refusal("busy", "renew") if frames[0] == b"renew" else answer(frames)) as server:
            scheduler = self.scheduler(server, role="kv_consumer")
            free = threading.Event()
            blocked = scheduler.client._worker.submit(free.wait)
            for i in range(6):
                self.BLOCKS = hashes(f"{i}", 7)
                self.assertEqual(self.match(scheduler, 32, req_id=f"{i}"), (16, True))
            with self.assertLogs("vllm.hitline", "WARNING") as logs:
                free.set()
                blocked.result()
                scheduler.client._worker.submit(lambda: None).result()
            self.assertEqual(len(logs.output), 1)
            self.assertIn("renewal at", logs.output[0])
            self.assertEqual([frames[0] for frames in server.requests].count(b"renew"), 4)
            for _ in range(4):
                self.assertTrue(scheduler.client.renewals.free.acquire(blocking=False), "each is free again")
            scheduler.client.renewals.free.release(4)
            scheduler.client.close()
            scheduler.client.renewals.renewed.clear()
            scheduler.client.renewals.renew(self.BLOCKS, 4, 60)

    def test_hashes_beyond_the_tokens_are_not_sent(self) -> None:
        """Up to 0.26 the scheduler asks for tokens rounded down to its blocks, with all hashes."""
        with Scripted(self.reply("0.26.0")) as server:
            self.match(self.scheduler(server, "0.26.0"), 16, 48)
            self.assertEqual(self.sent(server), [(16, 4)])

    def test_more_tokens_than_hashes(self) -> None:
        self.BLOCKS = hashes("a", 3)
        with Scripted(self.reply(RELEASE)) as server:
            self.match(self.scheduler(server), 32)
            self.assertEqual(self.sent(server), [(0, 3)])

    def test_whole_lookups(self) -> None:
        for variable, want in (("whole", (0, 7)), ("local", (32, 3)), ("", (32, 3))):
            with Scripted(self.reply(RELEASE)) as server:
                self.again()
                with mock.patch.dict(os.environ, HITLINE_LOOKUP=variable):
                    self.install_release(RELEASE)
                    self.register(server.address)
                scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(object(), object())
                scheduler.sync = True
                self.addCleanup(scheduler.shutdown)
                self.assertEqual(self.match(scheduler, 32), (16, True))
                self.assertEqual(self.sent(server), [want])

    def test_mamba_before_0_28_is_asked_for_whole(self) -> None:
        """The scheduler passes the largest of the groups' separate hits."""
        late = list(VLLM_RELEASES)[list(VLLM_RELEASES).index("0.28.0") :]
        for kind in ("mamba", "sliding_window"):
            groups = [{"kind": "full_attention"}, {"kind": kind}]
            for release in VLLM_RELEASES:
                with self.subTest(release, kind=kind), Scripted(self.reply(release, groups=groups)) as server:
                    self.match(self.scheduler(server, release), 32)
                    is_whole = kind == "mamba" and release not in late
                    self.assertEqual(self.sent(server), [(0, 7) if is_whole else (32, 3)])

    def test_a_server_that_knows_no_starts(self) -> None:
        def answer(frames: list[bytes]) -> bytes:
            return refusal("unknown_request", "lookup_from") if frames[0] == b"lookup_from" else known(frames)

        known = self.reply(RELEASE)
        with Scripted(answer) as server:
            scheduler = self.scheduler(server)
            with self.assertLogs("vllm.hitline", "INFO") as logs:
                found = [self.match(scheduler, computed)[0] for computed in (16, 32)]
            self.assertEqual(found, [32, 16])
            self.assertEqual(self.sent(server), [(16, 5), (0, 7), (0, 7)])
            self.assertEqual([line.partition(":")[0] for line in logs.output], ["INFO"])

    def test_a_pool_that_is_not_known_yet(self) -> None:
        with Scripted(self.reply(RELEASE)) as server:
            scheduler = self.scheduler(server)
            scheduler.client.pool = ServedPool({}, is_local=False)
            self.match(scheduler, 32)
            self.assertEqual(self.sent(server), [(0, 7)])

    def test_a_load_that_another_connector_does(self) -> None:
        request = types.SimpleNamespace(request_id="r")
        for release in VLLM_RELEASES:
            with Scripted(self.reply(release)) as server:
                scheduler = self.scheduler(server, release)
                for tokens in (16, 0):
                    scheduler.load_specs = {"r": "spec", "other": "spec"}
                    scheduler.update_state_after_alloc(request, None, tokens)
                    drops = tokens == 0 and list(VLLM_RELEASES).index(release) < list(VLLM_RELEASES).index("0.30.0")
                    self.assertEqual(list(scheduler.load_specs), ["other"] if drops else ["r", "other"])


def silent() -> Any:
    """Keeps the plug-in from logging."""
    return mock.patch.object(vllm_plugin.logger, "disabled", True)


class Releases(StandIn):
    def test_builds_of_a_release(self) -> None:
        for version in (f"{RELEASE}+{build}" for build in ("cpu", "cu129", "precompiled.g1a2b3c")):
            with self.subTest(version):
                self.again()
                self.install(version=version)
                self.register()
                self.assertEqual(self.assert_replaced().settings.release, RELEASE)


def server_of(vllm: str, reply: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda frames: pool_reply(vllm) if frames[0] == b"pool" else message(reply)


def with_token(token: bytes) -> Callable[[list[bytes]], bytes]:
    """The answers of a server that refuses any other token."""
    hit = server_of(RELEASE, hit_of(48))

    def answer(frames: list[bytes]) -> bytes:
        if frames[0] != b"auth":
            return hit(frames)
        refused = refusal("not_authenticated", "auth", "no such token")
        return message(b"\1", b"{}") if frames[1] == token else refused

    return answer


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


# Of the class that is to be replaced: what is in the place of what, and what is said.
OTHER_SHAPES = [
    ("class LookupKeyClient:", "class PrefixClient:", "LookupKeyClient is missing"),
    ("class LookupKeyClient:", "LookupKeyClient = print\nclass Other:", "LookupKeyClient is no class"),
    ("self, vllm_config", "self, vllm_config, ranks", r"__init__\(self, vllm_config, ranks\)"),
    ("self, vllm_config", "self", r"__init__\(self\)"),
    ("non_block=False", "non_block=False, apply_eagle=True", "lookup.*apply_eagle=True"),
    ("non_block=False", "non_block", "has lookup"),
    ("non_block=False", "*, non_block=False", "has lookup"),
    ("non_block=False", "non_block=False, *more", "has lookup"),
    ("req_id, num_tokens", "num_tokens, req_id", "has lookup"),
    ("req_id, num_tokens", "req_id, token_len", "has lookup"),
    ("req_id, num_tokens, block_hashes, non_block=False", "num_tokens, block_hashes", "has lookup"),
    ("non_block=False):", "non_block=False) -> 'LookupResult | None':", "returns LookupResult"),
    ("non_block=False):", "non_block=False) -> 'int | None':", "returns int"),
    ("non_block=False):", "non_block=False) -> bytes:", "returns .*bytes"),
    ("def discard(self, req_id)", "def discard(self)", "has discard"),
    ("def discard(", "def _discard(", "no method discard"),
    ("def reset(self)", "def reset(self, force)", r"has reset\(self, force\)"),
    ("def close(self)", "def record(self): pass\n    def close(self)", "has a method record"),
    ("def __init__", "def __new__", "no method __init__"),
]

IMPORT_RESULT = f"from {DATA} import MooncakeLookupResult\nclass LookupKeyClient:"

SAME_SHAPES = [
    ("non_block=False):", "non_block: bool = False) -> 'MooncakeLookupResult | None':"),
    ("non_block=False):", "non_block: bool = False) -> __import__('typing').Optional[MooncakeLookupResult]:"),
    ("def close(self)", "def _record(self): pass\n    def close(self)"),
]
if sys.version_info >= (3, 10):
    SAME_SHAPES.append(("non_block=False):", "non_block: bool = False) -> MooncakeLookupResult | None:"))

# Likewise of the classes of results.
OTHER_RESULTS = [
    ("class MooncakeLookupResult", "class LookupResult", "MooncakeLookupResult is missing"),
    ("class TailKeyBoundary", "class TailBoundary", "TailKeyBoundary is missing"),
    ("@dataclass(frozen=True)\nclass TailKeyBoundary:", "TailKeyBoundary = 1\nclass Other:", "TailKeyBoundary is no class"),
    ("    hit_length: int\n", "    hit_length: int\n    group_hits: tuple\n", r"MooncakeLookupResult is built with \(hit_length"),
    ("    num_tokens: int\n", "    num_tokens: int = 0\n", r"TailKeyBoundary is built with \(group_id.* = 0"),
    ("    group_id: int\n", "    group: int\n", r"TailKeyBoundary is built with \(group: "),
]


class Shapes(StandIn):
    def refused(self, text: str) -> None:
        """Registering, or the import after it, is refused with text; told once."""
        with self.assertLogs("vllm.hitline", "ERROR") as logs:
            for _ in range(3):
                with self.assertRaisesRegex(vllm_plugin.UnsupportedVLLM, text):
                    self.register()
                    importlib.import_module(SCHEDULER)
        self.assertEqual(len(logs.output), 1)
        self.assertIn(f"; expected is {vllm_plugin._expected(RELEASE)}; unset HITLINE_ADDRESS", logs.output[0])

    def test_other_scheduler_sides_are_refused(self) -> None:
        for old, new, text in (
            ("class MooncakeStoreScheduler", "class StoreScheduler", "MooncakeStoreScheduler has no method __init__"),
            ("vllm_config, kv_cache_config", "vllm_config", r"has __init__\(self, vllm_config\)"),
            ("request, num_computed_tokens)", "request)", r"has get_num_new_matched_tokens\(self, request\)"),
            ("def get_num_new_matched", "def get_new_matched", "has no method get_num_new_matched_tokens"),
            ("def update_state_after", "def update_after", "has no method update_state_after_alloc"),
        ):
            for imported in (False, True):
                with self.subTest(new, imported=imported):
                    self.again()
                    self.assertIn(old, SCHEDULER_TEXT)
                    self.install(scheduler=SCHEDULER_TEXT.replace(old, new))
                    if imported:
                        original = importlib.import_module(WORKER).LookupKeyClient
                        importlib.import_module(SCHEDULER)
                    self.refused(f"in {SCHEDULER}, .*{text}")
                    if imported:
                        self.assertIs(sys.modules[WORKER].LookupKeyClient, original, "not by half")

    def test_other_shapes_are_refused(self) -> None:
        for old, new, text in OTHER_SHAPES:
            for imported in (False, True):
                if imported and "is missing" in text:
                    continue  # the scheduler side could not have been imported
                with self.subTest(new, imported=imported):
                    self.again()
                    self.assertIn(old, WORKER_TEXT)
                    self.install(WORKER_TEXT.replace(old, new))
                    if imported:
                        importlib.import_module(SCHEDULER)
                    self.refused(text)

    def test_same_shapes_are_replaced(self) -> None:
        for old, new in SAME_SHAPES:
            with self.subTest(new):
                self.again()
                self.assertIn(old, WORKER_TEXT)
                self.install(WORKER_TEXT.replace(old, new).replace("class LookupKeyClient:", IMPORT_RESULT))
                self.register()
                self.assert_replaced()

    def test_other_results_are_refused(self) -> None:
        for old, new, text in OTHER_RESULTS:
            with self.subTest(new):
                self.again()
                self.assertIn(old, DATA_TEXT)
                self.install(data=DATA_TEXT.replace(old, new))
                self.refused(f"in {DATA}, {text}")

    def test_a_scheduler_side_without_the_name_is_refused(self) -> None:
        for imported in (False, True):
            with self.subTest(imported=imported):
                self.again()
                self.install(scheduler=f"import {WORKER} as worker\n")
                if imported:
                    original = importlib.import_module(SCHEDULER).worker.LookupKeyClient
                self.refused(f"in {SCHEDULER}, LookupKeyClient is missing")
                if imported:
                    self.assertIs(sys.modules[WORKER].LookupKeyClient, original, "not by half")

    def test_missing_modules_are_refused(self) -> None:
        for worker, scheduler, data, missing in (
            (None, "", "", WORKER),
            ("", None, "", SCHEDULER),
            ("", "", None, DATA),
        ):
            with self.subTest(missing):
                self.again()
                self.install(worker, scheduler, data)
                self.refused(f"there is no module {missing}")

    def test_no_vllm_is_refused(self) -> None:
        if importlib.util.find_spec("vllm") is not None:
            self.skipTest("vLLM is installed here")
        with self.assertLogs("vllm.hitline", "ERROR"), self.assertRaisesRegex(
            vllm_plugin.UnsupportedVLLM, "there is no module vllm; expected is vLLM, one of 0.24.0"
        ):
            self.register()


class FailedLoads(unittest.TestCase):
    def test_engines_that_die_of_them(self) -> None:
        two = [{"kind": "full_attention"}, {"kind": "mamba"}]
        for release, backend, groups, dies in (
            ("0.29.0", "memory", two, True),
            ("0.24.0", "memory", two, True),
            ("0.30.0", "memory", two, False),
            ("0.29.0", "mooncake", two, False),
            ("0.29.0", "memory", two[:1], False),
            ("0.29.0", "memory", None, False),
        ):
            with self.subTest(release, backend=backend, groups=groups):
                reply = {"backend": backend, "groups": groups}
                self.assertIs(dies, engine_client.dies_of_failed_loads(release, reply))


if __name__ == "__main__":
    unittest.main()
