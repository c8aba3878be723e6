"""Starts, asks and stops the processes of a row: master, hitline, engines."""

import contextlib
import glob
import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import install

HERE = os.path.dirname(os.path.abspath(__file__))
ENGINE = os.path.join(HERE, "engine")  # what runs in the engines' processes
ROOT = os.path.dirname(os.path.dirname(HERE))
HITLINE = os.path.join(ROOT, "bin", "hitline")

START_TIMEOUT = 30  # seconds for a master or hitline to answer
ENGINE_START_TIMEOUT = 240  # seconds
STOP_TIMEOUT = 15  # seconds between SIGTERM and SIGKILL
COMMAND_TIMEOUT = 30  # seconds for a command of hitline
COMPUTE_TIMEOUT = 300  # seconds for prompts
RESET_TIMEOUT = 60  # seconds
SETTLE_TIMEOUT = 60  # seconds until blocks are stored
REPLY_TIME = 10  # seconds that the reply to an engine's command may take longer than the command


class Failed(Exception):
    """A process did not do what it should; the text says which, and where its log is."""


def timed(condition, seconds, text):
    """Waits until the condition holds and returns how long that took; raises Failed with the
    text if it takes too long."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() > started + seconds:
            raise Failed(f"{text} within {seconds:g} s")
        time.sleep(0.05)
    return time.monotonic() - started


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A process with a log file, in a process group of its own. It is reaped by kill and by
    stop only: until then its number means no other process."""

    def __init__(self, name, command, log, environ=None, **pipes):
        self.name, self.log = name, log
        with open(log, "ab") as file:
            self.popen = subprocess.Popen(
                command,
                env=environ,
                stdin=pipes.get("stdin", subprocess.DEVNULL),
                stdout=pipes.get("stdout", file),
                stderr=file,
                start_new_session=True,
            )

    def ended(self):
        """Returns the exit status, negative for a signal; None while the process runs."""
        if self.popen.returncode is not None:
            return self.popen.returncode
        info = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        return info.si_status if info.si_code == os.CLD_EXITED else -info.si_status

    def check(self):
        status = self.ended()
        if status is not None:
            raise Failed(f"{self.name} ended with {status}; its log is {self.log}")

    def wait_ready(self):
        """Waits until the process answers."""

        def answers_or_ends():
            self.check()
            return self.answers()

        timed(answers_or_ends, START_TIMEOUT, f"{self.name} did not answer (its log is {self.log})")

    def signal(self, number):
        """Signals the process and those that it started."""
        if self.popen.returncode is None:
            os.killpg(self.popen.pid, number)

    def kill(self):
        """Kills the process and those that it started, and waits for the end of all."""
        if self.popen.returncode is None:
            self.signal(signal.SIGKILL)
            self.popen.wait()
            with contextlib.suppress(Failed):
                timed(self.group_ended, STOP_TIMEOUT, f"{self.name} has processes that did not end")

    def group_ended(self):
        try:
            os.killpg(self.popen.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def stop(self):
        try:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            with contextlib.suppress(Failed):
                timed(lambda: self.ended() is not None, STOP_TIMEOUT, f"{self.name} did not stop")
        finally:
            self.kill()
            for pipe in (self.popen.stdin, self.popen.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()


class Master(Process):
    """A mooncake_master on given ports."""

    def __init__(self, log, lease, rpc=0, admin=0):
        self.rpc, self.admin = rpc or free_port(), admin or free_port()
        self.address = f"127.0.0.1:{self.rpc}"
        pattern = os.path.join(install.venv(), "lib", "python3*", "site-packages", "mooncake", "mooncake_master")
        super().__init__(
            "mooncake_master",
            [
                *glob.glob(pattern)[:1],
                "--rpc_address=127.0.0.1",
                f"--rpc_port={self.rpc}",
                "--metrics_host=127.0.0.1",
                f"--metrics_port={self.admin}",
                f"--default_kv_lease_ttl={lease}",
                "--client_ttl=10",
            ],
            log,
        )

    def answers(self):
        return self.keys() is not None

    def keys(self):
        """Returns the sorted keys, None while the master does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/get_all_keys", timeout=5) as response:
                return sorted(response.read().decode().split())
        except (OSError, urllib.error.URLError):
            return None


class Hitline(Process):
    """A hitline serve, without a configured pool."""

    def __init__(self, address, environ, log):
        self.address, self.environ = address, environ
        super().__init__("hitline", [HITLINE, "serve", "--backend", "mooncake", "--listen", address], log, environ)

    def answers(self):
        return run_hitline(self.environ, "ping", "--connect", self.address).returncode == 0


def run_hitline(environ, *arguments, stdin=""):
    """Runs a command of hitline."""
    return subprocess.run(
        [HITLINE, *arguments],
        env=environ, input=stdin, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False,
    )  # fmt: skip


def having(argument):
    """Returns the numbers of the processes with an argument on their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if argument.encode() in file.read().split(b"\0"):
                found.append(int(name))
    return found


def clean_environ():
    """Returns the environment without settings of what is run here."""
    prefixes = ("HITLINE_", "VLLM_", "MOONCAKE_", "MC_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}


class Engine(Process):
    """A vLLM engine, see engine/main.py. Commands may be sent before replies are read; the first
    reply comes when the engine has started, and says what it is."""

    program = "main.py"

    def __init__(self, name, environ, log, *arguments):
        command = [install.python(), os.path.join(ENGINE, self.program), *arguments]
        super().__init__(name, command, log, environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.replies = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(ValueError):  # the pipe was closed
            for line in self.popen.stdout:
                self.replies.put(line)
        self.replies.put(None)

    def send(self, *command):
        try:
            self.popen.stdin.write(json.dumps(command).encode() + b"\n")
            self.popen.stdin.flush()
        except OSError as error:
            raise Failed(f"{self.name} takes no commands: {error}; its log is {self.log}") from error

    def reply(self, seconds):
        try:
            line = self.replies.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"{self.name} did not answer within {seconds} s; its log is {self.log}") from None
        if line is None:
            timed(lambda: self.ended() is not None, STOP_TIMEOUT, f"{self.name} closed its output but did not end")
            self.check()
        return self.decode(line)

    def decode(self, line):
        reply = json.loads(line)
        if "error" in reply:
            raise Failed(f"{self.name} failed to {reply['error']}; its log is {self.log}")
        return reply["result"]

    def call(self, *command, seconds):
        self.send(*command)
        return self.reply(seconds)

    def settle(self):
        """Waits until the engine has stored its blocks."""
        if not self.call("settle", SETTLE_TIMEOUT, seconds=SETTLE_TIMEOUT + REPLY_TIME):
            raise Failed(f"{self.name} did not store its blocks in {SETTLE_TIMEOUT} s")

    def reset(self):
        """Has the engine forget the blocks that it has itself."""
        self.call("reset", seconds=RESET_TIMEOUT)

    def remove(self, keys):
        """Has the engine remove keys from the store."""
        self.call("remove", keys, seconds=RESET_TIMEOUT)
