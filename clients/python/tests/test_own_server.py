"""The engine's own server: a process that lives and dies with the engine's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hitline import Client, HitlineError, own_server, vllm_plugin
from hitline.own_server import OwnServer, ProgramMissing, WrongConfiguration, find_program
from tests.support import (
    BINARY,
    NEWEST,
    PATIENCE,
    Scripted,
    message,
    mooncake_config,
    needs_server,
    no_thread_left,
    resume,
    stat_reply,
)
from tests.test_client import eventually
from tests.test_vllm_plugin import RELEASE, SCHEDULER, StandIn

POOL = {"vllm": NEWEST, "model_name": "m", "groups": [{"kind": "full_attention", "block_size": 16}]}

# An engine: a process with the scheduler side of a stand-in. It tells about its server and
# then runs the lines that it is given.
ENGINE = f"""
import json, os, signal, sys, warnings
from hitline import vllm_plugin
vllm_plugin.register()
from {SCHEDULER} import MooncakeStoreScheduler
scheduler = MooncakeStoreScheduler(object(), object())
server = scheduler.client.own_server
def pid():
    with server._lock:  # which is held until the process is known; it may listen before
        return server._running and server._running.pid
print(json.dumps({{"pid": pid(), "folder": server._folder}}), flush=True)
warnings.simplefilter("ignore")  # Python's of a fork beside threads
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


# How somebody else's folder differs from the engine's own.
TAKEN: dict[str, Callable[[Path], object]] = {
    "open to others": lambda folder: folder.chmod(0o770),
    **({"another user's": lambda folder: os.chown(folder, 65534, -1)} if os.geteuid() == 0 else {}),
}


def running(pid: int) -> bool:
    """Whether there is a process that has not ended. Nobody may have waited for it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


class Logged(logging.Handler):
    """A logger, and what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[str, str]] = []
        self.logger = logging.Logger("test", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append((record.levelname, record.getMessage()))

    def texts(self, level: str) -> list[str]:
        return [text for found, text in list(self.records) if found == level]


@unittest.skipUnless(os.path.exists("/proc/self/stat"), "there is no /proc")
class OwnServers(unittest.TestCase):
    """They begin without variables of hitline's and leave no folder behind."""

    def setUp(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HITLINE_")}
        folder = tempfile.TemporaryDirectory(prefix="h")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(lambda: self.assertEqual(list(self.folder.glob("hitline-*")), []))
        for target in (
            mock.patch.dict(os.environ, {**environ, "MOONCAKE_CONFIG_PATH": mooncake_config(self)}, clear=True),
            mock.patch.object(tempfile, "tempdir", folder.name),
        ):
            target.start()
            self.addCleanup(target.stop)
        self.log = Logged()

    @staticmethod
    def address(server: OwnServer) -> str:
        return f"ipc://{server.path}"

    def program(self, text: str) -> str:
        """A program of these lines of Python in the place of hitline."""
        path = self.folder / "program"
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys, time\n{text}\n")
        path.chmod(0o700)
        return str(path)

    @contextlib.contextmanager
    def server(self, program: str = BINARY, **settings: str) -> Iterator[OwnServer]:
        with no_thread_left(self):
            server = OwnServer(program, settings, self.log.logger)
            server.start()
            try:
                yield server
            finally:
                last = server._running
                server.close()
            self.assertFalse(os.path.exists(server._folder))
            if last is not None:
                eventually(lambda: running(last.pid), True)


@needs_server
class Hitline(OwnServers):
    def test_start_and_close(self) -> None:
        with self.server() as server:
            self.assertTrue(server.wait_ready(PATIENCE))
            folder = os.lstat(server._folder)
            self.assertEqual((stat.S_IMODE(folder.st_mode), folder.st_uid), (0o700, os.getuid()))
            self.assertEqual(os.listdir(server._folder), [os.path.basename(server.path)])
            with Client(self.address(server), pool=POOL, raise_errors=True) as client:
                reply = client.check_pool()
                assert reply is not None
                self.assertEqual(reply["backend"], "mooncake")
                self.assertEqual(client.lookup(64, [bytes(32)] * 4), 0)
            server.close()
            server.close()
        for text in self.log.texts("WARNING"):
            self.assertRegex(text, "no Mooncake master answers|the store cannot be used|a call of the backend failed")
        self.assertIn("hitline: stopped", self.log.texts("INFO"))

    def test_a_server_that_is_killed_comes_back(self) -> None:
        """In the same folder, whose name nobody else can take meanwhile, at another address."""
        with self.server() as server:
            folder, paths = os.open(server._folder, os.O_RDONLY), set()
            self.addCleanup(os.close, folder)
            for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, None):
                self.assertTrue(server.wait_ready(PATIENCE))
                self.assertTrue(os.path.samestat(os.fstat(folder), os.lstat(server._folder)))
                self.assertEqual(os.listdir(server._folder), [os.path.basename(server.path)])
                paths.add(server.path)
                with Client(self.address(server), pool=POOL, raise_errors=True) as client:
                    self.assertEqual(client.lookup(64, [bytes(32)] * 4), 0)
                before = server._running
                assert before is not None
                if end:
                    os.kill(before.pid, end)
                    eventually(lambda before=before: server._running in (None, before), True)
        self.assertEqual(len(paths), 4)
        ended = "the engine's own hitline has ended; it is started again "
        texts = [text for text in self.log.texts("WARNING") if text.startswith(ended)]
        self.assertEqual(texts, [ended + "at once", ended + "in 0.05 s", ended + "in 0.10 s"])

    def test_variables(self) -> None:
        """Those of the process have the last word, but for where it listens and how it logs."""
        os.environ.update(
            HITLINE_ADDRESS="auto", HITLINE_TIMEOUT="2", HITLINE_VLLM=NEWEST, HITLINE_ON_MISMATCH="fail",
            HITLINE_POOL_NAME="a", HITLINE_LISTEN="tcp://127.0.0.1:1", HITLINE_LOG_FORMAT="text",
            HITLINE_TOKEN_FILE="/token", HITLINE_TLS_CA="/ca", HITLINE_TLS_CERT="/cert", HITLINE_TLS_KEY="/key",
            HITLINE_METRICS="127.0.0.1:0", HITLINE_LOOPS="2", HITLINE_BACKEND_MOONCAKE_TENANT="mine",
            HITLINE_PROGRAM=BINARY,
        )  # fmt: skip
        with self.server(HITLINE_BACKEND_MOONCAKE_TENANT="engine's") as server:
            self.assertTrue(server.wait_ready(PATIENCE))
            (ready,) = eventually(lambda: [t for t in self.log.texts("INFO") if t.startswith("hitline: ready")], [])
            self.assertRegex(ready, rf'listen=\["{self.address(server)}"\] .*backend=mooncake .*metrics=127.0.0.1:\d+')
            self.assertEqual(server._environ["HITLINE_BACKEND_MOONCAKE_TENANT"], "mine")
            clients = ("HITLINE_TOKEN", "HITLINE_TLS", "HITLINE_PROGRAM")
            self.assertEqual([name for name in server._environ if name.startswith(clients)], [])
            self.assertEqual((server._environ["HITLINE_LOOPS"], server._environ["HITLINE_DRAIN_TIMEOUT"]), ("2", "1s"))

    def test_resets_are_allowed_unless_set(self) -> None:
        for setting, refused in ((None, ""), ("false", "set backend.mooncake.allow_reset")):
            if setting:
                os.environ["HITLINE_BACKEND_MOONCAKE_ALLOW_RESET"] = setting
            pool = {"vllm": NEWEST, "model_name": "m", "hash_block_size": 16}
            with self.server() as server, Client(self.address(server), pool=pool) as client:
                self.assertTrue(server.wait_ready(PATIENCE))
                reply = client.check_pool()
                assert reply is not None
                self.assertRegex(reply.get("reset_refused", ""), refused or "^$")

    def test_wrong_configurations(self) -> None:
        def check() -> None:
            server = OwnServer(BINARY, {}, self.log.logger)
            self.addCleanup(server.close)
            server.check()

        check()
        for name, value, text in (
            ("MOONCAKE_CONFIG_PATH", mooncake_config(self, master_server_address="etcd://a:1"), "MOONCAKE_CONFIG_PATH: .*etcd"),
            ("HITLINE_POOL_TP_SIZ", "1", "HITLINE_POOL_TP_SIZ: no such variable"),
        ):
            with self.subTest(name), mock.patch.dict(os.environ, {name: value}):
                with self.assertRaisesRegex(WrongConfiguration, f"{BINARY} serve does not start: {text}"):
                    check()

    def test_it_is_no_child(self) -> None:
        """What kills this process with all its descendants leaves it to end by itself."""
        with self.server() as server:
            self.assertTrue(server.wait_ready(PATIENCE))
            assert server._running is not None
            parent = int(Path(f"/proc/{server._running.pid}/stat").read_text().rpartition(")")[2].split()[1])
            self.assertNotEqual(parent, os.getpid())

    def test_a_long_temporary_folder(self) -> None:
        for length in (own_server.MAX_FOLDER, own_server.MAX_FOLDER + 1):
            folder = self.folder / ("a" * (length - len(str(self.folder)) - 1))
            folder.mkdir()
            with mock.patch.object(tempfile, "tempdir", str(folder)), self.server() as server:
                self.assertTrue(server.wait_ready(PATIENCE))
                want = str(folder) if length == own_server.MAX_FOLDER else "/tmp"
                self.assertEqual(os.path.dirname(server._folder), want)
            self.assertEqual(list(folder.iterdir()), [])


class Programs(OwnServers):
    """Other programs in the place of hitline."""

    def install(self, version: str, size: int) -> Path:
        """What pip leaves of a package, with a program of this many bytes in the folder commands."""
        site = self.folder / "lib" / "site"
        info = site / f"hitline-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: hitline\nVersion: {version}\n")
        (info / "RECORD").write_text(f"hitline/__init__.py,,\n../../commands/hitline,sha256=x,{size}\n")
        package = mock.patch.object(own_server, "_package_folder", lambda: str(site))
        package.start()
        self.addCleanup(package.stop)
        return site

    def test_the_program_is_found(self) -> None:
        """In the first of these folders that has it: that of pip's record, bin beside the package, pip's, the
        interpreter's, pip's of this user, those of PATH."""
        record, bin = str(self.folder / "commands"), str(self.install("1.0.0", 3) / "bin")
        pip, beside, user, path = (str(self.folder / name) for name in ("pip", "beside", "user", "path"))
        schemes = {"": pip, f"{os.name}_user": user}
        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.dict(os.environ, {"PATH": path}))
            patches.enter_context(mock.patch.object(sys, "executable", f"{beside}/python"))
            patches.enter_context(mock.patch.object(own_server.sysconfig, "get_path", lambda _, scheme="": schemes[scheme]))
            patches.enter_context(mock.patch.object(own_server.site, "ENABLE_USER_SITE", True))
            text = f"no program hitline, neither in {bin} nor in {pip} nor in {beside} nor in {user} nor on PATH; set HITL"
            with self.assertRaisesRegex(ProgramMissing, text):
                find_program()
            for folder in (path, user, beside, pip, bin, record):
                program = Path(folder) / "hitline"
                program.parent.mkdir()
                program.write_text("abc")
                program.chmod(0o600)  # no program
                if folder != path:
                    self.assertNotEqual(find_program(), str(program))
                program.chmod(0o700)
                self.assertEqual(find_program(), str(program))
            (Path(record) / "hitline").write_text("another program")
            self.assertEqual(find_program(), f"{bin}/hitline")
            with mock.patch.dict(os.environ, HITLINE_PROGRAM=f"{user}/hitline"):
                self.assertEqual(find_program(), f"{user}/hitline")
            with mock.patch.dict(os.environ, HITLINE_PROGRAM=f"{user}/none"):
                with self.assertRaisesRegex(ProgramMissing, "^HITLINE_PROGRAM is '.*/user/none', must be the path of"):
                    find_program()
            for folder in (bin, pip, beside):
                (Path(folder) / "hitline").unlink()
            with mock.patch.object(own_server.site, "ENABLE_USER_SITE", False), mock.patch.object(sys, "executable", ""):
                self.assertEqual(find_program(), f"{path}/hitline")

    def test_a_program_of_another_version(self) -> None:
        """One warning names both versions."""
        said = "sys.stdin.read(); print('{\"version\": \"%s\"}' if sys.argv[1:] == ['version', '--json'] else '')"
        for package, program, is_same in (
            ("0.1.0", "v0.1.0", True),
            ("0.1.0", "v0.1.1", False),
            ("0.1.0", "v0.1.0-rc.1", False),
            ("0.1.0rc1", "v0.1.0-rc.1", True),
            ("0.1.0.dev0", "v0.1.0-dev.0", True),
            ("0.1.0.dev12+g0123456789ab", "v0.1.0-dev.12.g0123456789ab", True),
            ("0.1.0rc2.dev3+g0123456789ab.dirty", "v0.1.0-rc.1.dev.3.g0123456789ab.dirty", True),
            ("0.1.0.dev12+g0123456789ab", "v0.1.0-dev.12.g0123456789ac", False),
            ("0.1.0.dev12+g0123456789ab", "devel", False),
        ):
            with self.subTest(f"{package} {program}"):
                site = self.install(package, 0)
                path, self.log = self.program(said % program), Logged()
                server = OwnServer(path, {}, self.log.logger)
                self.addCleanup(server.close)
                server.check()
                text = f"the program {path} is of version {program}, and the plug-in of {package}: "
                text += "install one wheel that has both, or set HITLINE_PROGRAM"
                self.assertEqual(self.log.texts("WARNING"), [] if is_same else [text])
                shutil.rmtree(site)
        for silent in (self.program("print('no JSON')"), self.program("sys.exit(3)"), str(self.folder / "gone")):
            self.install("0.1.0", 0)
            self.assertEqual(own_server.version_difference(silent), "")
            shutil.rmtree(self.folder / "lib")
        self.assertEqual(own_server.version_difference(self.program(said % "v0.1.0")), "")  # pip knows no package

    def test_the_log(self) -> None:
        lines = [
            *({"time": "t", "level": level, "msg": "a", "n": 1} for level in ("DEBUG", "INFO", "WARN", "ERROR", "OTHER")),
            {"level": "INFO", "msg": "b", "text": "two words", "line": "a\nb", "list": ["c"]},
        ]
        text = "\n".join(map(json.dumps, lines)) + "\n\nhitline: no JSON\n" + "x" * 100_000 + "\nlast"
        with self.server(self.program(f"os.write(2, {text.encode()!r}); sys.stdin.read()")) as server:
            path = server.path
            eventually(lambda: len(self.log.records) >= 9, False)
            server.close()
        started, *records = self.log.records
        self.assertRegex(started[1], f"^started .*/program, process [0-9]+, for lookups at {path}$")
        want = [(level, "hitline: a n=1") for level in ("DEBUG", "INFO", "WARNING", "ERROR", "WARNING")]
        want.append(("INFO", 'hitline: b text="two words" line="a\\nb" list=["c"]'))
        want += [("ERROR", "hitline: no JSON"), ("ERROR", "hitline: " + "x" * own_server.MAX_LINE), ("ERROR", "hitline: last")]
        self.assertEqual(records, want)

    def test_delays(self) -> None:
        self.assertEqual([own_server._delay(n) for n in (1, 2, 3, 4)], [0.0, 0.05, 0.1, 0.2])
        self.assertEqual([own_server._delay(n) for n in (9, 50, 5000)], [own_server.MAX_DELAY] * 3)

    def test_a_program_that_cannot_be_run(self) -> None:
        with self.server(str(self.folder / "gone")) as server:
            (text, *_) = eventually(lambda: self.log.texts("WARNING"), [])
            self.assertFalse(server.wait_ready(0))
            server.check()
        self.assertEqual(text, "the engine's own hitline has ended; it is started again at once")
        self.assertRegex(self.log.texts("ERROR")[0], "gone: not found")

    def test_a_folder_that_somebody_else_has_taken(self) -> None:
        """It is left alone, and another one is made."""
        for name, take in TAKEN.items():
            with self.subTest(name), self.server(self.program("sys.stdin.read()")) as server:
                eventually(lambda server=server: server._running, None)
                folder, path, before = Path(server._folder), server.path, server._running
                folder.rename(folder.with_name("moved"))
                folder.mkdir(0o700)
                (folder / "kept").touch()
                take(folder)
                self.assertFalse(server.wait_ready(0))
                assert before is not None
                os.kill(before.pid, signal.SIGKILL)
                eventually(lambda server=server: server._folder, str(folder))
                self.assertFalse(server.path.startswith(f"{folder}/"))
                self.assertRegex(
                    self.log.texts("WARNING")[-1], f"is moved to {server._folder}: {folder} is no folder of this user alone"
                )
                server.close()
                self.assertEqual(os.listdir(folder), ["kept"])
                self.assertFalse(os.path.lexists(path))
            shutil.rmtree(folder.with_name("moved"))
            folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)

    def test_no_folder(self) -> None:
        with mock.patch.object(tempfile, "tempdir", str(self.folder / "none")):
            with self.assertRaises(FileNotFoundError):
                OwnServer(self.program(""), {}, self.log.logger)
        with self.server(self.program("")) as server, mock.patch.object(tempfile, "tempdir", str(self.folder / "none")):
            os.rmdir(server._folder)
            found = lambda: [text for text in self.log.texts("WARNING") if " has no folder: " in text]  # noqa: E731
            (text, *_) = eventually(found, [])
        self.assertRegex(text, "has no folder: .*No such file .*; it is started again ")

    def test_whom_the_engine_asks(self) -> None:
        """A socket of this user's process, in a folder of this user alone. Else a lookup fails, or its time runs out in the
        last try."""
        started = self.folder / "started"
        program = self.program(f"open({str(started)!r}, 'w').close(); sys.stdin.read()")
        settings = vllm_plugin.Settings("auto", program, 20.0, "0.28.0", "miss", "")
        with mock.patch.object(vllm_plugin.logger, "disabled", True), no_thread_left(self):
            client = vllm_plugin._replacement(settings)(object())
            self.addCleanup(client.close)
            client._raise_errors = True
            server = client.own_server
            assert server is not None
            folder = Path(server._folder)
            eventually(started.exists, False)  # the folder is not touched any more

            def lookup() -> Any:
                client._retry.drop()
                resume(client)
                return client.lookup(secrets.token_hex(4), 64, [bytes(32)] * 4)

            def refused(text: str) -> None:
                asked = len(other.requests)
                with self.assertRaisesRegex(HitlineError, text):
                    lookup()
                self.assertFalse(server.wait_ready(0))
                self.assertEqual(len(other.requests), asked)

            def answer(frames: list[bytes]) -> bytes:
                return stat_reply("0.28.0") if frames == [b"stat"] else message(b"\0\0\0\x40")

            with Scripted(answer, server.path) as other:
                self.assertEqual(lookup(), 64)
                folder.chmod(0o711)
                refused("is no folder of this user alone")
                folder.chmod(0o700)
                with mock.patch.object(own_server, "_check_folder"), mock.patch("os.geteuid", lambda: 12345):
                    refused("is no socket of this user")
                    if hasattr(socket, "SO_PEERCRED"):
                        with mock.patch.object(server, "check_socket"):
                            refused(f"process {os.getpid()}, which listens there, is of user {os.getuid()}")
                self.assertEqual(lookup(), 64)
            os.rename(server.path, folder / "moved")
            (folder / "link").symlink_to(folder / "moved")
            os.rename(folder / "link", server.path)
            with self.assertRaisesRegex(HitlineError, "is no socket of this user"):
                lookup()
            for name in os.listdir(folder):
                (folder / name).unlink()
            client.close()

    def test_no_shell(self) -> None:
        with mock.patch.object(own_server, "DETACH", "exit 1"), self.server(self.program("")):
            (text, *_) = eventually(lambda: self.log.texts("WARNING"), [])
        self.assertRegex(text, "^the engine's own hitline cannot be started: ")

    def test_a_program_that_does_not_end(self) -> None:
        text = "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.write(2, b'up\\n')\nwhile True: time.sleep(1)"
        with self.server(self.program(text)) as server, mock.patch.object(own_server, "STOP_TIMEOUT", 0.2):
            eventually(lambda: self.log.texts("ERROR"), [])
            server.close()
            server._thread.join(PATIENCE)

    def test_a_server_that_was_not_started(self) -> None:
        OwnServer(self.program(""), {}, self.log.logger).close()


@needs_server
class Engines(StandIn):
    """Engines in processes of their own."""

    def setUp(self) -> None:
        super().setUp()
        self.install_release(RELEASE)
        source = str(Path(__file__).parent.parent)
        temporary = tempfile.TemporaryDirectory(prefix="h")
        self.addCleanup(temporary.cleanup)
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HITLINE_")},
            "HITLINE_ADDRESS": "auto",
            "PATH": os.path.dirname(BINARY),
            "PYTHONPATH": os.pathsep.join([sys.path[0], source]),
            "MOONCAKE_CONFIG_PATH": mooncake_config(self),
            "TMPDIR": temporary.name,
        }

    def engine(self) -> tuple[Any, int, str]:
        """The process, that of its server, and the server's folder."""
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", ENGINE], env=self.environ, stdin=pipe, stdout=pipe, text=True)
        self.addCleanup(self.end, process)
        assert process.stdout is not None
        server = json.loads(process.stdout.readline())
        self.assertTrue(running(server["pid"]))
        self.assertEqual(len(os.listdir(server["folder"])), 1)
        return process, server["pid"], server["folder"]

    @staticmethod
    def end(process: Any) -> None:
        process.kill()
        process.communicate(timeout=PATIENCE)

    def run_in(self, process: Any, line: str) -> str:
        """Has an engine run a line, and returns what it prints."""
        process.stdin.write(line + "\n")
        process.stdin.flush()
        printed = "".join(iter(process.stdout.readline, "done\n"))
        return printed.strip()

    def assert_ended(self, pid: int, folder: str) -> None:
        eventually(lambda: running(pid), True)
        eventually(lambda: os.path.exists(folder), True)

    def test_the_server_ends_with_the_engine(self) -> None:
        for how in ("signal.SIGKILL", "signal.SIGTERM", "signal.SIGINT"):
            with self.subTest(how):
                process, pid, folder = self.engine()
                process.send_signal(eval(how))
                self.assert_ended(pid, folder)
        for how in ("sys.exit()", "os._exit(1)", "raise KeyError", "scheduler.shutdown()"):
            with self.subTest(how):
                process, pid, folder = self.engine()
                process.stdin.write(how + "\n")
                process.stdin.flush()
                self.assert_ended(pid, folder)

    def test_it_ends_although_a_forked_process_lives_on(self) -> None:
        process, pid, folder = self.engine()
        fork = int(self.run_in(process, "fork = os.fork(); print(fork, flush=True) if fork else signal.pause()"))
        self.addCleanup(lambda: os.kill(fork, signal.SIGKILL))
        process.kill()
        self.assert_ended(pid, folder)
        self.assertTrue(running(fork))

    def test_it_lives_although_a_forked_process_ends(self) -> None:
        process, pid, folder = self.engine()
        line = "fork = os.fork(); os.waitpid(fork, 0) if fork else (scheduler.shutdown(), sys.exit())"
        self.run_in(process, line)
        self.assertEqual(self.run_in(process, "print(server.wait_ready(1), pid())"), f"True {pid}")
        self.assertTrue(os.path.exists(folder))
        self.end(process)
        self.assert_ended(pid, folder)

    def test_two_engines(self) -> None:
        one, pid, folder = self.engine()
        _, other, kept = self.engine()
        self.assertNotEqual(folder, kept)
        one.kill()
        self.assert_ended(pid, folder)
        self.assertTrue(running(other))

    def test_the_engine_goes_on_when_its_server_is_killed(self) -> None:
        process, pid, _ = self.engine()
        os.kill(pid, signal.SIGKILL)
        lookup = "print(scheduler.client.lookup('r', 64, [bytes(32)] * 4).hit_length)"
        self.assertEqual(self.run_in(process, lookup), "0")
        after = self.run_in(process, "server._stopping.wait(0.2); print(server.wait_ready(20), pid())")
        self.assertRegex(after, r"^True \d+$")
        self.assertNotEqual(after, f"True {pid}")

    @unittest.skipIf(shutil.which("hitline", path=sysconfig.get_path("scripts")), "the program is installed")
    def test_no_program(self) -> None:
        process = subprocess.run(
            [sys.executable, "-c", ENGINE], env={**self.environ, "PATH": ""}, input="", capture_output=True, text=True, timeout=PATIENCE
        )
        self.assertEqual(process.returncode, 1)
        self.assertIn("ProgramMissing: HITLINE_ADDRESS is auto, but there is no program hitline", process.stderr)

    def test_a_wrong_configuration(self) -> None:
        """The engine does not start, or does with miss, and with own with vLLM's own client."""
        environ = {**self.environ, "HITLINE_BACKEND_MOONCAKE_TIMEOUT": "soon"}
        for choice, code, text in (("fail", 1, ""), ("miss", 0, "lookups are hits of 0: "), ("own", 1, "vLLM's own client looks up: ")):
            process = subprocess.run(
                [sys.executable, "-c", ENGINE], env={**environ, "HITLINE_ON_MISMATCH": choice},
                input="", capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
            with self.subTest(choice):
                self.assertEqual(process.returncode, code, process.stderr)
                self.assertRegex(process.stderr, f"{text}.*serve does not start: HITLINE_BACKEND_MOONCAKE_TIMEOUT: ")
                self.assertIs("AssertionError: the one that was to be replaced" in process.stderr, choice == "own")
                self.assertNotIn("started again", process.stderr)
        self.assertEqual(os.listdir(self.environ["TMPDIR"]), [])


if __name__ == "__main__":
    unittest.main()
