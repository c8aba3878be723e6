"""Writes the digests of the files of vLLM's releases that the plug-in compares a build of vLLM with."""

import os
import sys
from pathlib import Path

import kinds
import table
import wheel

PYTHON = os.path.join(table.ROOT, "clients", "python")
TARGET = os.path.join(PYTHON, "hitline", "vllm_releases.py")

HEAD = '''"""The known releases of vLLM, oldest first, each with the digest of its files: see vllm_builds.py. `python3 -B
scripts/reference --digests` writes this file."""

DIGESTS = {
'''


def write(say):
    """Fetches the files of all releases in coordinator/rules.go, and writes their digests."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, PYTHON)
    from hitline import vllm_builds

    lines = [HEAD]
    for release in kinds.RELEASES["vllm"]:
        folder = Path(wheel.fetch(release, say, "vllm-files"))
        lines.append(f'    "{release}": "{vllm_builds.digest(vllm_builds.files_of(folder / "vllm"))}",\n')
    wheel.write(TARGET, "".join([*lines, "}\n"]).encode())
