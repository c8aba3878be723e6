"""Fetches Python modules of a release of vLLM or SGLang out of its wheel on PyPI.

Only the needed ranges of the wheel are downloaded, about 1 MB of 300. The modules stay in
~/.cache/hitline/<folder>/<release>/, under their paths in the wheel, with the list of them in
reference.json.
"""

import fnmatch
import io
import json
import os
import re
import urllib.error
import urllib.request
import zipfile

CACHE = os.path.expanduser("~/.cache/hitline")
STORE = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/store/"

# What is run, by folder: of vLLM the store's lookup, and KV events with block hashes. The part of
# a name before its dash is the package. Everything else is stubbed, see modules.py. A * is also of files in folders
# below; vllm-files has what clients/python/hitline/vllm_builds.py compares, and what else its tests import.
PATTERNS = {
    "vllm": [
        STORE + "*.py",
        "vllm/v1/core/*.py",
        "vllm/v1/kv_cache_*.py",
        "vllm/utils/math_utils.py",
    ],
    "vllm-events": [
        "vllm/v1/core/*.py",
        "vllm/v1/kv_cache_*.py",
        "vllm/utils/math_utils.py",
        "vllm/utils/hashing.py",
        "vllm/distributed/kv_events.py",
    ],
    "sglang-events": [
        "sglang/srt/disaggregation/kv_events.py",
        "sglang/srt/mem_cache/events.py",
        "sglang/srt/mem_cache/hicache_storage.py",
        "sglang/srt/mem_cache/utils.py",
        "sglang/srt/mem_cache/cpp_utils/*",
    ],
    "vllm-files": [
        STORE + "*.py",
        "vllm/_version.py",
        "vllm/v1/core/*.py",
        "vllm/v1/kv_cache_*.py",
        "vllm/utils/hashing.py",
        "vllm/utils/math_utils.py",
        "vllm/distributed/mooncake_store.py",
        "vllm/distributed/kv_transfer/kv_connector/v1/metrics.py",
    ],
    "vllm-hints": ["vllm/v1/kv_hints/protocol.py"],
    "sglang-hints": ["sglang/srt/managers/kv_hints.py"],
    "kvcr": ["kvcr/hint_parser.py"],
    "sglang-store": [
        "sglang/srt/mem_cache/hicache_storage.py",
        "sglang/srt/mem_cache/storage/mooncake_store/mooncake_store.py",
    ],
}
LISTING = "reference.json"
BLOCK = 1 << 18  # bytes of one range request
TIMEOUT = 60  # seconds for one request


class Unavailable(Exception):
    """PyPI cannot be reached."""


class UnknownRelease(Exception):
    """PyPI does not have the release."""


def get(url, headers=None):
    """Returns the response's body and status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=TIMEOUT) as response:
            return response.read(), response.status
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise UnknownRelease(url) from error
        raise Unavailable(f"{url}: {error}") from error
    except OSError as error:
        raise Unavailable(f"{url}: {error}") from error


def exit_status(error, say):
    """Says why the modules of a release cannot be run, and returns the exit status that tells it."""
    say(f"reference: no network: {error}" if isinstance(error, Unavailable) else f"reference: {error}")
    return {UnknownRelease: 2, Unavailable: 3}.get(type(error), 1)


class RemoteFile(io.RawIOBase):
    """A file on a server, read by range requests of whole blocks."""

    def __init__(self, url, size):
        self.url, self.size, self.position = url, size, 0
        self.blocks = {}

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.position

    def seek(self, offset, whence=io.SEEK_SET):
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer):
        number, start = divmod(self.position, BLOCK)
        if self.position >= self.size:
            return 0
        part = self._block(number)[start : start + len(buffer)]
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)

    def _block(self, number):
        if number not in self.blocks:
            first = number * BLOCK
            last = min(first + BLOCK, self.size) - 1
            body, status = get(self.url, {"Range": f"bytes={first}-{last}"})
            if status != 206:
                raise Unavailable(f"{self.url}: no range requests")
            self.blocks[number] = body
        return self.blocks[number]


def wheel_of(release, package):
    """Returns the address and the size of the wheel for x86-64."""
    body, _ = get(f"https://pypi.org/simple/{package}/", {"Accept": "application/vnd.pypi.simple.v1+json"})
    for file in json.loads(body)["files"]:
        if re.fullmatch(rf"{package}-{re.escape(release)}-.*(x86_64|any)\.whl", file["filename"]):
            return file["url"], file["size"]
    raise UnknownRelease(f"PyPI has no wheel of {package} {release} for x86-64")


def fetch(release, say=lambda text: None, folder="vllm"):
    """Returns the directory with the modules of a release; fetches what is missing."""
    directory, patterns = os.path.join(CACHE, folder, release), PATTERNS[folder]
    listing = os.path.join(directory, LISTING)
    if os.path.exists(listing):
        with open(listing) as file:
            known = json.load(file)
        if known["patterns"] == patterns and all(os.path.exists(os.path.join(directory, n)) for n in known["files"]):
            return directory
    say(f"{release}: fetching modules from PyPI")
    remote = RemoteFile(*wheel_of(release, folder.split("-")[0]))
    with zipfile.ZipFile(io.BufferedReader(remote, 1 << 16)) as wheel:
        names = [n for n in wheel.namelist() if any(fnmatch.fnmatch(n, p) for p in patterns)]
        names = [n for n in names if (folder == "vllm-files" or "/sched/" not in n) and not n.endswith("/")]
        for name in names:
            if not os.path.exists(os.path.join(directory, name)):
                write(os.path.join(directory, name), wheel.read(name))
    write(listing, json.dumps({"patterns": patterns, "files": names}, indent=1).encode())
    say(f"{release}: {len(names)} modules, {sum(map(len, remote.blocks.values())) >> 10} KiB read")
    return directory


def write(path, content):
    """Writes a file so that no other process sees a part of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
