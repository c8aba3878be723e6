"""A hitline server of the engine's own, for HITLINE_ADDRESS=auto.

OwnServer runs `hitline serve` on a unix socket, in a folder that only this user may enter.
This process holds the other end of the pipe that is the program's standard input. The kernel
closes that end however this process ends. Then the program stops, and removes the socket and
the folder. A process forked from this one closes its copies of the pipes.

The folder stays until this process ends, so that nobody else can take its name while the
program is started again, each time with a new name of the socket. If the folder is gone all the
same, or is somebody else's, it is left alone and another one is made. Before a client connects it
asks whether folder and socket are this user's, and afterwards whether the server is.

A shell starts the program and ends at once, so the program is no child of this process. If an
engine's shutdown takes longer than 5 s, vLLM kills all of its descendants, and then the
engine. Then a child could not remove the folder.

A thread passes the lines of the program's log to a logger, and starts the program again when
it has ended. (docs/decisions.md, 21)
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import json
import logging
import os
import re
import secrets
import shutil
import signal
import site
import socket
import stat
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO

__all__ = ["OwnServer", "ProgramMissing", "WrongConfiguration", "find_program"]

PROGRAM = "hitline"

# How long, in seconds, close waits for the program to stop, and again after SIGKILL. It is
# also the longest wait for the shell.
STOP_TIMEOUT = 5.0

# The longest wait for `hitline serve --check`, in seconds.
CHECK_TIMEOUT = 5.0

# Starts a program in the background and prints its process id. A shell gives a program in
# the background /dev/null as standard input, so descriptor 3 keeps the pipe.
DETACH = 'exec 3<&0; "$@" <&3 3<&- >/dev/null & echo $!'

# A program that ends is started again at once. One that then runs for less than STABLE_AFTER
# is started again after FIRST_DELAY, which doubles up to MAX_DELAY. All are in seconds.
STABLE_AFTER = 10.0
FIRST_DELAY = 0.05
MAX_DELAY = 5.0

# Longest part of a line of the log, in bytes, that is passed on.
MAX_LINE = 8192

# Longest path of the temporary folder, in bytes. The path of a socket has at most 107, of
# which /hitline-abcdefgh/0123456789ab.sock takes 35.
MAX_FOLDER = 70

# The program's exit code for a wrong configuration or command line.
EXIT_CONFIGURATION = 2

# Variables of the program unless this process has them. One engine has one connection, which
# needs one event loop. Without hitline the engine can reset the store, too.
DEFAULTS = {"HITLINE_LOOPS": "1", "HITLINE_DRAIN_TIMEOUT": "1s", "HITLINE_BACKEND_MOONCAKE_ALLOW_RESET": "true"}

# Variables of clients, for another server than the engine's own, and of this module. The program does not get them.
CLIENT_VARIABLES = (
    "HITLINE_TOKEN_FILE", "HITLINE_TLS_CA", "HITLINE_TLS_CERT", "HITLINE_TLS_KEY", "HITLINE_PROGRAM",
)  # fmt: skip

LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}


class ProgramMissing(RuntimeError):
    """There is no program hitline."""


class WrongConfiguration(RuntimeError):
    """The program does not start because of its configuration."""


def find_program() -> str:
    """The path of the program: HITLINE_PROGRAM, or the one that was installed with this package, otherwise where pip
    puts commands, beside the interpreter or on PATH.

    On Debian pip puts the commands of /usr/bin/python3 into /usr/local/bin, and with --user into
    ~/.local/bin; in a virtual environment they are beside the interpreter.
    """
    if named := os.environ.get("HITLINE_PROGRAM"):
        if found := shutil.which(named):
            return os.path.abspath(found)
        raise ProgramMissing(f"HITLINE_PROGRAM is {named!r}, must be the path of the program {PROGRAM}")
    folders = [*_recorded_folders(), os.path.join(_package_folder(), "bin")]  # pip install --target records another one
    folders += [sysconfig.get_path("scripts"), os.path.dirname(sys.executable or "")]
    if site.ENABLE_USER_SITE:
        folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    folders = [folder for folder in dict.fromkeys(folders) if folder]
    for path in (*folders, None):
        if found := shutil.which(PROGRAM, path=path):
            return os.path.abspath(found)
    raise ProgramMissing(
        f"HITLINE_ADDRESS is auto, but there is no program {PROGRAM}, neither in {' nor in '.join(folders)} nor on PATH; "
        "set HITLINE_PROGRAM to its path, install a wheel that has it, or set HITLINE_ADDRESS to the address of a server"
    )


def version_difference(program: str) -> str:
    """What to say if the program and this package are of two versions. Empty if they are of one, if the program does not
    tell, or if pip did not install the package."""
    package, version = distribution(), ""
    if package is None:
        return ""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HITLINE_")}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
        command = [program, "version", "--json"]
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHECK_TIMEOUT
        )
        version = str(json.loads(done.stdout)["version"])
    if not version or _is_same(version, package.version):
        return ""
    return (
        f"the program {program} is of version {version}, and the plug-in of {package.version}: "
        "install one wheel that has both, or set HITLINE_PROGRAM"
    )


def _is_same(program: str, package: str) -> bool:
    """Whether a version of the program, v0.1.0-rc.1 or v0.1.0-dev.2.gHASH, is one of the package, 0.1.0rc1 or
    0.1.0.dev2+gHASH."""
    release, _, commit = package.partition("+")
    if commit:
        return program.endswith(f".{commit}")
    return re.findall("[0-9]+|[a-z]+", program.lstrip("v")) == re.findall("[0-9]+|[a-z]+", release)


def _package_folder() -> str:
    """The folder from which this package was imported."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def distribution() -> importlib.metadata.Distribution | None:
    """What pip has recorded of this package, as it was imported."""
    return next(iter(importlib.metadata.distributions(name=PROGRAM, path=[_package_folder()])), None)


def _recorded_folders() -> list[str]:
    """Where pip says that it has put the program. A file of another size is another program."""
    package = distribution()
    files = [file for file in (package and package.files) or () if file.name == PROGRAM]
    paths = [(file, os.path.normpath(file.locate())) for file in files]
    return [os.path.dirname(path) for file, path in paths if os.path.isfile(path) and file.size == os.path.getsize(path)]


# This process's ends of the pipes to programs. A forked process must not hold them. The lock
# is held while a pipe is created and added, so that no fork comes between.
_pipes: set[IO[bytes]] = set()
_pipes_lock = threading.RLock()


def _close_pipes() -> None:
    """Closes the pipes of the parent. A forked process calls it first, with the lock held."""
    for pipe in _pipes:
        with contextlib.suppress(OSError):
            pipe.close()
    _pipes.clear()
    _pipes_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_pipes_lock.acquire, after_in_parent=_pipes_lock.release, after_in_child=_close_pipes)


class _Detached:
    """A program that is no child of this process, with pipes to its standard input and from
    its standard error."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        with _pipes_lock:
            # Any thread can close unbuffered pipes. In a session of its own the program gets
            # no signal of the engine's terminal.
            shell = subprocess.Popen(
                ["/bin/sh", "-c", DETACH, "sh", *command],
                bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True,
            )  # fmt: skip
            assert shell.stdin is not None and shell.stdout is not None and shell.stderr is not None
            self._stdin, self._stderr = shell.stdin, shell.stderr
            _pipes.update((self._stdin, self._stderr))
        try:
            shell.wait(STOP_TIMEOUT)
            self.pid = int(shell.stdout.read(20))
        except BaseException:
            shell.kill()
            self.close()
            raise
        finally:
            shell.stdout.close()

    def lines(self) -> Iterator[bytes]:
        """The lines of its standard error, cut to MAX_LINE, until it ends."""
        pending = b""
        while chunk := self._stderr.read(1 << 16):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield line[:MAX_LINE]
            pending = pending[:MAX_LINE]
        if pending:
            yield pending

    def terminate(self) -> None:
        """Closes its standard input, so that it stops."""
        self._close(self._stdin)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the pipes of a program that has ended."""
        self._close(self._stdin)
        self._close(self._stderr)

    @staticmethod
    def _close(pipe: IO[bytes]) -> None:
        with _pipes_lock:
            _pipes.discard(pipe)
            pipe.close()


class OwnServer:
    """A server that runs from start until close, or until this process ends.

    program is the path of hitline. settings are variables for it; those of this process
    override them. The backend is mooncake. path, check_socket and check_peer are for any thread,
    and so is close, which may be called again; the other methods for the thread that built it.
    Raises OSError if it has no folder.
    """

    def __init__(self, program: str, settings: Mapping[str, str], logger: logging.Logger) -> None:
        self._program = program
        self._folder = _new_folder()
        self._path = self._new_path()
        # _log reads lines of JSON.
        self._environ = {**DEFAULTS, **settings, **os.environ, "HITLINE_LOG_FORMAT": "json"}
        for name in CLIENT_VARIABLES:
            self._environ.pop(name, None)
        self._logger = logger
        self._lock = threading.Lock()
        self._running: _Detached | None = None
        self._stopping = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="hitline-server", daemon=True)
        atexit.register(self.close)

    @property
    def path(self) -> str:
        """The server's socket. Each start of the server has another one."""
        return self._path

    def _command(self) -> list[str]:
        return [
            self._program, "serve", "--listen", f"ipc://{self._path}", "--backend", "mooncake",
            "--exit-on-stdin-eof", "--remove-dir", self._folder,
        ]  # fmt: skip

    def _new_path(self) -> str:
        return os.path.join(self._folder, f"{secrets.token_hex(6)}.sock")

    def check_socket(self, path: str) -> None:
        """Raises OSError unless a socket, and its folder, are of this user alone."""
        _check_folder(os.path.dirname(path))
        found = os.lstat(path)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(f"{path} is no socket of this user (owner {found.st_uid}, mode {found.st_mode:o})")

    def check_peer(self, sock: socket.socket) -> None:
        """Raises OSError if another user's process listens at the other end. Only Linux tells."""
        if not hasattr(socket, "SO_PEERCRED"):
            return
        pid, uid, _ = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid():
            raise OSError(f"process {pid}, which listens there, is of user {uid}")

    def check(self) -> None:
        """Raises WrongConfiguration if `hitline serve --check` refuses the configuration. A check
        that cannot be run, or takes longer than CHECK_TIMEOUT, counts as passed. Warns of a program
        of another version."""
        if difference := version_difference(self._program):
            self._logger.warning("%s", difference)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [*self._command(), "--check"],
                env=self._environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHECK_TIMEOUT,
            )  # fmt: skip
            if done.returncode == EXIT_CONFIGURATION:
                reason = done.stderr[:MAX_LINE].decode("utf-8", "replace").strip().removeprefix("hitline: ")
                raise WrongConfiguration(f"{self._program} serve does not start: {reason}")

    def start(self) -> None:
        """Starts the server in the background. It may be called once."""
        self._thread.start()

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    def wait_ready(self, timeout: float) -> bool:
        """Waits at most timeout seconds until the server accepts connections, and tells whether
        it does."""
        deadline = time.monotonic() + timeout
        while not self._takes_connections():
            if time.monotonic() >= deadline or self._stopping.is_set():
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Stops the server, waits for its end, at most 2 * STOP_TIMEOUT, and removes its folder. In
        a forked process it does nothing."""
        if os.getpid() != self._pid:  # forked from the process that has the server
            return
        atexit.unregister(self.close)
        with self._lock:
            self._stopping.set()
            running = self._running
        if running is not None:
            running.terminate()
        if self.started:
            self._thread.join(STOP_TIMEOUT)
            if self._thread.is_alive() and running is not None:
                running.kill()
                self._thread.join(STOP_TIMEOUT)
        with contextlib.suppress(OSError):
            _check_folder(self._folder)
            os.rmdir(self._folder)

    def _takes_connections(self) -> bool:
        path = self._path
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            self.check_socket(path)
            sock.settimeout(1.0)
            sock.connect(path)
            self.check_peer(sock)
            return True
        return False

    def _run(self) -> None:
        short_lives, delay = 0, 0.0
        while not self._stopping.wait(delay):
            started = time.monotonic()
            what = self._run_once()
            if self._stopping.is_set():
                return
            short = time.monotonic() - started < STABLE_AFTER
            short_lives = short_lives + 1 if short else 1
            delay = _delay(short_lives)
            again = f"in {delay:.2f} s" if delay else "at once"
            self._logger.warning("the engine's own hitline %s; it is started again %s", what, again)

    def _run_once(self) -> str:
        """Runs the program until it ends. Returns what happened, for the log."""
        try:
            self._keep_folder()
        except OSError as error:
            return f"has no folder: {error}"
        try:
            with self._lock:
                if self._stopping.is_set():
                    return ""
                self._running = running = _Detached(self._command(), self._environ)
            try:
                self._follow(running)
            finally:
                with self._lock:
                    self._running = None
                running.close()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return f"cannot be started: {error}"
        finally:
            with contextlib.suppress(OSError):  # it has removed the socket, unless it was killed
                self.check_socket(self._path)
                os.unlink(self._path)
            self._path = self._new_path()
        return "has ended"

    def _keep_folder(self) -> None:
        """Makes another folder if the folder is gone, or is somebody else's."""
        try:
            _check_folder(self._folder)
        except OSError as error:
            self._folder = _new_folder()
            self._path = self._new_path()
            self._logger.warning("the engine's own hitline is moved to %s: %s", self._folder, error)

    def _follow(self, running: _Detached) -> None:
        """Logs what the program logs, until it ends."""
        self._logger.info("started %s, process %d, for lookups at %s", self._program, running.pid, self._path)
        for line in running.lines():
            self._log(line)

    def _log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):  # not a line of the log: a message of the shell, or of a failure
            if text:
                self._logger.error("hitline: %s", text.removeprefix("hitline: "))
            return
        level = LEVELS.get(str(record.pop("level", "")), logging.WARNING)
        record.pop("time", None)
        words = [str(record.pop("msg", "")), *(f"{name}={_value(value)}" for name, value in record.items())]
        self._logger.log(level, "hitline: %s", " ".join(words))


def _delay(short_lives: int) -> float:
    """Seconds until the next start, after so many short lives in a row."""
    doublings = min(short_lives - 2, 16)  # more make no difference
    return min(FIRST_DELAY * 2**doublings, MAX_DELAY) if short_lives > 1 else 0.0


def _value(value: object) -> str:
    """The text of an attribute of a line, as JSON unless it is a plain word."""
    return value if isinstance(value, str) and value.isprintable() and " " not in value else json.dumps(value)


def _new_folder() -> str:
    """Makes a folder that only this user may enter: in /tmp if TMPDIR is too long for a socket."""
    temporary = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="hitline-", dir=temporary if len(os.fsencode(temporary)) <= MAX_FOLDER else "/tmp")


def _check_folder(path: str) -> None:
    """Raises OSError unless path is a folder that only this user may enter."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(f"{path} is no folder of this user alone (owner {found.st_uid}, mode {found.st_mode:o})")
