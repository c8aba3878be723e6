"""Modules of vLLM's releases, unmodified, and stubs for all else that they import.

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

# The files beside those of the connector: what an engine's groups are and how it resolves
# their sizes. A release lacks some of them.
ENGINE = (
    "vllm/utils/math_utils.py",
    "vllm/v1/core/kv_cache_utils.py",
    "vllm/v1/core/single_type_kv_cache_manager.py",
    "vllm/v1/kv_cache_interface.py",
    "vllm/v1/kv_cache_layout.py",
    "vllm/v1/kv_cache_spec_registry.py",
)

# Of each release the digest of its files, see digest.
DIGESTS = {
    "0.24.0": "e964a93d232b513bf92e43313be8a720a916ee58d0bbba9168c19476718d0ebd",
    "0.25.0": "cc160950f6e4b784adf57db8ac94dfaf9a8b5a785389dd080de6a18c6885e19d",
    "0.25.1": "4731a4899bf1cc8fe7ab227d23b9b0484a2338f1c35c03e388b229e3ac95d42d",
    "0.26.0": "47dd35dca06202df94caaa6a0a6d342de83993d6ec1c1ed5e50e1e8a6eace79f",
    "0.27.0": "2e9fd39cd415c1bf728b9dc63a4f467e1cd3b9487ae32d52e18c3470aeb0bdae",
    "0.27.1": "530881110282059485e2c981ff9d1cf78e52fd1fce3cebc92c3908e1c4aec3d6",
    "0.28.0": "2d944b0a19b22570e4c68b4ce5274c2463873d1dd875eb9074b081fec7324e80",
    "0.29.0": "be0fd6d0b6ea915f6c1b8b5ffadde093f5ddce61d48b0cc41b28e0eed0dd87d5",
    "0.30.0": "e406d57fd4d364178867b67de2d0b45c05d4c2dbb402e553b7dc3e9aaf241876",
    "0.31.0": "7acd3bf1ee5e4ff21ad0f1c56b528323a761778b7adaf9d5daeec95579301554",
    "0.32.0": "85e48b4d84ccd791e8a6ac8128cad2f892c891c4c13a97b0c41788541054f08b",
    "0.33.0": "d7247b1531f5615d23d64726679ad7b6ebf3d3f0d0b68ac94f4c60a838438c04",
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
                if name in ("vllm/_version.py", *ENGINE) or (name.startswith(STORE) and name.endswith(".py")):
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
    """Finds the store package of a release in folder, with engine also the modules of
    ENGINE, and stubs for all else of STUBS."""

    def __init__(self, folder: Path, engine: bool = False) -> None:
        self.folder = folder
        self.engine = engine

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname == PACKAGE or fullname.startswith(PACKAGE + ".") or fullname.partition(".")[0] not in STUBS:
            return None
        file = fullname.replace(".", "/") + ".py"
        if self.engine and file in ENGINE and (self.folder / file).exists():
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
