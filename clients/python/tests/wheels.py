"""The connector's modules of vLLM's releases, unmodified, and stubs for all they import.

    python3 -m tests.wheels FOLDER

fetches what is not in FOLDER yet: of each wheel on PyPI only the bytes of the files that
are needed, 2 MB for a release. The files are checked against digests below.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import io
import json
import os
import re
import shutil
import sys
import types
import urllib.request
import zipfile
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from typing import Any

from hitline.vllm_plugin import PACKAGE

INDEX = "https://pypi.org/simple/vllm/"
STORE = PACKAGE.replace(".", "/") + "/"

# Of each release the digest of its files, see digest.
DIGESTS = {
    "0.24.0": "67d48b4c5d6d2d5c6336f3d80d5c498e8e4553c9ada06f73e8aef75a61b03787",
    "0.25.0": "f1dc457affa5f153fc40557b44d54d3995bf06ab07e91ca53739f19d35d8f7d2",
    "0.25.1": "15690b0981542192996e05cec43531fced00c847ab6af45eb26d7e700fe8ffd8",
    "0.26.0": "f649dfc03307f8527c4b442ee6f4699751a7ccccb67d4f1e68f6ab874af4133d",
    "0.27.0": "84dc238220c3c734fcaa965708af7e11cc22010949d91da8cfe9b85178a47a55",
    "0.27.1": "55215c59f25d14f6bff5568f5ab33fa42189e2026dd17b05489eb61a921b6418",
    "0.28.0": "dab8a7a5d9b6a8c87effc94a70133e04814eba7016c98d61e94576dcafc419fa",
    "0.29.0": "fcb92f1f984702e2a356db0665326c163f0688f748226d1b371708eb11718539",
    "0.30.0": "95e1899254c64c0866eb1e0775d057ddb9ef3cb33d87372c88867b5e6d03fc63",
    "0.31.0": "952676b9e92160d71e242bbc5e5ac493761d5bac2c400db5525afb8aade3bbd8",
    "0.32.0": "28e9fbf817231efd321700b211707aa7fcf7b20fc80bcc2f1126bab4197a5a8d",
    "0.33.0": "a9c2ee7d496df17c722742b5bf8f4cd4b71dc1eda97ef0739941214aedb53aaf",
}

# Packages that are stubs unless they are installed.
STUBS = ("vllm", "msgspec", "numpy", "prometheus_client", "torch", "zmq")


def fetch(release: str, folder: Path) -> None:
    """Puts the files of a release into folder, unless they are there."""
    at = folder / release
    if not at.exists():
        part = folder / f"{release}.{os.getpid()}.part"
        with zipfile.ZipFile(io.BufferedReader(_Remote(*_wheel(release)))) as wheel:
            for name in wheel.namelist():
                if name == "vllm/_version.py" or (name.startswith(STORE) and name.endswith(".py")):
                    wheel.extract(name, part)
        try:
            part.rename(at)
        except OSError:
            shutil.rmtree(part)  # another process was faster
    if digest(at) != DIGESTS[release]:
        raise ValueError(f"{at} does not hold the files of vLLM {release}, remove it: digest {digest(at)}")


def digest(folder: Path) -> str:
    """The digest of all Python files below folder, and of their names."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        text = path.read_bytes()
        total.update(f"{path.relative_to(folder).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()


def _wheel(release: str) -> tuple[str, int]:
    """The address and size of a release's wheel."""
    request = urllib.request.Request(INDEX, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        files = json.load(reply)["files"]
    for file in files:
        if re.fullmatch(rf"vllm-{re.escape(release)}-.*x86_64\.whl", file["filename"]):
            return file["url"], file["size"]
    raise ValueError(f"{INDEX} has no wheel of {release}")


class _Remote(io.RawIOBase):
    """A file of which only the blocks that are read are fetched."""

    BLOCK = 256 << 10

    def __init__(self, url: str, size: int) -> None:
        self.url = url
        self.size = size
        self.at = 0
        self.blocks: dict[int, bytes] = {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = (0, self.at, self.size)[whence] + offset
        return self.at

    def readinto(self, buffer: Any) -> int:
        number, start = divmod(self.at, self.BLOCK)
        got = self._block(number)[start : start + len(buffer)] if self.at < self.size else b""
        buffer[: len(got)] = got
        self.at += len(got)
        return len(got)

    def _block(self, number: int) -> bytes:
        if number not in self.blocks:
            first = number * self.BLOCK
            last = min(first + self.BLOCK, self.size) - 1
            request = urllib.request.Request(self.url, headers={"Range": f"bytes={first}-{last}"})
            with urllib.request.urlopen(request, timeout=60) as reply:
                if reply.status != 206:
                    raise ValueError(f"{self.url} does not serve ranges: status {reply.status}")
                self.blocks[number] = reply.read()
        return self.blocks[number]


class Stubs(MetaPathFinder, Loader):
    """Finds the store package of a release in folder, and stubs for all else of STUBS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname == PACKAGE or fullname.startswith(PACKAGE + ".") or fullname.partition(".")[0] not in STUBS:
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = [str(self.folder / fullname.replace(".", "/"))]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "vllm":
            text = (self.folder / "vllm" / "_version.py").read_text()
            scope: dict[str, Any] = {}
            exec(text, scope)
            module.__dict__["__version__"] = scope["__version__"]


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _StubType(name, (_Stub,), {})
        setattr(self, name, value)
        return value


class _StubType(type):
    """A type that has every attribute, and can be subscripted and called."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StubType(name, (_Stub,), {})

    def __getitem__(cls, item: object) -> Any:
        return cls


class _Stub(metaclass=_StubType):
    def __init__(self, *args: object, **more: object) -> None:
        pass

    def __call__(self, *args: object, **more: object) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Stub()

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for release in DIGESTS:
        fetch(release, folder)


if __name__ == "__main__":
    main()
