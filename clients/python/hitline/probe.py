"""Stops asking a server that hangs, until it answers a ping.

The engine's scheduler waits for its lookups. So a server that hangs would cost it a timeout at
each of them. ProbingRetry lets it wait for one timeout. Then all requests but resets fail at once,
while a thread pings the server over the client's connection. The first reply to a ping ends that, and
leaves a connection that is in the engine's pool. A refused connection ends it, too, as requests then
fail without a wait. A reset waits for the end. A server may answer pings and no lookups, since its
store hangs: pings are less and less frequent until a lookup is answered, which is logged.

A server that is busy answers pings. After a lookup that was refused as busy until its timeout,
each further one is sent once, until one is answered.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

from hitline.connection import Endpoint, Request
from hitline.errors import FailureLog, RefusedError, RequestTimeout, WrongRelease
from hitline.handshake import PING_IN_POOL
from hitline.retry import Retry

__all__ = ["Probe", "ProbingRetry"]

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
        self.active = False
        self._idle = threading.Event()
        self._idle.set()
        self._interval = FIRST_INTERVAL
        self._ping = ping
        self._clock = clock
        self._stopped = threading.Event()
        self._wait = wait or self._stopped.wait
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def wait_idle(self, timeout: float) -> None:
        """Waits while it is active, at most timeout seconds."""
        self._idle.wait(timeout)

    def begin(self) -> None:
        """Starts to ping, unless it does so already."""
        with self._lock:
            if self.active or self._stopped.is_set():
                return
            thread = threading.Thread(target=self.run, name="hitline-probe", daemon=True)
            self.active = True
            self._idle.clear()
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: requests go on
                self._end()
                return
            self._thread = thread

    def run(self) -> None:
        """Pings until a ping is the last, or the probe is stopped."""
        started = self._clock()
        while not self._wait(max(0.0, started + self._interval - self._clock())):
            started = self._clock()
            self._interval = min(2 * self._interval, MAX_INTERVAL)
            if self._ping():
                self._end()
                return

    def _end(self) -> None:
        self.active = False
        self._idle.set()

    def lookup_answered(self) -> None:
        """Has the next first ping be soon."""
        self._interval = FIRST_INTERVAL

    def stop(self) -> None:
        """Has no further ping begin."""
        with self._lock:
            self._stopped.set()
            self._end()

    def join(self, timeout: float) -> None:
        """Waits for the thread, after stop, at most timeout seconds."""
        if self._thread is not None:
            self._thread.join(timeout)


class ProbingRetry(Retry):
    """Waits for one timeout of a server that hangs or stays busy."""

    def __init__(self, endpoint: Endpoint, prepare: Callable[..., None], timeout: float, log: FailureLog) -> None:
        """timeout is that of a lookup, in seconds."""
        super().__init__(endpoint, prepare)
        self._ping_timeout = max(timeout, PING_TIMEOUT)
        ping = weakref.WeakMethod(self.ping_once)  # the thread must not keep a client that is dropped
        self.probe = Probe(lambda: (alive := ping()) is None or alive())
        self._log = log
        self._timed_out = False  # whether a request has, and no answered lookup has been logged since

    @property
    def suspended(self) -> bool:
        return self.probe.active

    def lock_error(self, timeout: float) -> RequestTimeout:
        # The request before may have a longer timeout: it, too, is to be waited for once.
        error = super().lock_error(timeout)
        self.last_failure = str(error)
        self._begin_probe()
        return error

    def timed_out(self, why: str) -> None:
        super().timed_out(why)
        self._begin_probe()

    def _begin_probe(self) -> None:
        self.troubled = self._timed_out = True
        self.probe.begin()

    def stayed_busy(self, request: Request, why: str) -> None:
        super().stayed_busy(request, why)
        if request.is_lookup:
            self.troubled, self.resends_lookups = True, False

    def recovered(self) -> None:
        self.resends_lookups = True
        self.probe.lookup_answered()
        if not self._timed_out:
            self.troubled = False
        elif self._log.is_due("answered"):
            self.troubled = self._timed_out = False
            self._log.logger.info("hitline at %s answers lookups again", self.endpoint.address)

    def ping_once(self) -> bool:
        """Pings on the connection, in the engine's pool. Returns whether the server has replied, or has refused
        the connection."""
        try:
            self.exchange(PING_IN_POOL, self._ping_timeout, force=True)
        except (RefusedError, WrongRelease):
            pass  # a reply, too
        except Exception as error:
            return isinstance(error.__cause__, (ConnectionRefusedError, FileNotFoundError))
        return True

    def wait_for_ping(self, timeout: float) -> float:
        """Waits while requests fail at once, and returns what is left of the timeout for one that does not."""
        deadline = time.monotonic() + timeout
        self.probe.wait_idle(timeout)
        return max(deadline - time.monotonic(), MIN_TIMEOUT)

    def close(self, deadline: float) -> None:
        self.probe.stop()
        super().close(deadline)
        self.probe.join(max(0.0, deadline - time.monotonic()))
