"""Installs the packages that the modules of engines import, at pinned versions.

They stay in ~/.cache/hitline/packages-<digest>, which is put on sys.path: no environment of the
user is changed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys

import wheel

PINNED = ["msgspec==0.22.0", "cbor2==6.3.0", "xxhash==4.1.0", "pyzmq==27.3.0", "pybind11==3.1.0"]
TIMEOUT = 600  # seconds for pip


def ensure():
    """Installs what is missing, and puts it on sys.path. Returns the folder."""
    name = " ".join([*PINNED, sys.implementation.cache_tag])
    folder = os.path.join(wheel.CACHE, "packages-" + hashlib.sha256(name.encode()).hexdigest()[:16])
    os.makedirs(wheel.CACHE, exist_ok=True)
    with open(os.path.join(wheel.CACHE, "packages.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(folder):
            install(folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return folder


def install(folder):
    temporary = f"{folder}.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--only-binary=:all:", "--target", temporary]
    try:
        subprocess.run([*command, *PINNED], stdout=sys.stderr, timeout=TIMEOUT, check=True)
        os.replace(temporary, folder)
    except (subprocess.SubprocessError, OSError) as error:
        raise wheel.Unavailable(f"pip cannot install {' '.join(PINNED)}: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
