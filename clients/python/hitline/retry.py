"""When a request is sent, and when again: over connections that are made as they are needed.

A connection that the server has ended is replaced. A request that is lost on an old connection, before the first byte
of its reply, is sent once more on a new one: none does more the second time. One that is refused as busy is sent
again, later and later, until its deadline. After a server could not be reached, was silent or stayed busy, requests
fail at once for a while. Nothing else is tried twice.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from hitline.connection import PARTLY_DONE, REFUSED, Connection, Endpoint, Lost, Request, forkable
from hitline.errors import (
    Busy,
    ConnectionFailed,
    RefusedError,
    RequestTimeout,
    UnknownRequest,
    WrongRelease,
    decode_refusal,
)

# How long requests fail at once after a server was not reached, or was silent or busy; and
# how long a request waits that is sent again because the server is busy. In seconds.
_FIRST_PAUSE = 0.02
_MAX_PAUSE = 1.0


class Retry:
    """The connection of a client, and when it is used. Any thread may call exchange; one is served at a time.

    prepare is called before a request is sent, until its connection is_ready: with this, the connection, the request and
    its deadline."""

    def __init__(self, endpoint: Endpoint, prepare: Callable[[Retry, Connection, Request, float], None]) -> None:
        self.endpoint = endpoint
        self.connection: Connection | None = None
        self.closed = False
        self.last_failure = ""  # why nothing is tried until retry_at
        self.lock = threading.Lock()
        self.pause = 0.0  # the last one, in seconds
        self.resends_lookups = True  # whether a lookup that is refused as busy is sent again, until its timeout
        self.retry_at = 0.0
        self.troubled = False  # whether recovered is to be called after the next lookup that is answered
        self._prepare = prepare
        forkable.add(self)

    def _after_fork(self) -> None:
        self.lock = threading.Lock()
        with contextlib.suppress(OSError):
            self.drop()  # closes this process's copy, and says nothing to the server

    def exchange(self, request: Request, timeout: float, *, resend: bool = True, force: bool = False) -> list[bytes]:
        """Sends a request and returns the frames of its reply, at least one. Raises the server's refusal. Without
        resend a refusal as busy is raised at once, and delays no other request. With force it is tried also if
        requests fail at once."""
        now = time.monotonic()
        deadline = now + timeout
        lock = self.lock  # a process that is forked meanwhile gets another one
        if not lock.acquire(False):
            if not force:
                self._check(now)
            if not lock.acquire(timeout=timeout):
                raise self.lock_error(timeout)
            now = time.monotonic()
        try:
            if force:
                self.retry_at = 0.0
            else:
                self._check(now)  # also after a wait: the request before may have failed
            return self._exchange(request, deadline, resend)
        finally:
            lock.release()

    @property
    def suspended(self) -> bool:
        """Whether requests fail at once until a ping is answered."""
        return False

    def _check(self, now: float) -> None:
        """Raises ConnectionFailed if requests fail at once."""
        if self.closed:
            raise ConnectionFailed("the client is closed")
        if self.suspended:
            raise ConnectionFailed(f"not tried until a ping is answered, after this: {self.last_failure}")
        if now < self.retry_at:
            raise ConnectionFailed(f"not tried so soon after this: {self.last_failure}")

    def knows(self, name: bytes) -> bool:
        """Whether the connection's server has not refused a request as unknown."""
        connection = self.connection
        return connection is None or name not in connection.unknown

    def lock_error(self, timeout: float) -> RequestTimeout:
        return RequestTimeout(f"other requests took all of {timeout} s")

    def _exchange(self, request: Request, deadline: float, resend: bool) -> list[bytes]:
        connection = self.connection
        is_old = connection is not None and connection.is_alive()
        while True:
            try:
                if connection is None or not is_old:
                    connection = self._connect(deadline)
                if not connection.is_ready:
                    self._prepare(self, connection, request, deadline)
                reply = self.ask(connection, request, deadline, resend)
                self.pause = 0.0
                if self.troubled and request.is_lookup:
                    self.recovered()
                return reply
            except (RefusedError, WrongRelease) as error:  # the connection is as it was
                if not isinstance(error, Busy):
                    self.pause = 0.0
                raise
            except BaseException as error:
                # What is still to come on this connection answers nothing of ours.
                self.drop()
                if is_old and isinstance(error, Lost) and not self.closed:
                    is_old = False
                    continue
                if isinstance(error, RequestTimeout):
                    self.timed_out(str(error))
                raise

    def ask(self, connection: Connection, request: Request, deadline: float, resend: bool = True) -> list[bytes]:
        """Makes one round trip, and with resend more while the server is busy. Raises what it refuses."""
        pause = _FIRST_PAUSE
        while True:
            reply = connection.exchange(request, deadline)
            if reply[0] != REFUSED and reply[0] != PARTLY_DONE:
                return reply
            refusal = decode_refusal(reply)
            if isinstance(refusal, UnknownRequest):
                connection.unknown.add(request.name)
            if not isinstance(refusal, Busy) or not resend:
                raise refusal
            again = time.monotonic() + pause
            if again >= deadline or request.is_lookup and not self.resends_lookups:
                self.stayed_busy(request, str(refusal))
                raise refusal
            if not connection.wait(again):
                raise Lost(f"{self.endpoint.address} closed the connection")
            pause = min(2 * pause, _MAX_PAUSE)

    def _connect(self, deadline: float) -> Connection:
        """Returns a new connection in place of the one before."""
        self.drop()
        # Known to close before it is waited for; either sees what the other did.
        self.connection = connection = Connection(self.endpoint)
        if self.closed:
            raise ConnectionFailed("the client is closed")
        try:
            connection.connect(deadline)
        except (OSError, ValueError) as error:  # the latter of a name, or of the files for TLS
            text = f"cannot connect to {self.endpoint.address}: {error}"
            if isinstance(error, socket.timeout) or time.monotonic() >= deadline:
                raise RequestTimeout(text) from error
            self.back_off(text)
            raise ConnectionFailed(text) from error
        return connection

    def back_off(self, why: str) -> None:
        """Has requests fail at once for a while, longer each time until one is answered."""
        self.last_failure = why
        self.pause = min(max(2 * self.pause, _FIRST_PAUSE), _MAX_PAUSE)
        self.retry_at = time.monotonic() + self.pause

    def timed_out(self, why: str) -> None:
        """Is called after a request that was not answered in time."""
        self.back_off(why)

    def stayed_busy(self, request: Request, why: str) -> None:
        """Is called after a request that was refused as busy, and is not sent again."""
        self.back_off(why)

    def recovered(self) -> None:
        """Is called after an answered lookup, if troubled."""

    def drop(self) -> None:
        """Closes the connection, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self, deadline: float) -> None:
        """Wakes the thread that makes a request, and waits for it until the deadline. Requests then fail."""
        self.closed = True
        connection = self.connection
        if connection is not None:
            connection.interrupt()
        # A thread that looks up a host's name is not woken. It drops its connection itself.
        if self.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                self.drop()
            finally:
                self.lock.release()
