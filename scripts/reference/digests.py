"""Writes the digests of the files of vLLM's releases that the plug-in compares a build of vLLM with."""

import os
import sys
from pathlib import Path

import kinds
import table
import wheel

PYTHON = os.path.join(table.ROOT, "clients", "python")
FOLDER = "vllm-files"
TARGET = os.path.join(PYTHON, "hitline", "vllm_releases.py")

HEAD = '''"""The known releases of vLLM, oldest first, each with the digest of its files: see vllm_builds.py. `python3 -B
scripts/reference --digests` writes this file."""

DIGESTS = {
'''


def text(say):
    """Fetches the files of all releases in coordinator/rules.go, and returns the module with their digests."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, PYTHON)
    from hitline import vllm_builds

    lines = [HEAD]
    for release in kinds.RELEASES["vllm"]:
        folder = Path(wheel.fetch(release, say, FOLDER))
        lines.append(f'    "{release}": "{vllm_builds.digest(vllm_builds.files_of(folder / "vllm"))}",\n')
    return "".join([*lines, "}\n"])


def write(say):
    wheel.write(TARGET, text(say).encode())


def modules(say):
    """Returns the folder with the files of each release, whose digests are those of TARGET."""
    with open(TARGET) as file:
        if file.read() != text(say):
            raise RuntimeError(f"the files of the wheels do not have the digests in {TARGET}; --digests writes it anew")
    return os.path.join(wheel.CACHE, FOLDER)
