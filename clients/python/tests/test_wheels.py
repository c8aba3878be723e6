"""The plug-in in the unmodified modules of vLLM's releases, against a server."""

from __future__ import annotations

import importlib
import inspect
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hitline import VLLM_RELEASES, Client, LookupKeyClient, vllm_plugin
from hitline.client import is_since
from hitline.connection import Request, encode
from tests.support import NEWEST, PATIENCE, WHEELS, Server, chained, needs_server, unused_address
from tests.test_client import eventually
from tests.test_releases import OLD, SAME_MODULES
from tests.test_vllm_plugin import DATA, SCHEDULER, WORKER, StandIn, parameters
from tests.wheels import STUBS, SchedulerSide, Stubs, finished, load_engine

# The groups of a pool whose hits may end inside a block of the first of them.
FINE_GRAINED = {
    "POOL_HASH_BLOCK_SIZE": "4",
    "POOL_GROUPS": "[{kind: full_attention, block_size: 16}, {kind: mamba, block_size: 16, mamba_cache_mode: align}]",
}


@unittest.skipUnless(WHEELS, "HITLINE_TEST_WHEELS names no folder of releases")
@unittest.skipUnless(sys.version_info >= (3, 10), "vLLM needs Python 3.10")
class InWheels(StandIn):
    """Its tests load modules of a release from its wheel."""

    @staticmethod
    def forget() -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] in STUBS:
                del sys.modules[name]
        importlib.invalidate_caches()

    def load(self, release: str, engine: bool = False) -> None:
        """Has the modules of a release found, in an interpreter without them."""
        self.again()
        folder = Path(WHEELS, release)
        sys.meta_path.insert(0, Stubs(folder, engine))
        if engine:
            load_engine(folder)


@needs_server
class Wheels(InWheels):
    def scheduler(self, **extra: Any) -> Any:
        """The release's own scheduler side of a pool of one group, blocks of 16 tokens."""
        side = SchedulerSide(**extra)
        self.addCleanup(side.client.close)
        return side.connector.connector_scheduler

    def test_what_is_replaced_is_there(self) -> None:
        for release in VLLM_RELEASES:
            with self.subTest(release):
                self.load(release)
                original = importlib.import_module(WORKER).LookupKeyClient
                self.assertIs(importlib.import_module(SCHEDULER).LookupKeyClient, original)
                self.assertEqual((original.__module__, sys.modules["vllm"].__version__), (WORKER, release))
                self.register()
                replacement = self.assert_replaced()
                for name in vllm_plugin._shape(release):
                    self.assertEqual(parameters(getattr(replacement, name)), parameters(getattr(original, name)))

    def test_releases_with_the_same_modules(self) -> None:
        for release, other in SAME_MODULES.items():
            files = [
                {path.relative_to(at).as_posix(): path.read_bytes() for path in at.rglob("*.py") if path.name != "_version.py"}
                for at in (Path(WHEELS, each) for each in (release, other))
            ]
            with self.subTest(release, other=other):
                self.assertIn(WORKER.replace(".", "/") + ".py", files[0])
                self.assertEqual(*files)

    def test_no_release_has_the_shape_of_another_form(self) -> None:
        forms = {"0.26.0": "token_len", "0.27.0": "num_tokens", NEWEST: "MooncakeLookupResult"}
        for release in forms:
            for other in forms:
                with self.subTest(release, other=other):
                    self.load(release)
                    original = importlib.import_module(WORKER).LookupKeyClient
                    signature = str(inspect.signature(original.lookup))
                    self.assertEqual(bool(vllm_plugin._difference(original, other)), release != other, signature)

    def test_lookups(self) -> None:
        """Through the release's scheduler side, which the plug-in gave its client."""
        blocks = chained("wheels", 4)
        request = SimpleNamespace(request_id="r", num_tokens=60, block_hashes=blocks[:3])
        for release in VLLM_RELEASES:
            for imported in (False, True):
                with self.subTest(release, imported=imported), Server(POOL_VLLM=release) as server:
                    with Client(server.address) as plain:
                        plain.store(blocks[:2])
                    self.load(release)
                    if imported:
                        importlib.import_module(SCHEDULER)
                    self.register(server.address)
                    scheduler = self.scheduler()
                    self.assertIsInstance(scheduler.client, LookupKeyClient)
                    self.assertEqual(scheduler.get_num_new_matched_tokens(request, 0), (32, True))
                    self.check_boundaries(release, scheduler.load_specs["r"], [(0, 32)])
                    scheduler.build_connector_meta(finished("r"))
                    self.assertEqual(scheduler.load_specs, {})

                    later = self.scheduler(lookup_async=True)
                    with later.client._retry.lock:  # the first call cannot be answered yet
                        self.assertEqual(later.get_num_new_matched_tokens(request, 0), (None, False))
                    got = eventually(lambda: later.get_num_new_matched_tokens(request, 0), (None, False))
                    self.assertEqual(got, (32, True))
                    self.check_boundaries(release, later.load_specs["r"], [(0, 32)])
                    later.build_connector_meta(finished("r"))
                    with later.client._retry.lock:
                        self.assertEqual(later.get_num_new_matched_tokens(request, 0), (None, False))
                        self.assertEqual(list(later.client._pending), ["r"])
                        later.build_connector_meta(finished("r"))
                        self.assertEqual(later.client._pending, {})

                    self.assertIs(scheduler.reset_store(), True)
                    self.assertEqual(scheduler.get_num_new_matched_tokens(request, 0), (0, False))
                    for each in (scheduler, later):
                        each.client.close()
                    with mock.patch.object(vllm_plugin.logger, "disabled", True):
                        self.assertEqual(scheduler.get_num_new_matched_tokens(request, 0), (0, False))
                        self.assertIs(scheduler.reset_store(), False)
            print(f"wheel of vLLM {release}: lookup, non_block, discard, reset, close", flush=True)

    def check_boundaries(self, release: str, load_spec: Any, want: list[tuple[int, int]]) -> None:
        if release in OLD:
            self.assertFalse(hasattr(load_spec, "tail_key_boundaries"))
            return
        found = load_spec.tail_key_boundaries
        self.assertIsInstance(found, tuple)
        self.assertEqual([type(b) for b in found], [sys.modules[DATA].TailKeyBoundary] * len(want))
        self.assertEqual([(b.group_id, b.num_tokens) for b in found], want)

    def test_results(self) -> None:
        """They are those that the release's own decoder gives for the server's replies."""
        blocks = chained("fine", 14)
        for release in VLLM_RELEASES:
            if release in OLD:
                continue
            settings = {"POOL_VLLM": release, **FINE_GRAINED}
            if is_since(release, "0.32.0"):
                settings["POOL_CACHE_HIT_ALIGNMENT_TOKENS"] = "4"
            with self.subTest(release), Server(**settings) as server, Client(server.address) as plain:
                plain.store([blocks[3], blocks[7], blocks[11]], group=0)
                plain.store([blocks[9]], group=1)
                self.load(release)
                self.register(server.address)
                client = self.assert_replaced()(object())
                self.addCleanup(client.close)
                data = sys.modules[DATA]
                decode = importlib.import_module(vllm_plugin.PACKAGE + ".protocol").decode_lookup_response
                for tokens, hashes in ((56, blocks), (40, blocks), (56, blocks[:5]), (56, []), (0, blocks)):
                    frames = (b"lookup", tokens.to_bytes(4, "big"), b"\0\x20", b"".join(hashes))
                    want = decode(plain._retry.exchange(Request(b"lookup", encode(*frames), 1 << 20), PATIENCE)[0])
                    self.assertEqual(client.lookup("r", tokens, hashes), want)
                    waited = eventually(lambda: client.lookup("r", tokens, hashes, non_block=True), None)
                    self.assertEqual(waited, want)
                    self.assertIs(type(waited), data.MooncakeLookupResult)
                want = data.MooncakeLookupResult(40, (data.TailKeyBoundary(0, 48), data.TailKeyBoundary(1, 40)))
                self.assertEqual(client.lookup("r", 56, blocks), want)

    def test_failures(self) -> None:
        """They have the form of the release, and never reach the engine."""
        for release in VLLM_RELEASES:
            self.load(release)
            self.register(unused_address(self))
            client = self.assert_replaced()(object())
            self.addCleanup(client.close)
            want = 0 if release in OLD else sys.modules[DATA].MooncakeLookupResult(0)
            with self.subTest(release), mock.patch.object(vllm_plugin.logger, "disabled", True):
                self.assertEqual(client.lookup("r", 64, []), want)
                self.assertEqual(eventually(lambda: client.lookup("r", 64, [], non_block=True), None), want)
                self.assertEqual(client.lookup("r", 1 << 32, []), want)
                self.assertIs(client.reset(), False)

    def test_a_server_of_another_release(self) -> None:
        for release, other in (("0.28.0", NEWEST), (NEWEST, "0.28.0"), (NEWEST, "0.32.0")):
            with self.subTest(release, other=other), Server(POOL_VLLM=other) as server:
                self.load(release)
                self.register(server.address)
                request = SimpleNamespace(request_id="r", num_tokens=64, block_hashes=chained("a", 4))
                with self.assertLogs("vllm.hitline", "ERROR") as logs:
                    scheduler = self.scheduler()
                self.assertEqual(scheduler.get_num_new_matched_tokens(request, 0), (0, False))
                self.assertRegex(logs.output[0], f'the engine is vLLM {release}, .*set pool.vllm: "{release}"')


if __name__ == "__main__":
    unittest.main()
