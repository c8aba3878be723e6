"""Builds of vLLM that are no release, and HITLINE_ON_MISMATCH=own."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from hitline import VLLM_RELEASES, LookupKeyClient, vllm_builds, vllm_plugin
from hitline.vllm_releases import DIGESTS
from tests.support import UNKNOWN, WHEELS, Scripted, message, pool_reply, refusal
from tests.test_vllm_plugin import DATA_TEXT, RELEASE, SCHEDULER, SCHEDULER_TEXT, WORKER, WORKER_TEXT, StandIn
from tests.test_wheels import InWheels
from tests.wheels import Stubs

STORE = vllm_builds.FOLDERS[0]

# vLLM's own client, and a worker.
OWN_TEXT = WORKER_TEXT.replace('raise AssertionError("the one that was to be replaced")', "pass") + """

class MooncakeStoreWorker:
    def __init__(self, vllm_config, kv_cache_config):
        pass
"""


class Builds(StandIn):
    def build(self, version: object, **texts: str | None) -> Path:
        """Puts a build on the path that has the files of RELEASE, and returns the folder of its package."""
        for name in ("HITLINE_ADDRESS", "HITLINE_VLLM", "HITLINE_ON_MISMATCH"):
            os.environ.pop(name, None)
        self.install(**{"worker": OWN_TEXT, **texts}, version=version)
        package = Path(sys.path[0]) / "vllm"
        for name in ("v1/core/block_pool.py", "v1/core/sched/scheduler.py", *vllm_builds.FILES):
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(f"# {name}\n")
        record = package.parent / f"vllm-{RELEASE}.dist-info" / "RECORD"
        record.parent.mkdir()
        record.write_text("".join(f"{path},sha256={hashlib.sha256(text).hexdigest()},\n" for path, text in vllm_builds.files_of(package).items()))
        found = mock.patch.dict(DIGESTS, {RELEASE: vllm_builds.digest(vllm_builds.files_of(package))})
        found.start()
        self.addCleanup(found.stop)
        return package

    def assert_vllms_own(self) -> None:
        """vLLM is as without the plug-in."""
        worker, scheduler = (importlib.import_module(name) for name in (WORKER, SCHEDULER))
        self.assertIs(scheduler.LookupKeyClient, worker.LookupKeyClient)
        for cls in (worker.LookupKeyClient, worker.MooncakeStoreWorker, scheduler.MooncakeStoreScheduler):
            self.assertIn(cls.__module__, (WORKER, SCHEDULER))
            for name, value in vars(cls).items():
                self.assertFalse(hasattr(value, "__wrapped__"), name)
        self.assertEqual([each for each in sys.meta_path if isinstance(each, vllm_plugin._Finder)], [])

    def test_a_build_of_a_known_release(self) -> None:
        for version in (f"{RELEASE}.post1", "0.33.1.dev5+g1a2b3c", "dev", None, (0, 33, 0)):
            for choice in vllm_plugin.ON_MISMATCH:
                with self.subTest(version, choice=choice):
                    self.again()
                    self.build(version)
                    os.environ["HITLINE_ON_MISMATCH"] = choice
                    with self.assertLogs("vllm.hitline", "INFO") as logs:
                        self.register()
                    self.assertEqual(self.assert_replaced().settings.release, RELEASE)
                    (said,) = logs.output
                    self.assertIn(f"vLLM {version} has the files of vLLM {RELEASE}: hitline serves it as that release", said)

    def test_other_files(self) -> None:
        """The wheel's RECORD is as it was."""
        for name, text in (
            (f"{STORE}/worker.py", OWN_TEXT + "#"),
            (f"{STORE}/new.py", ""),
            ("v1/core/block_pool.py", "#"),
            ("v1/core/new.py", ""),
            ("v1/core/sched/scheduler.py", "#"),
            ("v1/core/sched/new.py", ""),
            ("v1/core/new/new.py", ""),
            ("v1/core/block_pool.py", None),
            *((name, "#") for name in vllm_builds.FILES),
            *((name, None) for name in vllm_builds.FILES),
        ):
            for choice in vllm_plugin.ON_MISMATCH:
                with self.subTest(name, text=text, choice=choice):
                    self.again()
                    file = self.build(f"{RELEASE}.post1") / name
                    file.parent.mkdir(exist_ok=True)
                    if text is None:
                        file.unlink()
                    else:
                        file.write_text(text)
                    os.environ["HITLINE_ON_MISMATCH"] = choice
                    with self.assertLogs("vllm.hitline", "INFO") as logs:
                        for _ in range(2):
                            if choice == "own":
                                self.register()
                            else:
                                with self.assertRaises(vllm_plugin.UnsupportedVLLM):
                                    self.register()
                    (said,) = logs.records
                    self.assertEqual(said.levelname, "WARNING" if choice == "own" else "ERROR")
                    self.assertIn(f"vLLM is {RELEASE}.post1, and has the files of no release that is known;", said.getMessage())
                    self.assertIn("install a newer hitline, set HITLINE_VLLM to", said.getMessage())
                    self.assert_vllms_own()

    def test_other_names_and_other_files_do_not_count(self) -> None:
        package = self.build(f"{RELEASE}.post1")
        for name in ("v1/core/README.md", "v1/core/block_pool.pyc", "v1/new.py", "utils/new.py"):
            (package / name).write_text("new")
        self.register()
        self.assert_replaced()

    def test_announced_changes_are_named(self) -> None:
        file = self.build(UNKNOWN) / "v1/core/sched/scheduler.py"
        file.write_text("num_publishable_block_hashes = 0")
        with self.assertLogs("vllm.hitline", "ERROR"), self.assertRaisesRegex(
            vllm_plugin.UnsupportedVLLM, "no release that is known, but num_publishable_block_hashes, which needs a newer hitline;"
        ):
            self.register()

    def test_files_that_cannot_be_read(self) -> None:
        self.build(UNKNOWN)
        with mock.patch.object(Path, "read_bytes", side_effect=PermissionError("not yours")):
            with self.assertLogs("vllm.hitline", "ERROR"), self.assertRaisesRegex(vllm_plugin.UnsupportedVLLM, r"known \(not yours\)"):
                self.register()

    def test_a_known_version_and_the_variable_go_first(self) -> None:
        for version, named in ((RELEASE, ""), (UNKNOWN, RELEASE), (f"{RELEASE}.post1", "0.32.0")):
            with self.subTest(version, named=named):
                self.again()
                self.build(version)
                if named:
                    os.environ["HITLINE_VLLM"] = named
                with mock.patch.object(vllm_builds, "files_of", side_effect=AssertionError):
                    self.register()
                self.assertEqual(self.assert_replaced().settings.release, named or version)

    def test_what_is_replaced_has_another_shape(self) -> None:
        for texts in (
            {"worker": OWN_TEXT.replace("def discard", "def drop")},
            {"scheduler": SCHEDULER_TEXT.replace("def update_state_after_alloc", "def alloc")},
            {"data": DATA_TEXT.replace("class TailKeyBoundary", "class Boundary")},
            {"data": None},
        ):
            for first in ([], [WORKER], [WORKER, SCHEDULER]):
                with self.subTest(texts, first=first):
                    self.again()
                    self.build(RELEASE, **texts)
                    for name in first:
                        importlib.import_module(name)
                    os.environ["HITLINE_ON_MISMATCH"] = "own"
                    with self.assertLogs("vllm.hitline", "WARNING") as logs:
                        self.register()
                        self.assert_vllms_own()
                    self.assertEqual(len(logs.records), 1)
                    self.assertIn("vLLM is as without hitline", logs.output[0])

    def test_the_servers_pool_differs(self) -> None:
        differs = refusal("pool_differs", "pool", "tp_size is 4, described as 2")
        for reply, own in ((differs, True), (pool_reply(RELEASE), False), (refusal("no_pool"), False)):
            with self.subTest(reply), Scripted(lambda frames, r=reply: r if frames[0] == b"pool" else message(b"\1", b"")) as server:
                self.again()
                self.build(RELEASE)
                os.environ["HITLINE_ON_MISMATCH"] = "own"
                with self.assertLogs("vllm.hitline", "INFO") as logs:
                    self.register(server.address)
                    scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(object(), object())
                self.assertIs(isinstance(scheduler.client, LookupKeyClient), not own)
                if own:
                    self.assertIn("vLLM's own client looks up, hitline at ", logs.output[-1])
                else:
                    scheduler.client.close()


class Wheels(InWheels):
    def test_a_wheel_whose_version_is_changed(self) -> None:
        for release in VLLM_RELEASES:
            with self.subTest(release), tempfile.TemporaryDirectory() as copied:
                self.load(release)
                folder = Path(shutil.copytree(Path(WHEELS, release), Path(copied) / "wheel"))
                version = folder / "vllm" / "_version.py"
                version.write_text(version.read_text() + f"\n__version__ = '{release}.post1'\n")
                sys.meta_path[0] = Stubs(folder)
                with self.assertLogs("vllm.hitline", "INFO"):
                    self.register()
                found = self.assert_replaced().settings.release
                self.assertEqual(DIGESTS[found], DIGESTS[release])


if __name__ == "__main__":
    unittest.main()
