"""The installed package, as vLLM finds it. Run in a folder that has these tests and not the
package, by an interpreter that has a wheel installed; scripts/check-wheels does so.

HITLINE_TEST_INSTALLED is the version of the wheel. With HITLINE_TEST_PURE=1 the wheel is one
without programs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import hitline
from hitline import Client, vllm_plugin
from hitline.own_server import ProgramMissing, find_program, version_difference
from tests.support import BINARY, WHEELS, Server, chained, mooncake_config
from tests.test_engine_pool import Engine, in_releases
from tests.test_engine_start import Starting

VERSION = os.environ.get("HITLINE_TEST_INSTALLED", "")
PURE = os.environ.get("HITLINE_TEST_PURE") == "1"
SCRIPTS = sysconfig.get_path("scripts")
PLUGINS = "vllm.general_plugins"

needs_installed = unittest.skipUnless(VERSION, "HITLINE_TEST_INSTALLED names no version of an installed wheel")
needs_programs = unittest.skipIf(PURE, "the wheel has no programs")
needs_modules = unittest.skipUnless(WHEELS, "HITLINE_TEST_WHEELS names no folder of vLLM's modules")


def plugins() -> list[Any]:
    """What vLLM finds."""
    found: Any = importlib.metadata.entry_points()
    return list(found.select(group=PLUGINS) if hasattr(found, "select") else found.get(PLUGINS, []))


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


@needs_installed
class Package(unittest.TestCase):
    def test_package(self) -> None:
        distribution = importlib.metadata.distribution("hitline")
        self.assertEqual(distribution.version, VERSION)
        self.assertIsNone(distribution.requires)
        folder = Path(hitline.__file__).parent
        self.assertEqual(folder.parent, Path(str(distribution.locate_file(""))).resolve())
        self.assertTrue((folder / "py.typed").exists())
        licences = {path.name for path in distribution.files or () if path.parent.name == "licenses"}
        self.assertEqual(licences, {"LICENSE"} if PURE else {"LICENSE", "THIRD_PARTY_NOTICES"})
        self.assertNotIn("](../", str(distribution.metadata), "links of the description lead out of the package")

    def test_without_an_address_the_plugin_does_nothing(self) -> None:
        (plugin,) = plugins()
        self.assertEqual(plugin.name, "hitline")
        finders = list(sys.meta_path)
        with mock.patch.dict(os.environ):
            os.environ.pop("HITLINE_ADDRESS", None)
            self.assertIsNone(plugin.load()())
        self.assertEqual(sys.meta_path, finders)


@needs_installed
class Commands(unittest.TestCase):
    @needs_programs
    def test_commands(self) -> None:
        self.assertEqual(find_program(), f"{SCRIPTS}/hitline")
        self.assertEqual(version_difference(f"{SCRIPTS}/hitline"), "")
        built = json.loads(output(f"{SCRIPTS}/hitline", "version", "--json"))
        # The same version in the writings of PyPI and of SemVer: v0.1.0-dev.1.gHASH, 0.1.0.dev1+gHASH.
        number, _, rest = VERSION.partition(".dev")
        if not rest:
            number, _, candidate = VERSION.partition("rc")
            self.assertEqual(built["version"], f"v{number}-rc.{candidate}" if candidate else f"v{number}")
        else:
            self.assertRegex(built["version"], rf"^v\d.*dev\.{rest.replace('+', '.').replace('.', '[.]')}$")
        self.assertIn(built["version"], output(f"{SCRIPTS}/hitbench", "version"))

    @needs_programs
    def test_client(self) -> None:
        self.assertEqual(BINARY, f"{SCRIPTS}/hitline")
        blocks = chained("a", 3)
        with Server() as server, Client(server.address) as client:
            client.store(blocks[:2], group=0)
            self.assertEqual(client.lookup(64, blocks), 32)

    @unittest.skipUnless(PURE, "the wheel has programs")
    def test_none(self) -> None:
        with mock.patch.dict(os.environ, PATH=""), self.assertRaises(ProgramMissing):
            find_program()


@needs_installed
@needs_programs
@needs_modules
class Engines(Starting):
    """The scheduler side of each release, with the plug-in as vLLM loads it."""

    def register(self, address: str = "") -> None:
        os.environ["HITLINE_ADDRESS"] = address
        for plugin in plugins():
            plugin.load()()

    @in_releases()
    def test_a_server_of_the_engines_own(self, engine: Engine) -> None:
        """HITLINE_ADDRESS=auto: the wheel's program is started, told the pool, and asked."""
        os.environ.update(PATH="", MOONCAKE_CONFIG_PATH=mooncake_config(self))
        self.configure(engine)
        with self.assertLogs("vllm.hitline") as logs:
            connector = self.connect("auto")
            self.assertEqual(connector.connector_scheduler.client.pool_reply["backend"], "mooncake")
            self.assertEqual(self.hit(connector, chained("a", 4)), (0, False))  # nothing is stored
            connector.shutdown()
        text = "\n".join(logs.output)
        self.assertIn(f"started {SCRIPTS}/hitline, process ", text)
        self.assertIn("serves the engine's pool", text)
        self.assertEqual(connector.get_kv_connector_stats().reduce()["lookup_exists_error_count"], 0)

    @in_releases()
    def test_a_server_of_several_engines(self, engine: Engine) -> None:
        """The engine's pool is described, and what is stored in it is hit."""
        with Server(ACCEPT_POOLS="true") as server:
            self.configure(engine)
            with mock.patch.object(vllm_plugin.logger, "disabled", True):
                scheduler = self.start(server.address)
                self.assertEqual(self.hit(scheduler, self.store(server.address, "a")), (64, True))
                self.assertEqual(self.hit(scheduler, chained("other", 4)), (0, False))


if __name__ == "__main__":
    unittest.main()
