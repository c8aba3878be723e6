"""Pings a server that cannot be reached or hangs, until it answers: see retry.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Probe"]

# From the start of a ping to that of the next, in seconds. It doubles until a lookup is answered.
# A ping that takes longer is followed by the next at once.
FIRST_INTERVAL = 0.1
MAX_INTERVAL = 1.0


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
        """Waits while it is active, until release, at most timeout seconds."""
        self._idle.wait(timeout)

    def release(self) -> None:
        """Ends wait_idle."""
        self._idle.set()

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
