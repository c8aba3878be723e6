"""Finds out of which known release of vLLM an installed build is, by its files.

A build may have another version than the release whose code it has: 0.33.0.post1, a commit, a vendor's name. What hitline
reproduces or replaces is in FOLDERS and FILES. If all of these files are those of a known release, byte for byte, its
rules serve the build. Their digests are taken of the files on disk: a wheel's RECORD does not see a patched file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from hitline.vllm_releases import DIGESTS

__all__ = ["FILES", "FOLDERS", "digest", "files_of", "find_announced", "find_release"]

# Below the package vllm: folders, all of whose Python files count, and single files.
FOLDERS = ("distributed/kv_transfer/kv_connector/v1/mooncake/store", "v1/core")
FILES = ("utils/hashing.py", "v1/kv_cache_interface.py")

# Names that vLLM has announced, each of a change that hitline does not know. A build with one of them needs a newer hitline.
ANNOUNCED = ("num_publishable_block_hashes", "use_eagle_prefix_cache_hashing")


def files_of(package: Path) -> dict[str, bytes]:
    """Returns the files that count of the folder of the package vllm, by their paths in it. Raises OSError if one cannot
    be read."""
    found = [path for folder in FOLDERS for path in (package / folder).rglob("*.py")]
    found += [package / name for name in FILES if (package / name).exists()]
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


def digest(files: Mapping[str, bytes]) -> str:
    """Returns the digest of files and their paths, in hex."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path} {hashlib.sha256(files[path]).hexdigest()}\n".encode())
    return total.hexdigest()


def find_release(files: Mapping[str, bytes]) -> str:
    """Returns the newest release with these files, empty if there is none."""
    found = digest(files)
    return next((release for release in reversed(DIGESTS) if DIGESTS[release] == found), "")


def find_announced(files: Mapping[str, bytes]) -> Iterable[str]:
    """Returns the names of ANNOUNCED that files have."""
    return [name for name in ANNOUNCED if any(name.encode() in text for text in files.values())]
