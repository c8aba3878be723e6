"""Stops asking a server that hangs, until it answers a ping.

The engine's scheduler waits for its lookups. So a server that hangs would cost it a timeout at
each of them. ProbingClient lets it wait for one timeout. Then all requests but resets fail at once,
while a thread pings the server over the client's connection. The first reply to a ping ends that, and
leaves a connection that is in the engine's pool. A refused connection ends it, too, as requests then
fail without a wait. A reset waits for the end. A server may answer pings and no lookups, since its
store hangs: pings are less and less frequent until a lookup is answered, which is logged.

A server that is busy answers pings. After a lookup that was refused as busy until its timeout,
each further one is sent once, until one is answered.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from hitline.client import (
    PING,
    Busy,
    ConnectionFailed,
    Hashes,
    LookupKeyClient,
    LookupResult,
    RefusedError,
    RequestTimeout,
    WrongRelease,
)

__all__ = ["Probe", "ProbingClient"]

# From the start of a ping to that of the next, in seconds. It doubles until a lookup is answered.
# A ping that takes longer is followed by the next at once.
FIRST_INTERVAL = 0.1
MAX_INTERVAL = 1.0

# How long the reply to a ping is waited for, in seconds, connecting included; as long as for a
# lookup if that is more.
PING_TIMEOUT = 1.0

# What is left at least for a reset that has waited, in seconds.
MIN_TIMEOUT = 0.01


class Probe:
    """Pings in a thread of its own, from begin until a ping is the last.

    ping returns whether it is the last. wait sleeps for so many seconds, and returns whether the
    probe has been stopped.
    """

    def __init__(
        self,
        ping: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        self._idle = threading.Event()
        self._idle.set()
        self._interval = FIRST_INTERVAL
        self._ping = ping
        self._clock = clock
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def active(self) -> bool:
        return not self._idle.is_set()

    def wait_idle(self, timeout: float) -> None:
        """Waits while it is active, at most timeout seconds."""
        self._idle.wait(timeout)

    def begin(self) -> None:
        """Starts to ping, unless it does so already."""
        with self._lock:
            if self.active or self._stopped.is_set():
                return
            thread = threading.Thread(target=self.run, name="hitline-probe", daemon=True)
            self._idle.clear()
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: requests go on
                self._idle.set()
                return
            self._thread = thread

    def run(self) -> None:
        """Pings until a ping is the last, or the probe is stopped."""
        started = self._clock()
        while not self._wait(max(0.0, started + self._interval - self._clock())):
            started = self._clock()
            self._interval = min(2 * self._interval, MAX_INTERVAL)
            if self._ping():
                self._idle.set()
                return

    def lookup_answered(self) -> None:
        """Has the next first ping be soon."""
        self._interval = FIRST_INTERVAL

    def stop(self) -> None:
        """Has no further ping begin."""
        with self._lock:
            self._stopped.set()
            self._idle.set()

    def join(self, timeout: float) -> None:
        """Waits for the thread, after stop, at most timeout seconds."""
        if self._thread is not None:
            self._thread.join(timeout)


class ProbingClient(LookupKeyClient):
    """A client that waits for one timeout of a server that hangs or stays busy."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        ping = weakref.WeakMethod(self._ping_once)  # the thread must not keep a client that is dropped
        self._probe = Probe(lambda: (alive := ping()) is None or alive())
        self._timed_out = False  # whether a request has, and no answered lookup has been logged since

    @contextlib.contextmanager
    def _locked(self, timeout: float | None) -> Iterator[float]:
        self._fail_if_silent()
        with super()._locked(timeout) as deadline:
            self._fail_if_silent()  # the request before this one has timed out
            try:
                yield deadline
            except RequestTimeout:
                self._begin_probe()
                raise

    def _lock_error(self, timeout: float) -> RequestTimeout:
        # The request before may have a longer timeout: it, too, is to be waited for once.
        error = super()._lock_error(timeout)
        self._last_failure = str(error)
        self._begin_probe()
        return error

    def _begin_probe(self) -> None:
        self._timed_out = True
        self._probe.begin()

    def _lookup(
        self, token_len: int, hashes: Hashes, timeout: float | None = None, *, resend: bool = True
    ) -> LookupResult:
        try:
            result = super()._lookup(token_len, hashes, timeout, resend=resend)
        except Busy:
            self._resends_busy = self._resends_busy and not resend
            raise
        self._resends_busy = True
        self._probe.lookup_answered()
        if self._timed_out and self._may_log("answered"):
            self._timed_out = False
            self._logger.info("hitline at %s answers lookups again", self.address)
        return result

    def _fail_if_silent(self) -> None:
        if self._probe.active and not self._closed:
            raise ConnectionFailed(f"not tried until a ping is answered, after this: {self._last_failure}")

    def _reset(self, timeout: float | None) -> bool:
        deadline = time.monotonic() + (timeout or self._timeout)
        self._probe.wait_idle(timeout or self._timeout)
        return super()._reset(max(deadline - time.monotonic(), MIN_TIMEOUT))

    def _ping_once(self) -> bool:
        """Pings on the client's connection. Returns whether the server has replied, or has refused
        the connection."""
        try:
            with super()._locked(max(self._timeout, PING_TIMEOUT)) as deadline:
                self._retry_at = 0.0
                self._exchange_locked((PING, b""), deadline, in_pool=True)
        except (RefusedError, WrongRelease):
            pass  # a reply, too
        except Exception as error:
            return isinstance(error.__cause__, (ConnectionRefusedError, FileNotFoundError))
        return True

    def _close(self, deadline: float) -> None:
        self._probe.stop()
        super()._close(deadline)
        self._probe.join(max(0.0, deadline - time.monotonic()))
