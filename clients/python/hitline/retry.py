"""When a request is sent, and when again: over connections that are made as they are needed.

A request that finds no server dials every 10 ms within its own deadline, if it need not be waited for, or if the server
was there within the last 5 s. Once one has done so in vain, or none waits, requests fail at once while a thread pings
the server, until a ping is answered. So it is with a server that hangs: the engine's scheduler waits for its lookups,
and waits for one timeout. The first reply to a ping leaves a connection that is in the engine's pool. A server may
answer pings and no lookups, since its store hangs: pings are less and less frequent until a lookup is answered, which
is logged.

A request whose connection ends before the first byte of its reply is sent once more, if it changes nothing, and unless
the reply before was a refusal. One that is refused as busy is sent again, later and later, until its deadline; after
that each further lookup is sent once, until one is answered. Nothing else is tried twice.

Of a list of servers one is used, which its pool's name chooses. When that cannot be reached, or hangs, the next one is
dialled at once; after a minute the first again, in a thread, and it is used from the next request on.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from hitline.connection import PARTLY_DONE, REFUSED, Connection, Endpoint, Lost, Request, forkable
from hitline.errors import (
    Busy,
    ConnectionFailed,
    FailureLog,
    RefusedError,
    RequestTimeout,
    UnknownRequest,
    WrongRelease,
    decode_refusal,
)
from hitline.probe import Probe
from hitline.worker import Task, Worker

# From a failed dial to the next, in seconds.
DIAL_PAUSE = 0.01

# How long after the server's last reply a request that is waited for dials again, in seconds.
SEEN_LATELY = 5.0

# How long requests fail at once after a server stayed busy; and how long a request waits that is sent again because
# the server is busy. In seconds.
_FIRST_PAUSE = 0.02
_MAX_PAUSE = 1.0

# How long the reply to a ping is waited for, in seconds, connecting included; as long as for a
# request if that is more.
PING_TIMEOUT = 1.0

# How long another server of a list is used than the one to begin with, in seconds.
BACK_AFTER = 60.0

# How long a server that refuses the pool is not left after all of the list have refused it, in seconds.
_STAYS = 10.0

# What is left at least for a reset that has waited, in seconds.
MIN_TIMEOUT = 0.01


class Retry:
    """The connection of a client, and when it is used. Any thread may call exchange; one is served at a time.

    prepare is called before a request is sent, until its connection is_ready: with this, the connection, the request and
    its deadline. It sends ping to learn whether the server answers, and leaves the connection ready for lookups."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        prepare: Callable[[Retry, Connection, Request, float], None],
        ping: Request,
        timeout: float,
        log: FailureLog,
    ) -> None:
        """timeout is that of a lookup, in seconds."""
        self.endpoints = endpoints
        self._first = self._at = 0  # which of them is used at first, and now
        self._failures = 0  # of them since one was ready, less than there are
        self._left_at = 0.0  # when another was used than the first, or the first dialled again
        self._stays_until = 0.0  # when one that refuses the pool may be left again, after all have refused it
        self._was_ready = False  # whether one has served the pool
        self.connection: Connection | None = None
        self.closed = False
        self.last_failure = ""  # why nothing is tried until a ping is answered, or until retry_at
        self.pause = 0.0  # the last one, in seconds
        self.resends_lookups = True  # whether a lookup that is refused as busy is sent again, until its timeout
        self.retry_at = 0.0
        self.clock = time.monotonic
        self._dialling = ""  # why the last dial has failed, while a request waits for the next
        self._log = log
        self._ping = ping
        self._ping_timeout = max(timeout, PING_TIMEOUT)
        self._timeout = timeout  # that other requests than lookups do not dial for longer
        self._prepare = prepare
        self._seen_at = -math.inf  # when the server has replied last
        self._timed_out = False  # whether a request has, and no answered lookup has been logged since
        self._troubled = False  # whether requests have failed at once, and no lookup was answered since
        self._begin()
        forkable.add(self)

    def _begin(self) -> None:
        """Makes what a forked process must have for its own, besides a connection."""
        self.lock = threading.Lock()
        self._closing = threading.Event()
        ping = weakref.WeakMethod(self.ping_once)  # the thread must not keep a client that is dropped
        self.probe = Probe(lambda: (alive := ping()) is None or alive())
        self._dialler = Worker("hitline-dial")
        self._spare: tuple[Connection, Task[None]] | None = None  # to the first of the endpoints, and its connecting
        weakref.finalize(self, self.probe.stop)

    def _after_fork(self) -> None:
        self._begin()
        with contextlib.suppress(OSError):
            self.drop()  # closes this process's copy, and says nothing to the server

    @property
    def endpoint(self) -> Endpoint:
        """The one that is used."""
        return self.endpoints[self._at]

    def choose(self, key: bytes) -> None:
        """Begins with an endpoint that follows from a key, or with the first without one. Go clients do the same."""
        digest = hashlib.sha256(key).digest()
        self._first = self._at = int.from_bytes(digest[:8], "big") % len(self.endpoints) if key else 0

    def _go_on(self) -> bool:
        """Uses the next endpoint, and tells whether all have failed since one was ready."""
        if self._at == self._first:
            self._left_at = self.clock()
        self._at = (self._at + 1) % len(self.endpoints)
        self._failures = (self._failures + 1) % len(self.endpoints)
        return not self._failures

    def _go_back(self) -> None:
        """Connects to the first endpoint in a thread, when that is due, and uses it once it is connected."""
        if self._spare is None:
            if self.clock() - self._left_at >= BACK_AFTER:
                self._left_at = self.clock()
                connection = Connection(self.endpoints[self._first])
                task = self._dialler.submit(connection.connect, time.monotonic() + self._ping_timeout)
                self._spare = connection, task
            return
        connection, task = self._spare
        if not task.is_done:
            return
        self._spare = None
        with contextlib.suppress(OSError, ValueError):
            task.result()
            self.drop()
            self._at, self.connection = self._first, connection

    def exchange(
        self, request: Request, timeout: float, *, resend: bool = True, waits: bool = False, force: bool = False
    ) -> list[bytes]:
        """Sends a request and returns the frames of its reply, at least one. Raises the server's refusal. Without
        resend a refusal as busy is raised at once, and delays no other request. With waits nobody waits for it. With
        force it is tried once, also if requests fail at once."""
        now = self.clock()
        deadline = now + timeout
        lock = self.lock  # a process that is forked meanwhile gets another one
        if not lock.acquire(False):
            if not force:
                self._check(now, waits)
            if not lock.acquire(timeout=timeout):
                raise self._lock_error(timeout)
            now = self.clock()
        try:
            if force:
                self.retry_at = 0.0
            else:
                self._check(now)  # also after a wait: the request before may have failed
            return self._exchange(request, deadline, resend, waits, force)
        finally:
            lock.release()

    def _check(self, now: float, waits: bool = True) -> None:
        """Raises ConnectionFailed if requests fail at once, or those do that another one waits in front of."""
        if self.closed:
            raise ConnectionFailed("the client is closed")
        if self.probe.active:
            raise ConnectionFailed(f"not tried until a ping is answered, after this: {self.last_failure}")
        if now < self.retry_at:
            raise ConnectionFailed(f"not tried so soon after this: {self.last_failure}")
        if self._dialling and not waits and not self._seen_lately():
            raise ConnectionFailed(f"not tried after this: {self._dialling}")

    def _seen_lately(self) -> bool:
        return self.clock() - self._seen_at <= SEEN_LATELY

    def knows(self, name: bytes) -> bool:
        """Whether the connection's server has not refused a request as unknown."""
        connection = self.connection
        return connection is None or name not in connection.unknown

    def _lock_error(self, timeout: float) -> RequestTimeout:
        # The request before may have a longer timeout: it, too, is to be waited for once.
        error = RequestTimeout(f"other requests took all of {timeout} s")
        self._hangs(str(error))
        return error

    def _exchange(self, request: Request, deadline: float, resend: bool, waits: bool, force: bool) -> list[bytes]:
        sends_again = request.changes_nothing and not force
        while True:
            connection = self._connected(request, deadline, waits, force)
            try:
                reply = self.ask(connection, request, deadline, resend)
            except RefusedError as error:  # the connection is as it was
                if not isinstance(error, Busy):
                    self.pause = 0.0
                raise
            except BaseException as error:
                # What is still to come on this connection answers nothing of ours.
                self.drop()
                if isinstance(error, Lost) and sends_again and not connection.refused_last and not self.closed:
                    sends_again = False
                    continue
                if isinstance(error, RequestTimeout):
                    self._go_on()
                    self._hangs(str(error))
                raise
            self.pause = 0.0
            if self._troubled and request.is_lookup:
                self._recovered()
            return reply

    def _connected(self, request: Request, deadline: float, waits: bool, force: bool) -> Connection:
        """Returns a connection on which the request can be sent, and dials until there is one."""
        if self._at != self._first:
            self._go_back()
        connection = self.connection
        is_old = connection is not None and connection.is_alive()
        is_first, until = True, deadline
        while True:
            try:
                if connection is None or not is_old:
                    connection = self._connect(deadline)
                if not connection.is_ready:
                    self._prepare(self, connection, request, deadline)
                    connection.refused_last = False
                self._dialling = ""
                self._was_ready, self._failures = True, 0
                return connection
            except (RefusedError, WrongRelease):  # the connection is as it was
                self._dialling = ""
                if self._may_leave():
                    connection = None
                    continue
                raise
            except BaseException as error:
                self.drop()
                if is_old and isinstance(error, Lost) and not self.closed:
                    is_old = False
                    continue
                is_old = False
                if isinstance(error, Lost) and not self.closed and not self._go_on():
                    continue
                if is_first:
                    waits, is_first = not force and (waits or self._seen_lately()), False
                    until = deadline if request.is_lookup else min(deadline, self.clock() + self._timeout)
                if self._may_dial_again(error, until, waits):
                    self._dialling = str(error)
                    self._closing.wait(DIAL_PAUSE)
                    continue
                self._dialling = ""
                raise

    def _may_leave(self) -> bool:
        """Whether a server of a list that refuses the pool is left for the next. At the start none is."""
        now = self.clock()
        if len(self.endpoints) == 1 or not self._was_ready or now < self._stays_until:
            return False
        if self._go_on():
            self._stays_until = now + _STAYS
            return False
        return True

    def _may_dial_again(self, error: BaseException, until: float, waits: bool) -> bool:
        """Whether the request dials again after an error. If that is over, later ones fail at once."""
        now = self.clock()
        if isinstance(error, RequestTimeout):
            self._go_on()
            self._hangs(str(error))
        elif isinstance(error, ConnectionFailed) and not self.closed and now >= self.retry_at:  # else of files
            if waits and now + DIAL_PAUSE < until:
                return True
            self._fail_fast(str(error))
        return False

    def ask(self, connection: Connection, request: Request, deadline: float, resend: bool = True) -> list[bytes]:
        """Makes one round trip, and with resend more while the server is busy. Raises what it refuses."""
        pause = _FIRST_PAUSE
        while True:
            reply = connection.exchange(request, deadline)
            self._seen_at = self.clock()
            connection.refused_last = reply[0] in (REFUSED, PARTLY_DONE)
            if not connection.refused_last:
                return reply
            refusal = decode_refusal(reply)
            if isinstance(refusal, UnknownRequest):
                connection.unknown.add(request.name)
            if not isinstance(refusal, Busy) or not resend:
                raise refusal
            again = self.clock() + pause
            if again >= deadline or request.is_lookup and not self.resends_lookups:
                self._stayed_busy(request, str(refusal))
                raise refusal
            if not connection.wait(again):
                raise Lost(f"{connection.endpoint.address} closed the connection")
            pause = min(2 * pause, _MAX_PAUSE)

    def _connect(self, deadline: float) -> Connection:
        """Returns a new connection in place of the one before, to the next endpoint that can be reached."""
        while True:
            left = len(self.endpoints) - self._failures
            now = self.clock()
            try:
                # One that does not answer leaves time for the others.
                return self._connect_one(now + (deadline - now) / left)
            except ConnectionFailed:
                if self.closed or self.retry_at > now or self._go_on():
                    raise
            except RequestTimeout:
                if self._go_on():
                    raise

    def _connect_one(self, until: float) -> Connection:
        self.drop()
        # Known to close before it is waited for; either sees what the other did.
        self.connection = connection = Connection(self.endpoint)
        if self.closed:
            raise ConnectionFailed("the client is closed")
        try:
            connection.connect(until)
        except (OSError, ValueError) as error:
            text = f"cannot connect to {self.endpoint.address}: {error}"
            if isinstance(error, ValueError):  # of a name, or of the files for TLS
                self.back_off(text)
                raise ConnectionFailed(text) from error
            if isinstance(error, socket.timeout) or self.clock() >= until:
                raise RequestTimeout(text) from error
            raise ConnectionFailed(text) from error
        return connection

    def back_off(self, why: str) -> None:
        """Has requests fail at once for a while, longer each time until one is answered."""
        self.last_failure = why
        self.pause = min(max(2 * self.pause, _FIRST_PAUSE), _MAX_PAUSE)
        self.retry_at = self.clock() + self.pause

    def _fail_fast(self, why: str) -> None:
        """Has requests fail at once until a ping is answered."""
        self.last_failure = why
        self._troubled = True
        self.probe.begin()

    def _hangs(self, why: str) -> None:
        """Is called after a request that was not answered in time."""
        self._timed_out = True
        self._fail_fast(why)

    def _stayed_busy(self, request: Request, why: str) -> None:
        """Is called after a request that was refused as busy, and is not sent again."""
        self.back_off(why)
        if request.is_lookup:
            self._troubled, self.resends_lookups = True, False

    def _recovered(self) -> None:
        """Is called after the first lookup that is answered."""
        self.resends_lookups = True
        self.probe.lookup_answered()
        if not self._timed_out:
            self._troubled = False
        elif self._log.is_due("answered"):
            self._troubled = self._timed_out = False
            self._log.logger.info("hitline at %s answers lookups again", self.endpoint.address)

    def ping_once(self) -> bool:
        """Pings on the connection, in the engine's pool. Returns whether the server has replied."""
        try:
            self.exchange(self._ping, self._ping_timeout, force=True)
        except (RefusedError, WrongRelease):
            pass  # a reply, too
        except Exception as error:
            if isinstance(error.__cause__, (ConnectionRefusedError, FileNotFoundError)):
                self.probe.release()  # nothing hangs
            return False
        return True

    def wait_for_ping(self, timeout: float) -> float:
        """Waits while the server hangs, and returns what is left of the timeout for a request that does not fail at
        once."""
        deadline = time.monotonic() + timeout
        self.probe.wait_idle(timeout)
        return max(deadline - time.monotonic(), MIN_TIMEOUT)

    def drop(self) -> None:
        """Closes the connection, if there is one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self, deadline: float) -> None:
        """Wakes the threads that make a request, and waits for them until the deadline. Requests then fail."""
        self.probe.stop()
        self.closed = True
        self._closing.set()
        spare, connection = self._spare, self.connection
        for each in (connection, spare and spare[0]):
            if each is not None:
                each.interrupt()
        self._dialler.stop()
        # A thread that looks up a host's name is not woken. It drops its connection itself.
        if self.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                self.drop()
            finally:
                self.lock.release()
        self.probe.join(max(0.0, deadline - time.monotonic()))
        self._dialler.join(max(0.0, deadline - time.monotonic()))
        if spare is not None:
            spare[0].close()
