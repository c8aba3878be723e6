"""A client of the hitline server: how many leading tokens of a prompt are in the pool?

It needs nothing but the standard library, and this file is all of it. It speaks the
raw dialect of docs/protocol.md over TCP, TLS and unix sockets.

Client asks and waits. LookupKeyClient has the methods of the lookup client that
vLLM's scheduler uses, with lookups that need not be waited for.

Both connect when they are first used, and again whenever the connection is lost. A
lookup that fails counts as a hit of 0 tokens and is logged, so that an engine goes on
without the pool; with raise_errors it raises. Store, evict, ping and stat always
raise. Arguments that cannot be sent always raise TypeError or ValueError. After a server
could not be reached or did not answer in time, requests fail at once for a while, at most a
second, before the next one tries again.

All methods may be called from any thread. A client has one connection, on which
requests go one by one: threads that are to ask at the same time need one client each.
In a forked process a client connects anew, and its pending lookups are the parent's alone.

From vLLM 0.29.0 on a hit has tail boundaries: for each group the position whose hash
is the key of the group's last block. Client.lookup_result returns them, and so does
LookupKeyClient for an engine of these releases.

A client may say which pool its requests are about, by the pool's name or by a
description of the engine's pool. The server is told so on each new connection, before
the first request but for pings. If it has no such pool, those requests fail: with
PoolDiffers if its pool differs from the description, with NoPool if it has none.

What the server refuses raises a RefusedError: a class of its own for each code of the
protocol. Only a request that is refused as Busy is sent again, later and later, within
the call's timeout. A pool is sent again by a later call.

A client may have a token, which it sends first on each new connection. If the server
refuses the token, requests fail with NotAuthenticated; after a while it is sent again, and a
token of a file is read again. A request that the token, or the listener, does not allow
fails with NotAllowed. The token is in no log, exception or repr of this module.

Over TLS the server's certificate must be valid for the host of the address. Certificates of
files are read at each connection.

A lookup may begin at the token where an engine's own cache ends, with the hashes from there on.
A server that knows no such lookups is asked for the whole prompt, if the client was given all hashes.

A client may be told when the server was restarted, and its memory has no blocks:
on_instance is called with the first Instance and then with each that differs from the one
before, ahead of the first answer of a connection. It is called in the thread that makes
the request, the worker's for lookups with non_block. The request waits for it, so it must
return soon, and must not use the client. What it raises is logged.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import math
import operator
import os
import select
import socket
import ssl
import stat
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "BadReply",
    "BadRequest",
    "Busy",
    "Client",
    "ConnectionFailed",
    "HitlineError",
    "Instance",
    "LookupKeyClient",
    "LookupResult",
    "Mask",
    "NoPool",
    "NotAllowed",
    "NotAuthenticated",
    "PartlyDone",
    "Plan",
    "PoolDiffers",
    "RefusedError",
    "RequestTimeout",
    "StoreFailed",
    "TailKeyBoundary",
    "TooLarge",
    "UnknownRequest",
    "Unsupported",
    "VLLM_RELEASES",
    "WrongRelease",
]

logger = logging.getLogger("hitline")

# The releases of vLLM whose lookup client LookupKeyClient can be, oldest first.
VLLM_RELEASES: tuple[str, ...] = (
    "0.24.0",
    "0.25.0",
    "0.25.1",
    "0.26.0",
    "0.27.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)


def is_since(release: str, first: str) -> bool:
    """Whether a release is first or a later one, both of VLLM_RELEASES."""
    return VLLM_RELEASES.index(release) >= VLLM_RELEASES.index(first)


# Those whose replies to lookups have no tail boundaries, and those whose hits above 0 have.
_WITHOUT_BOUNDARIES = tuple(release for release in VLLM_RELEASES if not is_since(release, "0.29.0"))
_WITH_BOUNDARIES = VLLM_RELEASES[len(_WITHOUT_BOUNDARIES) :]

# Python waits for sockets by milliseconds in 31 bits, and takes more for less.
MAX_TIMEOUT = min(threading.TIMEOUT_MAX, (2**31 - 1) // 1000)

# Seconds that a call may take if neither it nor its client was given a timeout.
DEFAULT_TIMEOUT = 10.0

LOOKUP = b"lookup"
LOOKUP_FROM = b"lookup_from"
RENEW = b"renew"
STORE = b"store"
EVICT = b"evict"
RESET = b"reset"
RESET_RANK = b"reset_rank"
PING = b"ping"
STAT = b"stat"
POOL = b"pool"
AUTH = b"auth"
PLAN = b"plan"
LOAD_MASK = b"load_mask"
STORE_MASK = b"store_mask"
LOOKUP_MASK = b"lookup_mask"
STORE_PROMPT = b"store_prompt"

DONE = b"\x01"
REFUSED = b"\x00"
PARTLY_DONE = b"\x04"

_READABLE = getattr(select, "POLLIN", 1)
_WRITABLE = getattr(select, "POLLOUT", 4)

_MORE = 0x01
_LONG = 0x02
_MAX_HASH = 64
_UNKNOWN_LENGTH = 0xFFFFFFFF
_ANY_RANK = 0xFFFF

# In a frame of masks: the group of one that is not in the store, the number of runs of
# the mask of all chunks, and the bytes in front of the runs and of each of them.
_NO_GROUP = 0xFFFFFFFF
_ALL_RUNS = 0xFFFFFFFF
_MASK_SIZE = 16
_RUN_SIZE = 8

# In replies to lookups, the bytes of the hit and of each tail boundary behind it.
_HIT_SIZE = 4
_BOUNDARY_SIZE = 8

# What a reply may have; of more nothing is read. A hit has a boundary for each group, and documents, which are
# JSON, grow with the groups. Servers accept as many groups in descriptions as _MAX_GROUPS.
_MAX_FRAMES = 3
_MAX_GROUPS = 4096
_MAX_DOCUMENT = 64 << 10  # bytes, and _DOCUMENT_PER_GROUP for each group in the replies to pool and stat
_DOCUMENT_PER_GROUP = 2 << 10
_MAX_REPLY = 2 << 20  # bytes of a frame of any other reply, such as masks

# Longest text of a server in an error or a log, in characters.
_MAX_TEXT = 512

# Bytes received at once. A record of TLS has at most 16 KiB and is returned whole, so nothing is
# left that is decrypted already, for which poll would not return.
_RECEIVE_SIZE = 64 << 10

# Blobs up to this size are copied behind the header, to be sent with one call.
_JOINED = 64 << 10

_MAX_TOKEN = 255

# The types that a key or payload may have.
_BYTES = (bytes, bytearray, memoryview)

# How long requests fail at once after a server was not reached, or was silent or busy; and
# how long a request waits that is sent again because the server is busy.
_FIRST_PAUSE = 0.02
_MAX_PAUSE = 1.0

# For how long a refusal of a pool or a token is taken to hold on a connection, in seconds.
# That of a pool that differs holds as long as the connection.
_POOL_RETRY = 10.0
_AUTH_RETRY = _POOL_RETRY

# Characters that no host of an address has.
_NO_HOST = frozenset("/?#@ \t\r\n")

# What recv and send raise if they would have to wait. TLS may have to send before it can
# receive, and the reverse.
_NOT_READY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

# How long close waits for requests that are under way, in seconds.
_CLOSE_TIMEOUT = 1.0

# Each kind of failure is logged at most this often, in seconds.
_LOG_EVERY = 10.0


# What has sockets, locks or threads. In a forked process _after_fork replaces them, before anything else is done there.
forkable: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(forkable):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class HitlineError(Exception):
    """What all errors of this module are, but for TypeError and ValueError about arguments."""


class ConnectionFailed(HitlineError):
    """There is no connection, it was lost, or the client is closed."""


class RequestTimeout(HitlineError):
    """No reply within the time that the client was given."""


class BadReply(HitlineError):
    """The reply is not what the protocol says."""


class RefusedError(HitlineError):
    """The server did not serve a request. A code that this module does not know is raised as
    this class itself."""

    def __init__(self, text: str, refusal: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.text = text  # why, in words
        self.refusal: dict[str, Any] = dict(refusal or {})  # all that the server sent with it, as it is
        self.code = _string(self.refusal, "refusal")
        self.request = _string(self.refusal, "request")


class UnknownRequest(RefusedError):
    """The server knows no such request."""


class BadRequest(RefusedError):
    """The request, or what it says of a prompt or a pool, is wrong."""


class NoPool(RefusedError):
    """The connection has no pool, or the server has none of this name."""


class PoolDiffers(RefusedError):
    """The described pool is not the one that the server has. The text names each field."""

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Each has field, configured and described."""
        return _objects(self.refusal, "differences")


class NotAllowed(RefusedError):
    """The client has no permission for this request."""


class NotAuthenticated(RefusedError):
    """The server refused the client's token: it knows no such token, the token has expired,
    or this listener has no tokens."""


class Unsupported(RefusedError):
    """This pool or store cannot do it."""


class TooLarge(RefusedError):
    """The request exceeds a limit, which refusal has as limit."""


class Busy(RefusedError):
    """The server held as many requests as it may, until the call's timeout."""


class StoreFailed(RefusedError):
    """The store behind the server has failed, or did not answer in time."""


class PartlyDone(RefusedError):
    """A part of the request was not done. The other parts are."""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of a prompt that are not stored. Each has group, tp_rank, pp_rank, pcp_rank,
        first_chunk, chunks and error."""
        return _objects(self.refusal, "parts")

    @property
    def more_parts(self) -> int:
        """How many there are beyond parts."""
        more = self.refusal.get("more_parts", 0)
        return more if type(more) is int else 0


_REFUSALS: dict[str, type[RefusedError]] = {
    "unknown_request": UnknownRequest,
    "bad_request": BadRequest,
    "no_pool": NoPool,
    "pool_differs": PoolDiffers,
    "not_allowed": NotAllowed,
    "not_authenticated": NotAuthenticated,
    "unsupported": Unsupported,
    "too_large": TooLarge,
    "busy": Busy,
    "store_failed": StoreFailed,
    "partly_done": PartlyDone,
}


class WrongRelease(HitlineError):
    """The server answers as other releases of vLLM do than the engine's."""


class _Lost(ConnectionFailed):
    """The connection ended before the first byte of the reply."""


class TailKeyBoundary(NamedTuple):
    """Where a group has the key of its last block of a hit."""

    group_id: int  # number of the store group
    num_tokens: int  # the key is the hash of the block that ends here


class LookupResult(NamedTuple):
    """A hit, and from vLLM 0.29.0 on a boundary for each group, unless the hit is 0."""

    hit_length: int  # leading tokens that are in the pool
    tail_key_boundaries: tuple[TailKeyBoundary, ...] = ()


class Mask(NamedTuple):
    """Which chunks of one group to load, store or look up, of those from first to
    end - 1. Chunk c of a group covers the tokens from c * block size on, and is keyed by its
    last hash."""

    group: int | None  # number of the store group; None: the group is not kept in the store
    first: int
    end: int
    runs: tuple[tuple[int, int], ...]  # of these chunks: the first, and the one behind the last
    is_all: bool  # whether vLLM's own mask is None, which means all of them

    def chunks(self) -> Iterator[int]:
        """The numbers of these chunks, ascending."""
        for start, end in self.runs:
            yield from range(start, end)


class Plan(NamedTuple):
    """A hit, and for each group of the pool which chunks must be loaded for it."""

    hit_length: int  # leading tokens that are in the pool
    tail_key_boundaries: tuple[TailKeyBoundary, ...]
    masks: tuple[Mask, ...]


class Instance(NamedTuple):
    """One run of a server. The memory index of a new one is empty."""

    id: str  # random, 16 hexadecimal digits
    start_time: str  # RFC 3339, UTC
    version: str  # of the server
    protocol: int  # number of the wire, see docs/protocol.md


_Self = TypeVar("_Self", bound="_Requests")
_Result = TypeVar("_Result")


class _Requests:
    """The connection, and the requests that both clients have."""

    _logger = logger

    # The engine's release, whose form replies must have; empty: a server of any release.
    _vllm = ""

    # Whether a lookup that is refused as busy is sent again, until its timeout.
    _resends_busy = True

    def __init__(
        self,
        address: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        raise_errors: bool = False,
        pool: Mapping[str, Any] | None = None,
        on_instance: Callable[[Instance], object] | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Takes tcp://host:port (IPv6 in brackets), host:port, tls://host:port,
        or ipc:///path. timeout bounds each call in seconds, connecting
        included, unless the call is given another one; looking up a host's name is the system's
        and is not bounded. pool is {"name": ...} or a description: the
        fields of pool in the server's configuration, and a name if it is to have one.

        token has 1 to 255 bytes in UTF-8; "" means none. token_file is a file whose first
        line, without the spaces around it, is the token; it is read when the token is sent.
        Without both it is the file that HITLINE_TOKEN_FILE names, if any.

        tls is for addresses of tls://. Without it the client wants TLS 1.3 and trusts the
        system's authorities, or those of the file HITLINE_TLS_CA alone. It presents the
        certificate of the file HITLINE_TLS_CERT, if set, with the key in HITLINE_TLS_KEY."""
        self._timeout = _check_timeout(timeout)
        self.address = address
        self._target = parse_address(address)
        _check_tls(tls)
        if on_instance is not None and not callable(on_instance):
            raise TypeError(f"on_instance is {type(on_instance).__name__}, must be a function of an Instance")
        self._token, self._token_file = _token_source(token, token_file)
        self._token_warned = False
        self._authenticated = False  # whether the connection is, or needs not be
        self._auth_error: RefusedError | None = None  # why the connection's server has refused the token
        self._auth_retry_at = 0.0
        self._is_tls = address.startswith("tls://")
        self._tls = tls  # None: of the environment
        if self._is_tls:
            self._tls_context()  # the files are there
        elif tls is not None:
            raise ValueError(f"tls is for an address of tls://, not for {address!r}")
        self._raise_errors = raise_errors
        self._fitting: str | None = None  # releases of the connection's server, if _vllm is set
        self._set_pool(pool)
        self._in_pool = False  # whether the connection is
        self._pool_error: HitlineError | None = None  # why the connection's server has refused it
        self._pool_retry_at = 0.0
        self._pool_reply: dict[str, Any] | None = None
        self._backend = ""  # the store of the pool's blocks, as the server has named it last
        self._on_instance = on_instance
        self._instance = ""  # id of the last one
        self._instance_known = False  # whether the connection's server has been asked for it
        self._knows_starts = True  # whether the connection's server has not refused LOOKUP_FROM as unknown
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._closed = False
        self._pause = 0.0
        self._retry_at = 0.0
        self._last_failure = ""  # why nothing is tried until then
        self._log_at: dict[str, float] = {}  # when each text may be logged again
        self._logged_difference = ""  # the text of the last PoolDiffers that was logged
        forkable.add(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):
            self._drop()  # closes this process's copy, and says nothing to the server

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, within a second. A request that is under way fails."""
        self._closed = True
        self._close(time.monotonic() + _CLOSE_TIMEOUT)

    def _close(self, deadline: float) -> None:
        """Wakes the thread that makes a request, and waits for it until the deadline."""
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                # Wakes the thread that uses it. That of SSLSocket would also end its encryption.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        # A thread that looks up a host's name is not woken. It drops its connection itself.
        if self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                self._drop()
            finally:
                self._lock.release()

    def store(
        self,
        keys: Sequence[bytes],
        *,
        group: int = 0,
        tp_rank: int = 0,
        pp_rank: int = 0,
        pcp_rank: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Says that a rank of a group holds keys, consecutive chunks. tp_rank is the one
        that the engine's keys name, the KV shard: the worker's tensor rank divided by the
        number of ranks that hold equal blocks."""
        self._command(STORE, _group_rank(group, tp_rank, pp_rank, pcp_rank), *_keys("keys", keys), timeout=timeout)

    def evict(
        self,
        keys: Sequence[bytes],
        *,
        group: int = 0,
        tp_rank: int = 0,
        pp_rank: int = 0,
        pcp_rank: int = 0,
        timeout: float | None = None,
    ) -> None:
        """Says that a rank of a group no longer holds keys. tp_rank is as for store."""
        self._command(EVICT, _group_rank(group, tp_rank, pp_rank, pcp_rank), *_keys("keys", keys), timeout=timeout)

    def store_prompt(
        self,
        num_tokens: int,
        block_hashes: Sequence[bytes],
        *,
        start_token: int = 0,
        prompt_tokens: int | None = None,
        first_hash: int = 0,
        ranks: Sequence[tuple[int, int, int]] = (),
        states: Sequence[tuple[int, int]] = (),
        timeout: float | None = None,
    ) -> list[int]:
        """Says that the first num_tokens tokens of a prompt are in the store, as far as
        vLLM's store mask keeps them: returns how many chunks that are, for each group.
        block_hashes are the prompt's from number first_hash on. start_token is up to
        where chunks were stored before, and may be the num_tokens of the call before;
        prompt_tokens is the length of the whole prompt.
        ranks are those that hold the chunks, each tp_rank as for store, pp_rank and
        pcp_rank; none means all. states are those of mamba groups, each the group and
        the token at which it ends, which is 0 for no state. Raises PartlyDone if a part
        is not stored."""
        length = _UNKNOWN_LENGTH if prompt_tokens is None else prompt_tokens
        numbers = _pack(32, num_tokens=num_tokens, start_token=start_token, prompt_tokens=length, first_hash=first_hash)
        packed_ranks = b"".join(_pack(16, tp_rank=tp, pp_rank=pp, pcp_rank=pcp) for tp, pp, pcp in ranks)
        packed_states = b"".join(_pack(32, group=group, token=token) for group, token in states)
        hashes = _keys("block_hashes", block_hashes)
        frames = self._command(STORE_PROMPT, numbers, packed_ranks, packed_states, *hashes, timeout=timeout)
        if len(frames) != 1 or len(frames[0]) % 4:
            raise BadReply(f"store_prompt with {len(frames)} frames behind the status")
        return list(struct.unpack(f">{len(frames[0]) // 4}I", frames[0]))

    def renew(self, block_hashes: Sequence[bytes], *, timeout: float | None = None) -> None:
        """Asks for the blocks of a prompt's first tokens to be kept, as a lookup with a start_token does not ask the
        store for what lies before. It returns when the server has queued it. Raises Unsupported where
        pool_reply has no renew, since there is nothing to renew."""
        self._command(RENEW, *_keys("block_hashes", block_hashes), timeout=timeout)

    def plan(
        self, token_len: int, block_hashes: Sequence[bytes], *, start_token: int = 0, timeout: float | None = None
    ) -> Plan:
        """Looks up a prompt and returns the hit with the chunks that must be loaded for
        it, none for a hit of start_token or less. It counts as a lookup; start_token and
        block_hashes are as for that. Up to vLLM 0.26 an engine lowers a hit of all tokens; ask
        load_mask for the chunks of the lowered hit."""
        token_len, hashes = _checked(token_len, block_hashes, Start(start_token))
        frames = self._command(PLAN, *_frames_from(token_len, hashes), timeout=timeout)
        if len(frames) != 2:
            raise BadReply(f"plan with {len(frames)} frames behind the status")
        return Plan(*self._hit_of(frames[0], token_len), _decode_masks(frames[1]))

    def load_mask(self, num_tokens: int, num_hashes: int, *, timeout: float | None = None) -> tuple[Mask, ...]:
        """Returns for each group of the pool which chunks must be loaded, for a prompt of
        num_hashes hashes to be served its first num_tokens tokens, which are a hit."""
        return self._masks(LOAD_MASK, timeout, num_tokens=num_tokens, num_hashes=num_hashes)

    def store_mask(
        self, num_tokens: int, start_token: int = 0, prompt_tokens: int | None = None, *, timeout: float | None = None
    ) -> tuple[Mask, ...]:
        """Returns for each group of the pool which chunks of the first num_tokens tokens,
        a multiple of the pool's alignment, are worth storing, from the first that begins at or
        after start_token. prompt_tokens is the length of the whole prompt."""
        length = _UNKNOWN_LENGTH if prompt_tokens is None else prompt_tokens
        return self._masks(STORE_MASK, timeout, num_tokens=num_tokens, start_token=start_token, prompt_tokens=length)

    def lookup_mask(self, num_tokens: int, *, timeout: float | None = None) -> tuple[Mask, ...]:
        """Returns for each group of the pool which chunks of the first num_tokens tokens a
        lookup checks."""
        return self._masks(LOOKUP_MASK, timeout, num_tokens=num_tokens)

    def _masks(self, request: bytes, timeout: float | None, **numbers: int) -> tuple[Mask, ...]:
        frames = self._command(request, _pack(32, **numbers), timeout=timeout)
        if len(frames) != 1:
            raise BadReply(f"masks with {len(frames)} frames behind the status")
        return _decode_masks(frames[0])

    def reset_rank(
        self,
        *,
        group: int | None = None,
        tp_rank: int | None = None,
        pp_rank: int | None = None,
        pcp_rank: int | None = None,
        timeout: float | None = None,
    ) -> None:
        """Says that a rank holds nothing any more, as its worker has died. What is left
        out stands for every group or rank; without any it is a reset. What is stored there
        meanwhile may go or stay. Over a backend a server refuses all but a reset."""
        fields = [_ANY_RANK if n is None else n for n in (group, tp_rank, pp_rank, pcp_rank)]
        if fields.count(_ANY_RANK) != (group, tp_rank, pp_rank, pcp_rank).count(None):
            raise ValueError(f"group or rank {_ANY_RANK} does not fit")
        self._command(RESET_RANK, _group_rank(*fields), timeout=timeout)

    def ping(self, payload: bytes = b"", *, timeout: float | None = None) -> None:
        """Makes a round trip; payload comes back or BadReply is raised."""
        if not isinstance(payload, _BYTES):
            raise TypeError(f"payload is {type(payload).__name__}, must be bytes")
        payload = bytes(payload)  # of a view of larger items, len counts these
        if self._command(PING, payload, timeout=timeout) != [payload]:
            raise BadReply("ping came back with another payload")

    def stat(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Returns the counters of the server and of the client's pool."""
        return _decode_object("stat", self._command(STAT, timeout=timeout))

    @property
    def pool_reply(self) -> dict[str, Any] | None:
        """What the server said of the pool when it was last told: its name, digest,
        alignment and the other fields of the reply. None before that, and if the server
        has refused the pool since."""
        return self._pool_reply

    def _set_pool(self, pool: Mapping[str, Any] | None) -> None:
        """Sets the pool of a client that has no connection yet."""
        self._pool = _encode_pool(pool)  # empty: the server's own
        self._num_groups = _num_groups(pool)

    def check_pool(self, *, timeout: float | None = None) -> dict[str, Any] | None:
        """Tells the server the pool, unless the connection is in it, and returns
        pool_reply. Raises a RefusedError if the server does not have it."""
        with self._locked(timeout) as deadline:
            self._exchange_locked((PING, b""), deadline, in_pool=True)
            return self._pool_reply

    def _lookup_timeout(self, token_len: int) -> float:
        """How long a lookup of a prompt may take if the call does not say it, in seconds."""
        return self._timeout

    def _lookup(
        self, token_len: int, hashes: Hashes, timeout: float | None = None, *, resend: bool = True
    ) -> LookupResult:
        """Asks for a hit. Without resend a lookup that is refused as busy raises Busy at once, and delays no other
        request."""
        with self._locked(self._lookup_timeout(token_len) if timeout is None else timeout) as deadline:
            self._check_release(deadline)
            frames = self._exchange_lookup(token_len, hashes, deadline, resend)
            self._check_release(deadline)  # the connection may be another one by now
        if len(frames) != 1:
            raise BadReply(f"a hit of {len(frames)} frames")
        return self._hit_of(frames[0], token_len)

    def _hit_of(self, frame: bytes, token_len: int) -> LookupResult:
        """Returns the hit in a reply. Raises BadReply for one that no server of the release sends."""
        release = self._vllm or _string(self._pool_reply or {}, "vllm").partition(", ")[0]
        result = _decode_hit(frame, release)
        if result.hit_length and not result.tail_key_boundaries and release in _WITH_BOUNDARIES:
            raise BadReply(f"a hit of {result.hit_length} tokens without a tail boundary, of vLLM {release}")
        return _check_hit(result, token_len)

    def _exchange_lookup(self, token_len: int, hashes: Hashes, deadline: float, resend: bool) -> list[bytes]:
        """Sends a lookup from the start of the hashes; to a server that knows no starts, a whole one."""
        if hashes.start.token and (self._knows_starts or not hashes.start.hashes_before):
            request = LOOKUP_FROM, *_frames_from(token_len, hashes)
            try:
                return self._exchange_locked(request, deadline, resend=resend)
            except UnknownRequest:
                self._knows_starts = False
                if not hashes.start.hashes_before:
                    raise
                if self._may_log("starts"):
                    self._logger.info("hitline at %s knows no start_token: it is asked for whole prompts", self.address)
        size, blob = hashes.whole()
        request = LOOKUP, _pack(32, token_len=token_len), size.to_bytes(2, "big"), blob
        return self._exchange_locked(request, deadline, resend=resend)

    def _check_release(self, deadline: float) -> None:
        """Asks the server once a connection whether its answers are those of _vllm. With
        a pool that has been done when the connection was put in it."""
        if not self._vllm or self._pool:
            return
        if self._fitting is None or self._vllm not in self._fitting.split(", "):
            self._connected()  # the server may have been replaced
        if self._fitting is None:
            stat = _decode_object("stat", _behind_done(self._exchange_locked((STAT,), deadline)))
            self._fitting, self._backend = _string(stat, "vllm"), _string(stat, "backend")
        self._compare_release(self._fitting)

    def _compare_release(self, fitting: str) -> None:
        """Raises WrongRelease if _vllm is none of the releases that a pool fits, joined
        with ", "."""
        if self._vllm in fitting.split(", "):
            return
        found = " or ".join(fitting.rsplit(", ", 1)) or "an unknown release"
        raise WrongRelease(
            f"the engine is vLLM {self._vllm}, but the server's pool is for vLLM {found}: "
            f'set pool.vllm: "{self._vllm}" in the server\'s configuration'
        )

    def _authenticate(self, deadline: float) -> None:
        """Sends the token, unless it was sent on this connection or there is none. Raises the
        server's refusal of the token, and again until it may be sent again."""
        if self._authenticated:
            return
        if self._auth_error is not None and time.monotonic() < self._auth_retry_at:
            raise self._auth_error.with_traceback(None)
        token = self._read_token()
        if token:
            self._warn_of_plain_text()
            try:
                _behind_done(self._ask((AUTH, token), deadline))
            except RefusedError as error:
                if not isinstance(error, Busy):
                    self._auth_error = error
                    self._auth_retry_at = time.monotonic() + _AUTH_RETRY
                raise
        self._authenticated = True

    def _ask_instance(self, deadline: float) -> None:
        """Calls on_instance if the server of a new connection is another instance than the last."""
        if self._on_instance is None or self._instance_known:
            return
        try:
            instance = _decode_instance(self._ask((PING,), deadline))
        except NotAllowed:
            instance = None
        self._instance_known = True
        if instance is None or instance.id == self._instance:
            return
        self._instance = instance.id
        try:
            self._on_instance(instance)
        except Exception:
            self._logger.exception("on_instance failed for hitline at %s", self.address)

    def _read_token(self) -> bytes:
        """Returns the token, empty if there is none."""
        if not self._token_file:
            return self._token
        try:
            return read_token_file(self._token_file)
        except ConnectionFailed as error:
            self._back_off(str(error))
            raise

    def _warn_of_plain_text(self) -> None:
        """Warns once if others on the network can read the token."""
        assert self._sock is not None
        if self._is_tls or isinstance(self._target, str) or self._token_warned:
            return
        if is_remote(self._sock):
            self._token_warned = True
            self._logger.warning(
                "the token goes to %s in plain text, for all on the way to read; use tls://", self.address
            )

    def _enter_pool(self, deadline: float) -> None:
        """Puts the connection in the pool, unless it is. Raises a RefusedError or WrongRelease
        if it cannot be used, and again until the server may be asked again."""
        if self._in_pool:
            return
        if self._pool_error is not None and time.monotonic() < self._pool_retry_at:
            raise self._pool_error.with_traceback(None)
        self._pool_error = self._pool_reply = None
        try:
            reply = _decode_object("pool", _behind_done(self._ask((POOL, self._pool), deadline)))
            _check_described(reply)
            self._check_pool_reply(reply)
        except (RefusedError, WrongRelease) as error:
            self._pool_error = error
            lasting = isinstance(error, (PoolDiffers, WrongRelease))
            self._pool_retry_at = math.inf if lasting else time.monotonic() + _POOL_RETRY
            raise
        self._pool_reply, self._backend = reply, _string(reply, "backend")
        self._in_pool = True

    def _check_pool_reply(self, reply: dict[str, Any]) -> None:
        """Raises WrongRelease or PoolDiffers if the pool cannot be used."""
        if self._vllm:
            self._compare_release(_string(reply, "vllm"))

    def _lookup_or_zero(self, token_len: int, hashes: Hashes, timeout: float | None = None) -> LookupResult:
        """Returns the hit of arguments that are right: whatever is raised is then a failure."""
        try:
            return self._lookup(token_len, hashes, timeout)
        except Exception as error:
            return self._zero(error)

    def _zero(self, error: Exception) -> LookupResult:
        """The hit of a lookup that failed: called while error is handled."""
        if self._raise_errors:
            raise error
        self._log("lookup at %s failed and counts as a hit of 0 tokens: %s", error)
        return LookupResult(0)

    def _reset(self, timeout: float | None) -> bool:
        try:
            self._command(RESET, timeout=timeout)
        except Exception as error:
            if self._raise_errors:
                raise
            self._log("reset at %s failed: %s", error)
            return False
        return True

    def _log(self, text: str, error: Exception) -> None:
        differs = isinstance(error, PoolDiffers)
        if differs and str(error) == self._logged_difference:
            return
        if self._may_log(text + " (pool)" if differs else text):
            self._logged_difference = str(error) if differs else self._logged_difference
            level = logging.ERROR if isinstance(error, (PoolDiffers, WrongRelease)) else logging.WARNING
            self._logger.log(level, text, self.address, error if isinstance(error, HitlineError) else repr(error))

    def _may_log(self, text: str) -> bool:
        """Tells whether a text may be logged, which it then may not be for _LOG_EVERY."""
        now = time.monotonic()
        if now < self._log_at.get(text, 0.0):
            return False
        self._log_at[text] = now + _LOG_EVERY
        return True

    def _command(self, *frames: bytes, timeout: float | None = None) -> list[bytes]:
        """Exchanges a request whose reply begins with 01, and returns the rest."""
        with self._locked(timeout) as deadline:
            return _behind_done(self._exchange_locked(frames, deadline))

    def _call_timeout(self, timeout: float | None) -> float:
        """Returns the timeout of a call, in seconds."""
        return self._timeout if timeout is None else _check_timeout(timeout)

    @contextlib.contextmanager
    def _locked(self, timeout: float | None) -> Iterator[float]:
        """Keeps other threads from the connection, until the deadline at the latest."""
        timeout = self._call_timeout(timeout)
        deadline = time.monotonic() + timeout
        lock = self._lock  # a process that is forked meanwhile gets another one
        if not lock.acquire(timeout=timeout):
            raise self._lock_error(timeout)
        try:
            yield deadline
        finally:
            lock.release()

    def _lock_error(self, timeout: float) -> RequestTimeout:
        return RequestTimeout(f"other requests took all of {timeout} s")

    def _exchange_locked(
        self, frames: tuple[bytes, ...], deadline: float, *, in_pool: bool = False, resend: bool = True
    ) -> list[bytes]:
        """Sends a request and returns the frames of its reply, at least one. in_pool: a ping
        needs the pool as well. resend: see _ask."""
        if self._closed:
            raise ConnectionFailed("the client is closed")
        if time.monotonic() < self._retry_at:
            raise ConnectionFailed(f"not tried so soon after this: {self._last_failure}")
        in_pool = bool(self._pool) and (in_pool or frames[0] != PING)
        reused = self._connected()
        while True:
            try:
                if not reused:
                    self._connect(deadline)
                self._authenticate(deadline)
                self._ask_instance(deadline)
                if in_pool:
                    self._enter_pool(deadline)
                reply = self._ask(frames, deadline, resend)
                self._pause = 0.0
                return reply
            except (RefusedError, WrongRelease) as error:  # the connection is as it was
                if not isinstance(error, Busy):
                    self._pause = 0.0
                raise
            except BaseException as error:
                # What is still to come on this connection answers nothing of ours.
                self._drop()
                # A request may be sent twice: none does more the second time.
                if reused and isinstance(error, _Lost) and not self._closed:
                    reused = False
                    continue
                if isinstance(error, RequestTimeout):
                    self._back_off(str(error))
                raise

    def _ask(self, frames: tuple[bytes, ...], deadline: float, resend: bool = True) -> list[bytes]:
        """Makes one round trip, and with resend more while the server is busy. Raises what it refuses."""
        pause = _FIRST_PAUSE
        while True:
            self._send(frames, deadline)
            reply = self._receive(frames[0], deadline)
            if reply[0] not in (REFUSED, PARTLY_DONE):
                return reply
            refusal = _decode_refusal(reply)
            again = time.monotonic() + pause
            # A server that has too many pools is busy for longer than an engine can wait.
            if not isinstance(refusal, Busy) or frames[0] == POOL or not resend:
                raise refusal
            if again >= deadline or frames[0] in (LOOKUP, LOOKUP_FROM) and not self._resends_busy:
                self._back_off(str(refusal))
                raise refusal
            # The wait ends early if the connection does, also by close.
            if self._wait(_READABLE, again) and not self._connected():
                raise _Lost(f"{self.address} closed the connection")
            pause = min(2 * pause, _MAX_PAUSE)

    def _connected(self) -> bool:
        """Tells whether there is a connection that the peer has not ended."""
        if self._sock is None:
            return False
        if not self._poll(_READABLE, 0.0) or self._is_tls and self._has_no_data():
            return True
        self._drop()  # ended, or there are bytes that nobody asked for
        return False

    def _has_no_data(self) -> bool:
        """Reads what TLS has sent of its own, such as tickets. Tells whether that was all."""
        assert self._sock is not None
        try:
            self._sock.recv(1)
        except _NOT_READY:
            return True
        except OSError:
            pass
        return False

    def _wait(self, event: int, deadline: float) -> bool:
        """Waits until the connection is _READABLE or _WRITABLE, or has ended or failed. Returns
        False if the deadline comes first."""
        seconds = deadline - time.monotonic()
        return seconds > 0 and self._poll(event, seconds)

    def _poll(self, event: int, seconds: float) -> bool:
        """Waits like _wait, at most the given seconds. The socket does not block: with a timeout
        of its own a request would take three more system calls."""
        sock = self._sock
        assert sock is not None
        if hasattr(select, "poll"):
            poller = select.poll()
            poller.register(sock, event)
            return bool(poller.poll(math.ceil(seconds * 1000)))
        waiting = ([sock], []) if event == _READABLE else ([], [sock])
        return any(select.select(*waiting, [sock], seconds))

    def _connect(self, deadline: float) -> None:
        try:
            self._dial(deadline)
        except (OSError, ValueError) as error:  # the latter of a name, or of the files for TLS
            text = f"cannot connect to {self.address}: {error}"
            if isinstance(error, socket.timeout) or time.monotonic() >= deadline:
                raise RequestTimeout(text) from error
            self._back_off(text)
            raise ConnectionFailed(text) from error

    def _dial(self, deadline: float) -> None:
        if isinstance(self._target, str):
            self._dial_one(socket.AF_UNIX, self._target, deadline)
            return
        host, port = self._target
        failure: OSError | None = None
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for left, (family, _, _, _, target) in zip(range(len(found), 0, -1), found):
            now = time.monotonic()
            try:
                # One that does not answer leaves time for the others.
                self._dial_one(family, target, now + (deadline - now) / left)
            except OSError as error:
                self._drop()
                failure = error
                continue
            assert self._sock is not None
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return
        raise failure or OSError("the name has no address")

    def _dial_one(self, family: int, target: Any, deadline: float) -> None:
        context = self._tls_context() if self._is_tls else None
        sock = socket.socket(family, socket.SOCK_STREAM)
        if context is not None:
            sock = context.wrap_socket(sock, server_hostname=self._target[0], do_handshake_on_connect=False)
        # Known to close before it is waited for; either sees what the other did.
        self._sock = sock
        if self._closed:
            raise OSError("the client is closed")
        sock.settimeout(_remaining(deadline))
        sock.connect(target)
        if isinstance(sock, ssl.SSLSocket):
            sock.settimeout(_remaining(deadline))
            sock.do_handshake()
        sock.settimeout(0)  # from now on _poll waits for it

    def _tls_context(self) -> ssl.SSLContext:
        """Returns the context of a new connection. Raises ValueError if it cannot be made of
        the environment's files."""
        return self._tls or _default_tls()

    def _back_off(self, why: str) -> None:
        self._last_failure = why
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _MAX_PAUSE)
        self._retry_at = time.monotonic() + self._pause

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        self._fitting = None
        self._in_pool = False
        self._pool_error = None
        self._authenticated = False
        self._auth_error = None
        self._instance_known = False
        self._knows_starts = True
        if sock is not None:
            sock.close()

    def _send(self, frames: tuple[bytes, ...], deadline: float) -> None:
        head = []
        for frame in frames[:-1]:
            head += _header(len(frame), _MORE), frame
        last = frames[-1]
        head.append(_header(len(last), 0))
        if len(last) <= _JOINED:
            self._write(b"".join((*head, last)), deadline)
        else:
            self._write(b"".join(head), deadline)
            self._write(last, deadline)

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._sock is not None
        left = memoryview(data)
        while left:
            try:
                left = left[self._sock.send(left) :]
            except _NOT_READY as error:
                if not self._wait(_awaited(error, _WRITABLE), deadline):
                    raise RequestTimeout(f"{self.address} did not take the request in time") from None
            except OSError as error:
                raise _Lost(f"lost {self.address}: {error}") from error

    def _receive(self, request: bytes, deadline: float) -> list[bytes]:
        """Reads the reply to a request and expects nothing behind it. Raises BadReply for a frame that is longer than
        such a reply can have, before it reads the frame."""
        data = bytearray()
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
            limit = self._max_frame(request, frames)
            if size > limit or len(frames) == _MAX_FRAMES:
                raise BadReply(
                    f"frame {len(frames) + 1} of a reply to {request.decode()} has {size} bytes, "
                    f"at most {limit} in {_MAX_FRAMES} frames are read"
                )
            self._fill(data, at + size, deadline)
            frames.append(bytes(data[at : at + size]))
            at += size
            more = bool(flags & _MORE)
        if len(data) != at:
            raise BadReply(f"{len(data) - at} bytes behind the reply")
        return frames

    def _max_frame(self, request: bytes, frames: list[bytes]) -> int:
        """How many bytes the next frame of a reply may have, behind frames."""
        if request == PING or frames and frames[0] in (REFUSED, PARTLY_DONE):
            return _MAX_DOCUMENT
        if request in (LOOKUP, LOOKUP_FROM):
            return _HIT_SIZE + _BOUNDARY_SIZE * self._num_groups
        if request in (POOL, STAT):
            return _MAX_DOCUMENT + _DOCUMENT_PER_GROUP * self._num_groups
        return _MAX_REPLY

    def _fill(self, data: bytearray, size: int, deadline: float) -> None:
        """Receives until data has size bytes, or more."""
        assert self._sock is not None
        event = _READABLE
        while len(data) < size:
            if not self._wait(event, deadline):
                raise RequestTimeout(f"{self.address} did not answer in time")
            event = _READABLE
            try:
                chunk = self._sock.recv(_RECEIVE_SIZE)
            except _NOT_READY as error:  # it is no longer readable, or has a part of a record
                event = _awaited(error, _READABLE)
                continue
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

    def lookup(
        self,
        token_len: int,
        block_hashes: Sequence[bytes],
        *,
        start_token: int = 0,
        hashes_before: int = 0,
        timeout: float | None = None,
    ) -> int:
        """Returns how many leading tokens of a prompt of token_len tokens are in the
        pool. block_hashes are the hashes of its blocks, all of one length.

        With start_token the tokens before it count as present, and block_hashes are those from it on: it is
        at most token_len, and the server refuses one that is no multiple of the pool's
        scheduler_block_size. A hit of start_token or less means that there is nothing to load. The hashes before
        it may be given as well, as the first hashes_before of block_hashes: a server that knows no
        start_token is then asked for the whole prompt, and none of them is sent to others."""
        return self.lookup_result(
            token_len, block_hashes, start_token=start_token, hashes_before=hashes_before, timeout=timeout
        ).hit_length

    def lookup_result(
        self,
        token_len: int,
        block_hashes: Sequence[bytes],
        *,
        start_token: int = 0,
        hashes_before: int = 0,
        timeout: float | None = None,
    ) -> LookupResult:
        """Returns the same hit as lookup, with its tail boundaries. There are none if
        the server's pool is of vLLM 0.28 or older."""
        start = Start(start_token, hashes_before)
        return self._lookup_or_zero(*_checked(token_len, block_hashes, start), self._call_timeout(timeout))

    def reset(self, *, timeout: float | None = None) -> bool:
        """Makes the server forget every block; tells whether it did."""
        return self._reset(self._call_timeout(timeout))


class LookupKeyClient(_Requests):
    """Has the methods and arguments of vLLM's lookup client.

    vllm is the release of the engine, one of VLLM_RELEASES. lookup then returns what
    the client of that release returns: the hit as a number up to 0.28, a LookupResult
    from 0.29 on. A server whose pool is of another release is not asked: lookups of it
    fail with WrongRelease. Without vllm it is a number, of whichever server. With pool the
    release is that of the reply to it, and stat is not asked.

    Lookups with non_block run one after the other on one worker thread, which starts
    with the first of them and ends with close.
    """

    # What lookup returns from vLLM 0.29.0 on.
    _result_type: Callable[..., Any] = LookupResult
    _boundary_type: Callable[..., Any] = TailKeyBoundary

    def __init__(
        self,
        address: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        raise_errors: bool = False,
        vllm: str | None = None,
        pool: Mapping[str, Any] | None = None,
        on_instance: Callable[[Instance], object] | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            address,
            timeout=timeout,
            raise_errors=raise_errors,
            pool=pool,
            on_instance=on_instance,
            token=token,
            token_file=token_file,
            tls=tls,
        )
        if vllm is not None and vllm not in VLLM_RELEASES:
            raise ValueError(f"vllm is {vllm!r}, must be one of {', '.join(VLLM_RELEASES)}")
        self._vllm = vllm or ""
        self._begin_work()

    def _begin_work(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hitline-lookup")
        self._futures: dict[str, Future[LookupResult]] = {}
        self._futures_lock = threading.Lock()

    def _after_fork(self) -> None:
        super()._after_fork()
        if not self._closed:
            self._begin_work()

    def lookup(
        self,
        req_id: str,
        token_len: int,
        block_hashes: Sequence[bytes],
        non_block: bool = False,
        *,
        start_token: int = 0,
        hashes_before: int = 0,
    ) -> Any:
        """Returns the hit. With non_block it returns None until the lookup that the
        first call began is done; the call that returns its hit ends it. While a lookup
        of req_id is pending, further calls ask for that one, whatever their other
        arguments are. start_token and hashes_before are as for Client.lookup."""
        start = Start(start_token, hashes_before)
        return self._in_form(self._lookup_pending(req_id, token_len, block_hashes, non_block, start))

    def _in_form(self, result: LookupResult | None) -> Any:
        """Returns what lookup returns in the engine's release."""
        if result is None:
            return None
        if not self._vllm or self._vllm in _WITHOUT_BOUNDARIES:
            return result.hit_length
        boundaries = tuple(self._boundary_type(b.group_id, b.num_tokens) for b in result.tail_key_boundaries)
        return self._result_type(result.hit_length, boundaries)

    def _lookup_pending(
        self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool, start: Start
    ) -> LookupResult | None:
        with self._futures_lock:
            future = self._futures.get(req_id)
            if future is None:
                token_len, hashes = _checked(token_len, block_hashes, start)
            if future is None and non_block:
                try:
                    future = self._submit(self._lookup_or_zero, token_len, hashes)
                except Exception as error:  # the client is closed
                    return self._zero(error)
                self._futures[req_id] = future
        if future is None:
            # Nothing is gained by handing over what is waited for.
            return self._lookup_or_zero(token_len, hashes)
        if non_block and not future.done():
            return None
        try:
            return self._result(future)
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

    def reset(self, *, timeout: float | None = None) -> bool:
        """Makes the server forget every block, after the lookups that are pending;
        tells whether it did."""
        timeout = self._call_timeout(timeout)
        try:
            return self._result(self._submit(self._reset, timeout))
        except Exception as error:
            if self._raise_errors:
                raise
            self._log("reset at %s failed: %s", error)
            return False

    def _submit(self, call: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Has the worker make a call."""
        try:
            return self._worker.submit(call, *arguments)
        except RuntimeError as error:
            if self._closed:
                raise ConnectionFailed("the client is closed") from error
            raise

    def _result(self, future: Future[_Result]) -> _Result:
        """Waits for what the worker returns."""
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise ConnectionFailed("the client is closed") from None
            raise HitlineError("the lookup was discarded") from None

    def close(self) -> None:
        """Cancels the pending lookups, ends the worker and closes the connection, within a second."""
        super().close()
        with self._futures_lock:
            self._futures.clear()

    def _close(self, deadline: float) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)
        super()._close(deadline)
        # The worker's own wait has no bound, and the system's look-up of a host's name may take any time.
        waiting = threading.Thread(target=self._worker.shutdown, daemon=True)
        with contextlib.suppress(RuntimeError):  # the system has no thread left, or Python ends
            waiting.start()
            waiting.join(max(0.0, deadline - time.monotonic()))


def _decode_hit(frame: bytes, vllm: str = "") -> LookupResult:
    """Decodes a hit of a release, or of any if that is empty. Up to vLLM 0.28 it has no tail
    boundaries."""
    if len(frame) % _BOUNDARY_SIZE != _HIT_SIZE or len(frame) > _HIT_SIZE and vllm in _WITHOUT_BOUNDARIES:
        raise BadReply(f"a hit of {len(frame)} bytes, want {_HIT_SIZE} and, from 0.29.0 on, {_BOUNDARY_SIZE} a group")
    hit, *tail = struct.unpack(f">{len(frame) // 4}I", frame)
    return LookupResult(hit, tuple(map(TailKeyBoundary, tail[::2], tail[1::2])))


def _check_hit(result: LookupResult, token_len: int) -> LookupResult:
    """Raises BadReply for a hit that no prompt of token_len tokens can have. The block at a tail
    boundary has the hit's last token, so a boundary is at the hit or behind it."""
    hit, boundaries = result
    if hit > token_len:
        raise BadReply(f"a hit of {hit} tokens for a prompt of {token_len}")
    for group, boundary in enumerate(boundaries):
        if boundary.group_id != group or boundary.num_tokens < hit:
            raise BadReply(f"for group {group} of {len(boundaries)}, a hit of {hit} tokens has {boundary}")
    return result


def _check_timeout(timeout: float) -> float:
    if not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is {timeout!r}, must be a number of seconds")
    if not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(f"timeout is {timeout!r}, must be more than 0 and at most {MAX_TIMEOUT:.0f}")
    return timeout


def _check_tls(tls: ssl.SSLContext | None) -> None:
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise TypeError(f"tls is {type(tls).__name__}, must be an ssl.SSLContext")


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


def _token_source(token: str | None, file: str | os.PathLike[str] | None) -> tuple[bytes, str]:
    """Returns the token or the path of its file; neither if there is none."""
    if token is None:
        return b"", os.fspath(file or os.environ.get("HITLINE_TOKEN_FILE", ""))
    if file is not None:
        raise ValueError("token and token_file are both given")
    if not isinstance(token, str):
        raise TypeError(f"token is {type(token).__name__}, must be str")
    encoded = token.encode("utf-8", "surrogatepass")  # an error would have the token
    if len(encoded) > _MAX_TOKEN:
        raise ValueError(f"the token has {len(encoded)} bytes, must have at most {_MAX_TOKEN}")
    return encoded, ""


def is_remote(sock: socket.socket) -> bool:
    """Returns whether the peer of a TCP socket is on another machine. False if the connection is lost."""
    with contextlib.suppress(OSError, ValueError):
        peer = ipaddress.ip_address(sock.getpeername()[0])
        return not (getattr(peer, "ipv4_mapped", None) or peer).is_loopback
    return False


def read_token_file(path: str) -> bytes:
    """Returns the token in the first line of a file. Raises ConnectionFailed if there is none."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("it is no regular file")  # reading a pipe may take any time
        with open(path, "rb") as file:
            token = file.readline(_MAX_TOKEN + 64).strip()  # and some spaces
        if not 0 < len(token) <= _MAX_TOKEN:
            raise OSError(f"its first line must be a token of 1 to {_MAX_TOKEN} bytes")
    except OSError as error:
        raise ConnectionFailed(f"cannot read the token of {path}: {error.strerror or error}") from None
    return token


def _default_tls() -> ssl.SSLContext:
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


def _awaited(error: OSError, otherwise: int) -> int:
    """Returns what to wait for after recv or send raised one of _NOT_READY."""
    if isinstance(error, ssl.SSLWantReadError):
        return _READABLE
    return _WRITABLE if isinstance(error, ssl.SSLWantWriteError) else otherwise


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


def _header(size: int, flags: int) -> bytes:
    if size < 256:
        return struct.pack(">BB", flags, size)
    return struct.pack(">BQ", flags | _LONG, size)


def _number(name: str, value: int, bits: int) -> int:
    """Returns a number that an unsigned field of so many bits can have."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r:.80}, must be an int") from None
    if number < 0 or number >> bits:
        raise ValueError(f"{name} is {number}, must be 0 to {(1 << bits) - 1}")
    return number


def _pack(bits: int, **numbers: int) -> bytes:
    """Returns fields of so many bits each."""
    return b"".join(_number(name, value, bits).to_bytes(bits // 8, "big") for name, value in numbers.items())


def _group_rank(group: int, tp_rank: int, pp_rank: int, pcp_rank: int) -> bytes:
    ranks = {"tp_rank": tp_rank, "pp_rank": pp_rank}
    if pcp_rank:
        ranks["pcp_rank"] = pcp_rank
    return _pack(16, group=group, **ranks)


class Start(NamedTuple):
    """Where a lookup begins."""

    token: int = 0
    hashes_before: int = 0  # of the hashes that are given, those before the token


WHOLE = Start()


class Hashes:
    """Block hashes that have been checked, those from the start of a lookup on. Those before it
    are checked when they are needed."""

    def __init__(self, block_hashes: Sequence[bytes], start: Start = WHOLE) -> None:
        self.start = start
        self._before: Sequence[bytes] = ()
        if start.hashes_before:
            self._before, block_hashes = _split("block_hashes", block_hashes, start.hashes_before)
        self.count, self.size, self.blob = join_keys("block_hashes", block_hashes)

    def __len__(self) -> int:
        """How many were given."""
        return len(self._before) + self.count

    def whole(self) -> tuple[int, bytes]:
        """Returns the length of a hash, and all of them joined."""
        if not self._before:
            return self.size, self.blob
        _, size, blob = join_keys("block_hashes", self._before)
        if self.blob and size != self.size:
            raise ValueError(f"block_hashes has hashes of {size} and of {self.size} bytes: all must have one length")
        return size, blob + self.blob


def _split(name: str, keys: Sequence[bytes], count: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Returns copies of the first keys and of the others."""
    try:
        before, behind = keys[:count], keys[count:]
        if len(before) == count:
            return before, behind
    except (LookupError, TypeError):
        raise _no_keys(name, keys) from None
    raise ValueError(f"hashes_before is {count}, but {name} has {len(before)}")


def _checked(token_len: int, block_hashes: Sequence[bytes], start: Start) -> tuple[int, Hashes]:
    """Returns a prompt that can be looked up from a start."""
    token_len, token = _number("token_len", token_len, 32), _number("start_token", start.token, 32)
    before = _number("hashes_before", start.hashes_before, 32)
    if token > token_len:
        raise ValueError(f"start_token is {token}, must be at most token_len, {token_len}")
    if before and not token:
        raise ValueError(f"hashes_before is {before}, must be 0 without a start_token")
    return token_len, Hashes(block_hashes, Start(token, before))


def _frames_from(token_len: int, hashes: Hashes) -> tuple[bytes, bytes, bytes]:
    """The frames of a request that begins at the start of the hashes."""
    tokens = _pack(32, token_len=token_len, start_token=hashes.start.token)
    return tokens, hashes.size.to_bytes(2, "big"), hashes.blob


def _keys(name: str, keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The two frames that carry keys: their length, and all of them joined."""
    count, size, blob = join_keys(name, keys)
    if not count:
        raise ValueError(f"{name} is empty")
    return size.to_bytes(2, "big"), blob


def join_keys(name: str, keys: Sequence[bytes]) -> tuple[int, int, bytes]:
    """Returns how many keys there are, the bytes of each, and all of them joined."""
    try:
        count, blob = len(keys), b"".join(keys)
        size = len(keys[0]) if count else 0
    except (LookupError, TypeError):
        raise _no_keys(name, keys) from None
    if isinstance(keys, (str, *_BYTES)):  # an empty one
        raise _no_keys(name, keys)
    # As fast as can be: there are thousands.
    if count and not 0 < size <= _MAX_HASH or operator.countOf(map(len, keys), size) != count:
        odd = next(i for i, key in enumerate(keys) if len(key) != size or not 0 < size <= _MAX_HASH)
        raise ValueError(
            f"{name}[{odd}] has {len(keys[odd])} bytes and {name}[0] has {size}: "
            f"all must have the same length, 1 to {_MAX_HASH} bytes"
        )
    if len(blob) != count * size:  # of arrays and views of larger items, len counts these
        raise _no_keys(name, keys)
    return count, size, blob


def _no_keys(name: str, keys: object) -> TypeError:
    """The error of what is no sequence of bytes."""
    if isinstance(keys, Sequence) and not isinstance(keys, (str, *_BYTES)):
        for i, key in enumerate(keys):
            if not isinstance(key, _BYTES):
                advice = ", as bytes.fromhex returns" if isinstance(key, str) else ""
                return TypeError(f"{name}[{i}] is {type(key).__name__}, must be bytes{advice}")
            if isinstance(key, memoryview) and not (key.c_contiguous and key.nbytes == len(key)):
                return TypeError(f"{name}[{i}] is a memoryview of {key.nbytes} bytes as {key.shape}, must be bytes")
    return TypeError(f"{name} is {type(keys).__name__}, must be a list of bytes")


def _decode_refusal(frames: list[bytes]) -> RefusedError:
    """Returns the error of a reply 00 or 04."""
    try:
        _, text, document = frames
    except ValueError:
        raise BadReply(f"a refusal of {len(frames)} frames, want 3") from None
    refusal = _decode_object("a refusal", [document])
    return _REFUSALS.get(_string(refusal, "refusal"), RefusedError)(printable(text), refusal)


def _behind_done(frames: list[bytes]) -> list[bytes]:
    """Returns what is behind the status 01 of a reply."""
    if frames[0] != DONE:
        raise BadReply(f"status {frames[0][:16].hex() or 'without a byte'}, want 01")
    return frames[1:]


def _decode_masks(frame: bytes) -> tuple[Mask, ...]:
    """Decodes a frame of masks."""
    masks = []
    at = 0
    while at < len(frame):
        if len(frame) - at < _MASK_SIZE:
            raise BadReply("masks: a mask is cut")
        group, first, end, count = struct.unpack_from(">IIII", frame, at)
        at += _MASK_SIZE
        runs: tuple[tuple[int, int], ...] = ((first, end),) if first < end else ()
        if count != _ALL_RUNS:
            if count * _RUN_SIZE > len(frame) - at:
                raise BadReply("masks: a run is cut")
            numbers = struct.unpack_from(f">{2 * count}I", frame, at)
            runs = tuple(zip(numbers[::2], numbers[1::2]))
            at += count * _RUN_SIZE
        masks.append(Mask(None if group == _NO_GROUP else group, first, end, runs, count == _ALL_RUNS))
    return tuple(masks)


def _decode_object(request: str, frames: list[bytes]) -> dict[str, Any]:
    """Returns the JSON object that is the reply to a request."""
    try:
        (document,) = frames
        decoded = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{request} without a JSON document: {error}") from error
    if not isinstance(decoded, dict):
        raise BadReply(f"{request} is not a JSON object")
    return decoded


def _decode_instance(frames: list[bytes]) -> Instance:
    """Returns the instance that a reply to a ping names."""
    named = _decode_object("ping", _behind_done(frames))
    protocol = named.get("protocol")
    instance = _string(named, "instance")
    if not instance or type(protocol) is not int:
        raise BadReply("ping without an instance and a number of the protocol")
    return Instance(instance, _string(named, "start_time"), _string(named, "version"), protocol)


def _check_described(reply: Mapping[str, Any]) -> None:
    """Raises BadReply for fields of the reply to pool that have wrong types. Any may be missing, or None."""
    groups, pool = reply.get("groups") or [], reply.get("pool") or {}
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in (pool, *groups)):
        raise BadReply("pool with groups that are no list of objects, or a pool that is no object")
    counts = [reply.get(name) for name in ("alignment", "lease_ms", "backend_timeout_ms")]
    counts += [pool.get(name) for name in ("scheduler_block_size", "hash_block_size")]
    counts += [group.get(name) for group in groups for name in ("block_size", "stride", "ranks")]
    for count in counts:
        if count is not None and (type(count) is not int or not 0 <= count < 1 << 63):
            raise BadReply(f"pool with {count!r:.80} where a number belongs")


def _string(described: Mapping[str, Any], name: str) -> str:
    """Returns a field as printable does, empty if it is missing or no string."""
    value = described.get(name)
    return printable(value) if isinstance(value, str) else ""


def _objects(described: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Returns the objects in a field that is a list."""
    value = described.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def printable(text: str | bytes) -> str:
    """Returns what a server has said as it may be logged: the first 512 characters, control characters escaped."""
    letters = text[: 4 * _MAX_TEXT].decode("utf-8", "replace") if isinstance(text, bytes) else text[: _MAX_TEXT + 1]
    letters = letters[: _MAX_TEXT + 1]
    if not letters.isprintable():
        letters = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in letters)
    return letters if len(letters) <= _MAX_TEXT else letters[:_MAX_TEXT] + "…"


def _num_groups(pool: Mapping[str, Any] | None) -> int:
    """How many groups a pool has at most."""
    if pool is None or pool.keys() <= {"name"}:  # it is not described
        return _MAX_GROUPS
    groups = pool.get("groups")
    return max(1, len(groups)) if isinstance(groups, Sequence) else 1


def _encode_pool(pool: Mapping[str, Any] | None) -> bytes:
    """Returns the JSON of a pool; empty if there is none."""
    if pool is None:
        return b""
    if not isinstance(pool, Mapping) or not pool:
        raise ValueError(f"pool is {pool!r}, must be a dict of its fields, or with its name")
    try:
        return json.dumps(dict(pool), separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"pool has no JSON: {error}") from error
