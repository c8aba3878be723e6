"""A client of the hitline server: how many leading tokens of a prompt are in the pool?

It needs nothing but the standard library, and this file is all of it. It speaks the
raw dialect of docs/protocol.md over TCP and unix sockets.

Client asks and waits. LookupKeyClient has the methods of the lookup client that
vLLM's scheduler uses, with lookups that need not be waited for.

Both connect when they are first used, and again whenever the connection is lost. A
lookup that fails counts as a hit of 0 tokens and is logged, so that an engine goes on
without the pool; with raise_errors it raises. Store, evict, ping and stat always
raise. After a server could not be reached or did not answer in time, requests fail at
once for a while, at most a second, before the next one tries again.

All methods may be called from any thread. A client has one connection, on which
requests go one by one: threads that are to ask at the same time need one client each.
A client must not be used in a process forked from the one that made it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = [
    "BadReply",
    "Client",
    "ConnectionFailed",
    "HitlineError",
    "LookupKeyClient",
    "Refused",
    "RequestTimeout",
]

logger = logging.getLogger("hitline")

LOOKUP = b"lookup"
STORE = b"store"
EVICT = b"evict"
RESET = b"reset"
PING = b"ping"
STAT = b"stat"

DONE = b"\x01"
FAILED = b"\x00"

_MORE = 0x01
_LONG = 0x02
_MAX_FRAMES = 32
_MAX_MESSAGE = 64 << 20
_UNKNOWN_CHUNK = 0xFFFFFFFF

# Blobs up to this size are copied behind the header, to be sent with one call.
_JOINED = 64 << 10

# How long requests fail at once after a server was not reached, or was silent.
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0

# A reset is waited for at least so long: a server may have to walk a whole store.
_RESET_TIMEOUT = 30.0

# Failed lookups are logged at most this often, in seconds.
_LOG_EVERY = 10.0


class HitlineError(Exception):
    """What all errors of this module are, but for ValueError about arguments."""


class ConnectionFailed(HitlineError):
    """There is no connection, it was lost, or the client is closed."""


class RequestTimeout(HitlineError):
    """No reply within the time that the client was given."""


class BadReply(HitlineError):
    """The reply is not what the protocol says."""


class Refused(HitlineError):
    """The server answered that it does not serve this request, and why."""


class _Lost(ConnectionFailed):
    """The connection ended before the first byte of the reply."""


_Self = TypeVar("_Self", bound="_Requests")


class _Requests:
    """The connection, and the requests that both clients have."""

    def __init__(self, address: str, *, timeout: float = 10.0, raise_errors: bool = False) -> None:
        """Takes tcp://host:port (IPv6 in brackets), host:port, ipc://path, or
        ipc://@name for an abstract socket. timeout bounds each request in seconds,
        connecting included, but a reset gets 30 s; looking up a host's name is the
        system's and is not bounded."""
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout!r}, must be more than 0")
        self.address = address
        self._target = _parse_address(address)
        self._timeout = timeout
        self._raise_errors = raise_errors
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._closed = False
        self._pause = 0.0
        self._retry_at = 0.0
        self._log_at = 0.0

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. A request that is under way fails."""
        self._closed = True
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that uses it
        with self._lock:
            self._drop()

    def store(
        self,
        keys: Sequence[bytes],
        *,
        group: int = 0,
        tp_rank: int = 0,
        pp_rank: int = 0,
        pcp_rank: int = 0,
        first_chunk: int | None = None,
        key_before: bytes | None = None,
    ) -> None:
        """Says that a place holds keys, consecutive chunks of its group. first_chunk
        is the number of the first of them and key_before the key before it, where
        they are known."""
        place = _place(group, tp_rank, pp_rank, pcp_rank, first_chunk)
        frames = [STORE, place, *_keys(keys)]
        if key_before is not None:
            frames.append(key_before)
        self._command(*frames)

    def evict(
        self,
        keys: Sequence[bytes],
        *,
        group: int = 0,
        tp_rank: int = 0,
        pp_rank: int = 0,
        pcp_rank: int = 0,
    ) -> None:
        """Says that a place no longer holds keys."""
        self._command(EVICT, _place(group, tp_rank, pp_rank, pcp_rank, None), *_keys(keys))

    def ping(self, payload: bytes = b"") -> None:
        """Makes a round trip; payload comes back or BadReply is raised."""
        if self._command(PING, payload) != [payload]:
            raise BadReply("ping came back with another payload")

    def stat(self) -> dict[str, Any]:
        """Returns the server's counters."""
        frames = self._command(STAT)
        try:
            (document,) = frames
            counters = json.loads(document)
        except ValueError as error:
            raise BadReply(f"stat without a JSON document: {error}") from error
        if not isinstance(counters, dict):
            raise BadReply("stat is not a JSON object")
        return counters

    def _lookup(self, token_len: int, block_hashes: Sequence[bytes]) -> int:
        """Asks for a hit. Nothing is sent if the arguments do not fit the frames."""
        hash_len = len(block_hashes[0]) if len(block_hashes) else 0
        try:
            numbers = token_len.to_bytes(4, "big"), hash_len.to_bytes(2, "big")
        except OverflowError as error:
            raise ValueError(f"token_len {token_len} or hash length {hash_len} does not fit: {error}") from None
        frames = self._exchange(LOOKUP, *numbers, b"".join(block_hashes))
        _check_refusal(frames)
        return int.from_bytes(frames[0], "big")

    def _lookup_or_zero(self, token_len: int, block_hashes: Sequence[bytes]) -> int:
        try:
            return self._lookup(token_len, block_hashes)
        except Exception as error:
            return self._zero(error)

    def _zero(self, error: Exception) -> int:
        """The hit of a lookup that failed: called while error is handled."""
        if self._raise_errors:
            raise error
        self._log("lookup at %s failed and counts as a hit of 0 tokens: %s", error)
        return 0

    def _reset(self) -> bool:
        try:
            self._command(RESET, timeout=max(self._timeout, _RESET_TIMEOUT))
        except Exception as error:
            if self._raise_errors:
                raise
            self._log("reset at %s failed: %s", error)
            return False
        return True

    def _log(self, text: str, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY
            logger.warning(text, self.address, error if isinstance(error, HitlineError) else repr(error))

    def _command(self, *frames: bytes, timeout: float | None = None) -> list[bytes]:
        """Exchanges a request whose reply begins with 01, and returns the rest."""
        reply = self._exchange(*frames, timeout=timeout)
        _check_refusal(reply)
        if reply[0] != DONE:
            raise BadReply(f"status {reply[0][:16].hex() or 'without a byte'}, want 01")
        return reply[1:]

    def _exchange(self, *frames: bytes, timeout: float | None = None) -> list[bytes]:
        """Sends a request and returns the frames of its reply, at least one."""
        if timeout is None:
            timeout = self._timeout
        deadline = time.monotonic() + timeout
        if not self._lock.acquire(timeout=timeout):
            raise RequestTimeout(f"other requests took all of {timeout} s")
        try:
            reply = self._exchange_locked(frames, deadline)
            self._pause = 0.0
            return reply
        finally:
            self._lock.release()

    def _exchange_locked(self, frames: tuple[bytes, ...], deadline: float) -> list[bytes]:
        reused = self._connected()
        while True:
            try:
                if not reused:
                    self._connect(deadline)
                self._send(frames, deadline)
                return self._receive(deadline)
            except BaseException as error:
                # What is still to come on this connection answers nothing of ours.
                self._drop()
                # A request may be sent twice: none does more the second time.
                if reused and isinstance(error, _Lost) and not self._closed:
                    reused = False
                    continue
                if isinstance(error, RequestTimeout):
                    self._back_off()
                raise

    def _connected(self) -> bool:
        """Tells whether there is a connection that the peer has not ended."""
        if self._sock is None:
            return False
        try:
            self._sock.settimeout(0)
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        self._drop()  # ended, or there are bytes that nobody asked for
        return False

    def _connect(self, deadline: float) -> None:
        now = time.monotonic()
        if self._closed:
            raise ConnectionFailed("the client is closed")
        if now < self._retry_at:
            raise ConnectionFailed(f"not tried: {self.address} failed a moment ago")
        try:
            self._dial(deadline)
        except OSError as error:
            self._back_off()
            raise ConnectionFailed(f"cannot connect to {self.address}: {error}") from error

    def _dial(self, deadline: float) -> None:
        if isinstance(self._target, str):
            self._dial_one(socket.AF_UNIX, self._target, deadline)
            return
        host, port = self._target
        failure: OSError | None = None
        for family, _, _, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                self._dial_one(family, target, deadline)
            except OSError as error:
                self._drop()
                failure = error
                continue
            assert self._sock is not None
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return
        raise failure or OSError("the name has no address")

    def _dial_one(self, family: int, target: Any, deadline: float) -> None:
        # Known to close before it is waited for; either sees what the other did.
        self._sock = sock = socket.socket(family, socket.SOCK_STREAM)
        if self._closed:
            raise OSError("the client is closed")
        sock.settimeout(_remaining(deadline))
        sock.connect(target)

    def _back_off(self) -> None:
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._retry_at = time.monotonic() + self._pause

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def _send(self, frames: tuple[bytes, ...], deadline: float) -> None:
        assert self._sock is not None
        head = bytearray()
        for frame in frames[:-1]:
            head += _header(len(frame), _MORE)
            head += frame
        last = frames[-1]
        head += _header(len(last), 0)
        if len(last) <= _JOINED:
            head += last
            last = b""
        try:
            self._sock.settimeout(_remaining(deadline))
            self._sock.sendall(head)
            if last:
                self._sock.settimeout(_remaining(deadline))
                self._sock.sendall(last)
        except socket.timeout:
            raise RequestTimeout(f"{self.address} did not take the request in time") from None
        except OSError as error:
            raise _Lost(f"lost {self.address}: {error}") from error

    def _receive(self, deadline: float) -> list[bytes]:
        """Reads one message and expects nothing behind it."""
        frames: list[bytes] = []
        data = bytearray()
        at = 0
        more = True
        while more:
            self._fill(data, at + 2, deadline)
            flags = data[at]
            if flags & ~(_MORE | _LONG):
                raise BadReply(f"a frame with flags {flags:02x}")
            if flags & _LONG:
                self._fill(data, at + 9, deadline)
                size = int.from_bytes(data[at + 1 : at + 9], "big")
                at += 9
            else:
                size = data[at + 1]
                at += 2
            if at + size > _MAX_MESSAGE or len(frames) == _MAX_FRAMES:
                raise BadReply("a reply over the limits")
            self._fill(data, at + size, deadline)
            frames.append(bytes(data[at : at + size]))
            at += size
            more = bool(flags & _MORE)
        if len(data) != at:
            raise BadReply(f"{len(data) - at} bytes behind the reply")
        return frames

    def _fill(self, data: bytearray, size: int, deadline: float) -> None:
        """Receives until data has size bytes, or more."""
        assert self._sock is not None
        while len(data) < size:
            try:
                self._sock.settimeout(_remaining(deadline))
                chunk = self._sock.recv(64 << 10)
            except socket.timeout:
                raise RequestTimeout(f"{self.address} did not answer in time") from None
            except OSError as error:
                lost = ConnectionFailed if data else _Lost
                raise lost(f"lost {self.address}: {error}") from error
            if not chunk:
                if data:
                    raise ConnectionFailed(f"{self.address} closed the connection inside a reply")
                raise _Lost(f"{self.address} closed the connection")
            data += chunk


class Client(_Requests):
    """Asks a server and waits for the answers."""

    def lookup(self, token_len: int, block_hashes: Sequence[bytes]) -> int:
        """Returns how many leading tokens of a prompt of token_len tokens are in the
        pool. block_hashes are the hashes of its blocks, all of one length."""
        return self._lookup_or_zero(token_len, block_hashes)

    def reset(self) -> bool:
        """Makes the server forget every block; tells whether it did."""
        return self._reset()


class LookupKeyClient(_Requests):
    """Has the methods and arguments of vLLM's lookup client.

    Lookups with non_block run one after the other on one worker thread, which starts
    with the first of them and ends with close.
    """

    def __init__(self, address: str, *, timeout: float = 10.0, raise_errors: bool = False) -> None:
        super().__init__(address, timeout=timeout, raise_errors=raise_errors)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hitline-lookup")
        self._futures: dict[str, Future[int]] = {}
        self._futures_lock = threading.Lock()

    def lookup(
        self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool = False
    ) -> int | None:
        """Returns the hit in tokens. With non_block it returns None until the lookup
        that the first call began is done; the call that returns its hit ends it. While
        a lookup of req_id is pending, further calls ask for that one, whatever their
        other arguments are."""
        with self._futures_lock:
            future = self._futures.get(req_id)
            if future is None and non_block:
                try:
                    future = self._worker.submit(self._lookup_or_zero, token_len, list(block_hashes))
                except Exception as error:  # the client is closed, or these are no hashes
                    return self._zero(error)
                self._futures[req_id] = future
        if future is None:
            # Nothing is gained by handing over what is waited for.
            return self._lookup_or_zero(token_len, block_hashes)
        if non_block and not future.done():
            return None
        try:
            return future.result()
        except Exception as error:
            return self._zero(error)
        finally:
            with self._futures_lock:
                if self._futures.get(req_id) is future:
                    del self._futures[req_id]

    def discard(self, req_id: str) -> None:
        """Drops the pending lookup of req_id, if there is one. If it is running, its
        answer is thrown away."""
        with self._futures_lock:
            future = self._futures.pop(req_id, None)
        if future is not None:
            future.cancel()

    def reset(self) -> bool:
        """Makes the server forget every block, after the lookups that are pending;
        tells whether it did."""
        try:
            return self._worker.submit(self._reset).result()
        except Exception as error:
            if self._raise_errors:
                raise
            self._log("reset at %s failed: %s", error)
            return False

    def close(self) -> None:
        """Cancels the pending lookups, ends the worker and closes the connection."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        super().close()
        self._worker.shutdown(wait=True)
        with self._futures_lock:
            self._futures.clear()


def _parse_address(address: str) -> str | tuple[str, int]:
    """Returns the path of a unix socket, or host and port."""
    scheme, found, rest = address.partition("://")
    if not found:
        scheme, rest = "tcp", address
    if scheme == "ipc" and rest not in ("", "@"):
        if not hasattr(socket, "AF_UNIX"):
            raise ValueError(f"address {address!r}: this system has no unix sockets")
        return "\0" + rest[1:] if rest.startswith("@") else rest
    if scheme == "tcp":
        host, _, port = rest.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        digits = port.isascii() and port.isdigit()
        if host and (bracketed or ":" not in host) and digits and 0 < int(port) < 1 << 16:
            return host, int(port)
    raise ValueError(f"address {address!r}: want tcp://host:port, tcp://[IPv6]:port, ipc://path or ipc://@name")


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


def _header(size: int, flags: int) -> bytes:
    if size < 256:
        return struct.pack(">BB", flags, size)
    return struct.pack(">BQ", flags | _LONG, size)


def _place(group: int, tp_rank: int, pp_rank: int, pcp_rank: int, first_chunk: int | None) -> bytes:
    try:
        if first_chunk is not None:
            if first_chunk == _UNKNOWN_CHUNK:
                raise ValueError(f"first_chunk {first_chunk} does not fit")
            return struct.pack(">HHHHI", group, tp_rank, pp_rank, pcp_rank, first_chunk)
        if pcp_rank:
            return struct.pack(">HHHH", group, tp_rank, pp_rank, pcp_rank)
        return struct.pack(">HHH", group, tp_rank, pp_rank)
    except struct.error as error:
        raise ValueError(f"a group, rank or chunk does not fit: {error}") from None


def _keys(keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The two frames that carry keys: their length, and all of them joined."""
    size = len(keys[0]) if len(keys) else 0
    if not 0 < size <= 64 or any(len(key) != size for key in keys):
        raise ValueError("want one key or more, of one length, 1 to 64 bytes")
    return size.to_bytes(2, "big"), b"".join(keys)


def _check_refusal(frames: list[bytes]) -> None:
    if frames[0] == FAILED:
        reason = frames[1].decode("utf-8", "replace") if len(frames) > 1 else "without a reason"
        raise Refused(reason)
