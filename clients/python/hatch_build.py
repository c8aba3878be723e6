"""What hatchling asks of this project: its version, and what a wheel holds.

A wheel is pure, of the Python files alone, unless HITLINE_WHEEL_PROGRAMS names a folder:
then its files become commands, and the wheel is for HITLINE_WHEEL_PLATFORM. scripts/wheels
builds all wheels of a release.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def tree_version() -> str:
    """The version that scripts/version prints; without a checkout around this folder 0.1.0.dev0.

    A source distribution has its version in PKG-INFO, and does not ask.
    """
    if version := os.environ.get("HITLINE_VERSION"):
        return version
    script = Path(__file__).resolve().parents[2] / "scripts" / "version"
    if not script.exists():
        return "0.1.0.dev0"
    run = subprocess.run([script, "--pep440"], stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout.strip()


class Programs(BuildHookInterface[Any]):
    """Puts the programs into a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("HITLINE_WHEEL_PROGRAMS")
        if version == "editable" or not folder:
            return
        programs = sorted(path for path in Path(folder).iterdir() if path.is_file())
        if not programs:
            sys.exit(f"HITLINE_WHEEL_PROGRAMS: no files in {folder}; build the programs first")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['HITLINE_WHEEL_PLATFORM']}"
        for path in programs:
            build_data["shared_scripts"][str(path)] = path.name
