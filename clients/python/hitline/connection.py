"""One connection to a server: its address, TLS, and a request and its reply at a time.

Nothing is retried here: whatever fails, the connection is of no more use, and retry.py makes another one. What the
server was told on a connection, and what it said, ends with it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import select
import socket
import ssl
import stat
import struct
import threading
import time
import weakref
from typing import Any, NamedTuple

from hitline.errors import BadReply, ConnectionFailed, HitlineError, RequestTimeout

# Python waits for sockets by milliseconds in 31 bits, and takes more for less.
MAX_TIMEOUT = min(threading.TIMEOUT_MAX, (2**31 - 1) // 1000)

# The first frame of replies that have a status.
DONE = b"\x01"
REFUSED = b"\x00"
PARTLY_DONE = b"\x04"

# Flags of a frame.
_MORE = 0x01
_LONG = 0x02

# What a reply may have; of more nothing is read. Documents are JSON.
_MAX_FRAMES = 3
MAX_DOCUMENT = 64 << 10  # bytes

# What is in front of a frame of so many bytes that is not the last, and of one that is.
_SHORT_HEADS = [bytes((_MORE, size)) for size in range(256)]
_SHORT_LAST_HEADS = [bytes((0, size)) for size in range(256)]

# Bytes received at once. A record of TLS has at most 16 KiB and is returned whole, so nothing is
# left that is decrypted already, for which poll would not return.
_RECEIVE_SIZE = 16 << 10

# Blobs up to this size are copied behind the frames before them, to be sent with one call.
_JOINED = 64 << 10

_MAX_TOKEN = 255

# Characters that no host of an address has.
_NO_HOST = frozenset("/?#@ \t\r\n")

# What recv and send raise if they would have to wait. TLS may have to send before it can
# receive, and the reverse.
_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


# What has sockets, locks or threads. In a forked process _after_fork replaces them, before anything else is done there.
forkable: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(forkable):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Names of the requests that change nothing.
_ONLY_ASK = frozenset(b"lookup lookup_from plan load_mask store_mask lookup_mask ping stat".split())


class Lost(ConnectionFailed):
    """The connection ended before the first byte of the reply."""


class Endpoint:
    """Where a server listens."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        """Raises ValueError if the TLS context cannot be made of the environment's files."""
        self.address = address
        self._target = parse_address(address)
        check_tls(tls)
        self.is_tls = address.startswith("tls://")
        self._tls = tls  # None: of the environment
        if self.is_tls:
            self.tls_context()  # the files are there
        elif tls is not None:
            raise ValueError(f"tls is for an address of tls://, not for {address!r}")

    @property
    def host(self) -> str:
        """Empty for a unix socket."""
        return "" if isinstance(self._target, str) else self._target[0]

    def targets(self) -> list[tuple[int, Any]]:
        """Returns the family and the address of each socket that may be the server's."""
        if isinstance(self._target, str):
            return [(socket.AF_UNIX, self._target)]
        host, port = self._target
        return [(found[0], found[4]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

    def check_peer(self, sock: socket.socket) -> None:
        """Raises OSError if the server at the other end must not be asked."""

    def tls_context(self) -> ssl.SSLContext:
        """Returns the context of a new connection. Raises ValueError if it cannot be made of
        the environment's files."""
        return self._tls or default_tls()


class Request(NamedTuple):
    """What is sent at once, and answered by one reply."""

    name: bytes
    pieces: tuple[bytes, ...]  # of encode
    max_frame: int  # bytes of the longest frame that the reply may have, unless it is a refusal
    is_lookup: bool = False
    is_about_pool: bool = True

    @property
    def changes_nothing(self) -> bool:
        return self.name in _ONLY_ASK


class Connection:
    """A connection from connect until close. One thread uses it at a time; any may interrupt it."""

    # What the handshake has found out.
    is_ready = False  # whether nothing is left to be said before any request
    authenticated = False  # or needs not be
    instance_known = False  # whether the server has been asked for it
    in_pool = False
    fitting: str | None = None  # releases of the server's own pool, once it was asked for them

    refused_last = False  # whether the last reply was a refusal

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        self.refused: dict[bytes, tuple[HitlineError, float]] = {}  # of the handshake, by request: until when that holds
        self.unknown: set[bytes] = set()  # names of requests that the server has refused as unknown
        self._interrupted = False
        self._poller = select.poll()

    def connect(self, deadline: float) -> None:
        """Raises OSError, or ValueError for a name or for files of TLS that are none."""
        failure: OSError | None = None
        found = self.endpoint.targets()
        for left, (family, target) in zip(range(len(found), 0, -1), found):
            now = time.monotonic()
            try:
                # One that does not answer leaves time for the others.
                self._open(family, target, now + (deadline - now) / left)
                return
            except OSError as error:
                self.close()
                failure = error
        raise failure or OSError("the name has no address")

    def _open(self, family: int, target: Any, deadline: float) -> None:
        endpoint = self.endpoint
        context = endpoint.tls_context() if endpoint.is_tls else None
        sock = socket.socket(family, socket.SOCK_STREAM)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=endpoint.host, do_handshake_on_connect=False)
        # Known to interrupt before it is waited for; either sees what the other did.
        self.sock = sock
        if self._interrupted:
            raise OSError("the client is closed")
        sock.settimeout(_remaining(deadline))
        sock.connect(target)
        if isinstance(sock, ssl.SSLSocket):
            sock.settimeout(_remaining(deadline))
            sock.do_handshake()
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        endpoint.check_peer(sock)
        sock.settimeout(0)  # from now on the poller waits for it
        self._poller.register(sock, select.POLLIN)

    def interrupt(self) -> None:
        """Wakes the thread that uses it, whose request then fails."""
        self._interrupted = True
        sock = self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                # That of SSLSocket would also end its encryption.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        sock, self.sock = self.sock, None
        if sock is not None:
            sock.close()

    def is_alive(self) -> bool:
        """Whether a request can be sent: the peer has not ended it, and has sent nothing that nobody asked for."""
        return self.sock is not None and (not self._poller.poll(0) or self.endpoint.is_tls and self._has_no_data())

    def _has_no_data(self) -> bool:
        """Reads what TLS has sent of its own, such as tickets. Tells whether that was all."""
        assert self.sock is not None
        try:
            self.sock.recv(1)
        except _NOT_READY:
            return True
        except OSError:
            pass
        return False

    def exchange(self, request: Request, deadline: float) -> list[bytes]:
        """Sends a request, and returns the frames of its reply, at least one. Raises BadReply for a frame that is
        longer than such a reply can have, before it reads the frame."""
        for piece in request.pieces:
            self._send(piece, deadline)
        data = self._receive(deadline, Lost)
        if len(data) > 1 and not data[0] and data[1] == len(data) - 2 <= request.max_frame:
            return [data[2:]]  # one short frame, as most replies are
        return self._frames(bytearray(data), request, deadline)

    def wait(self, deadline: float) -> bool:
        """Waits until the deadline. Returns False at once if the connection ends before."""
        return not self._wait(select.POLLIN, deadline) or self.is_alive()

    def _wait(self, event: int, deadline: float) -> bool:
        """Waits until the connection is ready for an event, or has ended or failed. Returns
        False if the deadline comes first."""
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            return False
        if event == select.POLLIN:
            return bool(self._poller.poll(1000 * seconds))
        assert self.sock is not None
        poller = select.poll()
        poller.register(self.sock, event)
        return bool(poller.poll(1000 * seconds))

    def _send(self, data: bytes, deadline: float) -> None:
        assert self.sock is not None
        left: bytes | memoryview = data
        while True:
            try:
                sent = self.sock.send(left)
                if sent == len(left):
                    return
                left = memoryview(left)[sent:]
            except _NOT_READY as error:
                if not self._wait(_awaited(error, select.POLLOUT), deadline):
                    raise RequestTimeout(f"{self.endpoint.address} did not take the request in time") from None
            except OSError as error:
                raise Lost(f"lost {self.endpoint.address}: {error}") from error

    def _receive(self, deadline: float, lost: type[ConnectionFailed]) -> bytes:
        """Returns some bytes, at least one. Raises lost if the connection ends."""
        assert self.sock is not None
        event = select.POLLIN
        while self._wait(event, deadline):
            try:
                data = self.sock.recv(_RECEIVE_SIZE)
            except _NOT_READY as error:  # it is no longer readable, or has a part of a record
                event = _awaited(error, select.POLLIN)
                continue
            except OSError as error:
                raise lost(f"lost {self.endpoint.address}: {error}") from error
            if data:
                return data
            where = "" if lost is Lost else " inside a reply"
            raise lost(f"{self.endpoint.address} closed the connection{where}")
        raise RequestTimeout(f"{self.endpoint.address} did not answer in time")

    def _frames(self, data: bytearray, request: Request, deadline: float) -> list[bytes]:
        """Returns the frames of a reply that begins with data, and expects nothing behind it."""
        frames: list[bytes] = []
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
            limit = MAX_DOCUMENT if frames and frames[0] in (REFUSED, PARTLY_DONE) else request.max_frame
            if size > limit or len(frames) == _MAX_FRAMES:
                raise BadReply(
                    f"frame {len(frames) + 1} of a reply to {request.name.decode()} has {size} bytes, "
                    f"at most {limit} in {_MAX_FRAMES} frames are read"
                )
            self._fill(data, at + size, deadline)
            frames.append(bytes(data[at : at + size]))
            at += size
            more = bool(flags & _MORE)
        if len(data) != at:
            raise BadReply(f"{len(data) - at} bytes behind the reply")
        return frames

    def _fill(self, data: bytearray, size: int, deadline: float) -> None:
        """Receives until data has size bytes, or more."""
        while len(data) < size:
            data += self._receive(deadline, ConnectionFailed)


def parse_list(addresses: str, tls: ssl.SSLContext | None = None) -> list[Endpoint]:
    """Returns where the servers of an address, or of a list with commas, listen. tls is for those of tls://."""
    if not isinstance(addresses, str):
        parse_address(addresses)  # raises
    found = [address.strip() for address in addresses.split(",")]
    if len(found) > 1 and any(address.startswith("tls://") for address in found):
        return [Endpoint(address, tls if address.startswith("tls://") else None) for address in found]
    return [Endpoint(address, tls) for address in found]


def encode(*frames: bytes) -> tuple[bytes, ...]:
    """Returns a message of frames, as pieces to be sent one after the other."""
    parts: list[bytes] = []
    for frame in frames[:-1]:
        size = len(frame)
        parts += _SHORT_HEADS[size] if size < 256 else struct.pack(">BQ", _MORE | _LONG, size), frame
    last = frames[-1]
    size = len(last)
    parts.append(_SHORT_LAST_HEADS[size] if size < 256 else struct.pack(">BQ", _LONG, size))
    if size > _JOINED:
        return b"".join(parts), last
    parts.append(last)
    return (b"".join(parts),)


def parse_address(address: str) -> str | tuple[str, int]:
    """Returns the path of a unix socket, or host and port."""
    if not isinstance(address, str):
        raise TypeError(f"address is {address!r}, must be a str such as 'tcp://127.0.0.1:7557'")
    scheme, found, rest = address.partition("://")
    if not found:
        scheme, rest = "tcp", address
    if scheme == "ipc" and rest.startswith("/") and not rest.endswith("/"):
        if not hasattr(socket, "AF_UNIX"):
            raise ValueError(f"address {address!r}: this system has no unix sockets")
        return rest
    if scheme in ("tcp", "tls"):
        host, _, port = rest.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        if host and (bracketed or ":" not in host) and _NO_HOST.isdisjoint(host):
            if port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16:
                return host, int(port)
            raise ValueError(f"address {address!r}: the port is {port!r}, must be 1 to 65535")
    raise ValueError(
        f"address {address!r}: want tcp://host:port, tcp://[IPv6]:port, the same with tls://, ipc:///path"
    )


def check_timeout(timeout: float) -> float:
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is {timeout!r}, must be a number of seconds")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(f"timeout is {timeout!r}, must be more than 0 and at most {MAX_TIMEOUT:.0f}")
    return timeout


def check_tls(tls: ssl.SSLContext | None) -> None:
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is {type(tls).__name__}, must be an ssl.SSLContext")


def default_tls() -> ssl.SSLContext:
    """Returns the context of the environment's variables."""
    ca, cert, key = (os.environ.get(f"HITLINE_TLS_{name}") or None for name in ("CA", "CERT", "KEY"))
    if (cert is None) != (key is None):
        raise ValueError("HITLINE_TLS_CERT and HITLINE_TLS_KEY must be set together")
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise ValueError(f"HITLINE_TLS_CA is {ca!r}, must be a file of certificates in PEM: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        if cert is not None:
            context.load_cert_chain(cert, key, password=_no_password)
    except OSError as error:
        raise ValueError(
            f"HITLINE_TLS_CERT is {cert!r}, must be a certificate in PEM, of the key HITLINE_TLS_KEY: {error}"
        ) from error
    return context


def _no_password() -> str:
    """Is asked for the password of an encrypted key, which the terminal is not to be."""
    return ""


class Token:
    """The token of a client, or the path of the file that has it. Both are empty if there is none."""

    def __init__(self, token: str | None, file: str | os.PathLike[str] | None) -> None:
        self.text = b""
        self.path = ""
        self._warned = False
        if token is None:
            self.path = os.fspath(file or os.environ.get("HITLINE_TOKEN_FILE", ""))
            return
        if file is not None:
            raise ValueError("token and token_file are both given")
        if not isinstance(token, str):
            raise TypeError(f"token is {type(token).__name__}, must be str")
        self.text = token.encode("utf-8", "surrogatepass")  # an error would have the token
        if len(self.text) > _MAX_TOKEN:
            raise ValueError(f"the token has {len(self.text)} bytes, must have at most {_MAX_TOKEN}")

    def read(self) -> bytes:
        """Returns the token, that in the first line of a file. Raises ConnectionFailed if the file has none."""
        if not self.path:
            return self.text
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise OSError("it is no regular file")  # reading a pipe may take any time
            with open(self.path, "rb") as file:
                token = file.readline(_MAX_TOKEN + 64).strip()  # and some spaces
            if not 0 < len(token) <= _MAX_TOKEN:
                raise OSError(f"its first line must be a token of 1 to {_MAX_TOKEN} bytes")
        except OSError as error:
            raise ConnectionFailed(f"cannot read the token of {self.path}: {error.strerror or error}") from None
        return token

    def warn_of_plain_text(self, sock: socket.socket, address: str, scheme: str, logger: logging.Logger) -> None:
        """Warns once if others on the network can read what is sent to a TCP socket, which has no TLS."""
        if self._warned:
            return
        with contextlib.suppress(OSError, ValueError):  # the connection is lost
            peer = ipaddress.ip_address(sock.getpeername()[0])
            if not (getattr(peer, "ipv4_mapped", None) or peer).is_loopback:
                self._warned = True
                text = "the token goes to %s in plain text, for all on the way to read; use %s://"
                logger.warning(text, address, scheme)


def _awaited(error: OSError, otherwise: int) -> int:
    """Returns what to wait for after recv or send raised one of _NOT_READY."""
    if isinstance(error, ssl.SSLWantReadError):
        return select.POLLIN
    return select.POLLOUT if isinstance(error, ssl.SSLWantWriteError) else otherwise


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left
