"""The plug-in, in a stand-in for vLLM that has the modules and names it touches."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from hitline import LookupKeyClient, vllm_plugin
from tests.support import Scripted, hashes, message
from tests.test_client import connected, eventually

WORKER, SCHEDULER = vllm_plugin.MODULES

WORKER_TEXT = """
class LookupKeyClient:
    def __init__(self, vllm_config):
        raise AssertionError("the one that was to be replaced")

    def lookup(self, req_id, token_len, block_hashes, non_block=False):
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
    def __init__(self, vllm_config):
        self.client = LookupKeyClient(vllm_config)

    def get_num_new_matched_tokens(self, request):
        hit = self.client.lookup(request.request_id, request.num_tokens, request.block_hashes, non_block=True)
        return (None, False) if hit is None else (hit, True)

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
            mock.patch.object(sys, "dont_write_bytecode", True),
        ):
            target.start()
            self.addCleanup(target.stop)
        os.environ.pop("HITLINE_ADDRESS", None)
        os.environ.pop("HITLINE_TIMEOUT", None)
        self.forget()

    @staticmethod
    def forget() -> None:
        for name in list(sys.modules):
            if name.partition(".")[0] == "vllm":
                del sys.modules[name]
        importlib.invalidate_caches()

    def install(self, worker: str | None = WORKER_TEXT, scheduler: str | None = SCHEDULER_TEXT) -> None:
        """Puts a stand-in on the path, without the modules whose text is None."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        at = Path(folder.name)
        for part in vllm_plugin.PACKAGE.split("."):
            at /= part
            at.mkdir()
            (at / "__init__.py").touch()
        for name, text in ((WORKER, worker), (SCHEDULER, scheduler)):
            if text is not None:
                (at / f"{name.rpartition('.')[2]}.py").write_text(text)
        sys.path.insert(0, folder.name)
        importlib.invalidate_caches()

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

    def test_after_both_modules_are_imported(self) -> None:
        self.install()
        importlib.import_module(SCHEDULER)
        self.register()
        self.assert_replaced()

    def test_between_the_two_imports(self) -> None:
        self.install()
        importlib.import_module(WORKER)
        self.register()
        self.assert_replaced()

    def test_modules_made_without_a_spec(self) -> None:
        for text, name in ((WORKER_TEXT, WORKER), (SCHEDULER_TEXT, SCHEDULER)):
            module = types.ModuleType(name)
            sys.modules[name] = module
            for parent in ("", *[vllm_plugin.PACKAGE.rsplit(".", n)[0] for n in range(9)]):
                if parent:
                    sys.modules.setdefault(parent, types.ModuleType(parent)).__path__ = []
            exec(text, module.__dict__)
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

    def scheduler(self, server: Scripted, timeout: str = "20") -> types.SimpleNamespace:
        self.install()
        os.environ["HITLINE_TIMEOUT"] = timeout
        self.register(server.address)
        scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(object())
        self.addCleanup(scheduler.shutdown)
        return scheduler

    def test_get_num_new_matched_tokens_async_defers_then_reports(self) -> None:
        request = types.SimpleNamespace(request_id="r", num_tokens=64, block_hashes=hashes("a", 4))
        with Scripted(lambda _: message(b"\0\0\0\x30")) as server:
            scheduler = self.scheduler(server)
            with scheduler.client._lock:  # the first call cannot be answered yet
                self.assertEqual(scheduler.get_num_new_matched_tokens(request), (None, False))
            got = eventually(lambda: scheduler.get_num_new_matched_tokens(request), (None, False))
            self.assertEqual(got, (48, True))
            scheduler.request_finished(request)
            self.assertEqual([r[0] for r in server.requests], [b"lookup"])

    def test_scheduler_reset_store_returns_client_reset_result(self) -> None:
        replies = [message(b"\1"), message(b"\0", b"no")]
        with Scripted(lambda _: replies.pop(0)) as server, mock.patch.object(vllm_plugin.logger, "disabled", True):
            scheduler = self.scheduler(server)
            self.assertIs(scheduler.reset_store(), True)
            self.assertIs(scheduler.reset_store(), False)

    def test_scheduler_reset_store_handles_rpc_exception(self) -> None:
        with Scripted(lambda _: None) as server, mock.patch.object(vllm_plugin.logger, "disabled", True):
            self.assertIs(self.scheduler(server).reset_store(), False)

    def test_timeout(self) -> None:
        with Scripted(lambda _: Scripted.SILENCE) as server:
            client = connected(self.scheduler(server, "0.05").client)
            with self.assertLogs("vllm.hitline", "WARNING") as logs:  # a logger that has vLLM's handlers
                self.assertEqual(client.lookup("r", 16, []), 0)
            self.assertRegex(logs.output[0], "did not (answer|take the request) in time")

    def test_timeout_is_a_second_by_default(self) -> None:
        self.install()
        self.register()
        built = self.assert_replaced()(object())
        self.assertEqual(built._timeout, 1.0)
        built.close()

    def test_bad_variables(self) -> None:
        self.install()
        for timeout in ("", "soon", "0", "-1", "inf", "nan", "4294968"):
            os.environ["HITLINE_TIMEOUT"] = timeout
            with self.assertRaisesRegex(ValueError, "HITLINE_TIMEOUT"):
                self.register()
        del os.environ["HITLINE_TIMEOUT"]
        with self.assertRaisesRegex(ValueError, "udp://a:1"):
            self.register("udp://a:1")
        self.assertEqual([f for f in sys.meta_path if isinstance(f, vllm_plugin._Finder)], [])


# Of the class that is to be replaced: what is in the place of what, and what is said.
OTHER_SHAPES = [
    ("class LookupKeyClient:", "class PrefixClient:", "LookupKeyClient is missing"),
    ("class LookupKeyClient:", "LookupKeyClient = print\nclass Other:", "LookupKeyClient is no class"),
    ("self, vllm_config", "self, vllm_config, ranks", r"__init__\(self, vllm_config, ranks\)"),
    ("self, vllm_config", "self", r"__init__\(self\)"),
    ("non_block=False", "non_block=False, apply_eagle=True", "lookup.*apply_eagle=True"),
    ("non_block=False", "non_block", "has lookup"),
    ("non_block=False", "*, non_block=False", "has lookup"),
    ("req_id, token_len", "token_len, req_id", "has lookup"),
    ("req_id, token_len, block_hashes, non_block=False", "token_len, block_hashes", "has lookup"),
    ("non_block=False):", "non_block=False) -> 'LookupResult | None':", "returns LookupResult"),
    ("non_block=False):", "non_block=False) -> bytes:", "returns .*bytes"),
    ("def discard(self, req_id)", "def discard(self)", "has discard"),
    ("def discard(", "def _discard(", "no method discard"),
    ("def reset(self)", "def reset(self, force)", r"has reset\(self, force\)"),
    ("def close(self)", "def record(self): pass\n    def close(self)", "has a method record"),
    ("def __init__", "def __new__", "no method __init__"),
]

SAME_SHAPES = [
    ("token_len", "num_tokens"),
    ("non_block=False):", "non_block: bool = False) -> 'int | None':"),
    ("non_block=False):", "non_block: bool = False) -> __import__('typing').Optional[int]:"),
    ("def close(self)", "def _record(self): pass\n    def close(self)"),
]
if sys.version_info >= (3, 10):
    SAME_SHAPES.append(("non_block=False):", "non_block: bool = False) -> int | None:"))


class Shapes(StandIn):
    def refused(self, text: str) -> None:
        """Registering, or the import after it, is refused with text; told once."""
        with self.assertLogs("vllm.hitline", "ERROR") as logs:
            for _ in range(3):
                with self.assertRaisesRegex(vllm_plugin.UnsupportedVLLM, text):
                    self.register()
                    importlib.import_module(SCHEDULER)
        self.assertEqual(len(logs.output), 1)
        self.assertIn(vllm_plugin.EXPECTED, logs.output[0])

    def test_other_shapes_are_refused(self) -> None:
        for old, new, text in OTHER_SHAPES:
            for imported in (False, True):
                if imported and "is missing" in text:
                    continue  # the scheduler side could not have been imported
                with self.subTest(new, imported=imported):
                    self.doCleanups()
                    self.setUp()
                    self.assertIn(old, WORKER_TEXT)
                    self.install(WORKER_TEXT.replace(old, new))
                    if imported:
                        importlib.import_module(SCHEDULER)
                    self.refused(text)

    def test_same_shapes_are_replaced(self) -> None:
        for old, new in SAME_SHAPES:
            with self.subTest(new):
                self.doCleanups()
                self.setUp()
                self.assertIn(old, WORKER_TEXT)
                self.install(WORKER_TEXT.replace(old, new))
                self.register()
                self.assert_replaced()

    def test_a_scheduler_side_without_the_name_is_refused(self) -> None:
        for imported in (False, True):
            with self.subTest(imported=imported):
                self.doCleanups()
                self.setUp()
                self.install(scheduler=f"import {WORKER} as worker\n")
                if imported:
                    original = importlib.import_module(SCHEDULER).worker.LookupKeyClient
                self.refused(f"in {SCHEDULER}, LookupKeyClient is missing")
                if imported:
                    self.assertIs(sys.modules[WORKER].LookupKeyClient, original, "not by half")

    def test_missing_modules_are_refused(self) -> None:
        for worker, scheduler, missing in ((None, "", WORKER), ("", None, SCHEDULER)):
            with self.subTest(missing):
                self.doCleanups()
                self.setUp()
                self.install(worker, scheduler)
                self.refused(f"there is no module {missing}")

    def test_no_vllm_is_refused(self) -> None:
        if importlib.util.find_spec("vllm") is not None:
            self.skipTest("vLLM is installed here")
        self.refused(f"there is no module {WORKER}")


if __name__ == "__main__":
    unittest.main()
