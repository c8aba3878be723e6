"""A client of the hitline server: how many leading tokens of a prompt are in the pool?

It needs nothing but the standard library. It speaks the raw dialect of docs/protocol.md over TCP, TLS and unix
sockets. This module encodes requests and decodes replies; handshake.py says what each new connection is for, retry.py
when a request is sent and sent again, and connection.py sends it.

Client asks and waits. LookupKeyClient has the methods of the lookup client that
vLLM's scheduler uses, with lookups that need not be waited for.

Both connect when they are first used, and again whenever the connection is lost. A
lookup that fails counts as a hit of 0 tokens and is logged, so that an engine goes on
without the pool; with raise_errors it raises. Store, evict, ping and stat always
raise. Arguments that cannot be sent always raise TypeError or ValueError. A request that
finds no server dials again within its timeout, if it is a lookup with non_block or the server
has replied within the last 5 s. Once that was in vain, or a reply did not come in time,
requests fail at once until the server answers a ping, which it is sent in the background, at
most a second apart. One whose connection is lost is sent once more, if it changes nothing.

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

import functools
import itertools
import operator
import os
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from hitline import errors
from hitline.connection import MAX_DOCUMENT, Endpoint, Request, Token, check_timeout, encode, forkable, parse_list
from hitline.errors import *  # noqa: F403
from hitline.errors import BadReply, FailureLog, HitlineError, UnknownRequest, decode_object, logger
from hitline.handshake import PING, PING_IN_POOL, STAT, Handshake, Instance, done, pool_key
from hitline.retry import Retry
from hitline.vllm_releases import DIGESTS
from hitline.worker import Task, Worker

__all__ = [
    "Client",
    "Instance",
    "LookupKeyClient",
    "LookupResult",
    "Mask",
    "Plan",
    "TailKeyBoundary",
    "VLLM_RELEASES",
]
__all__ += errors.__all__

# The releases of vLLM whose lookup client LookupKeyClient can be, oldest first.
VLLM_RELEASES: tuple[str, ...] = tuple(DIGESTS)


def is_since(release: str, first: str) -> bool:
    """Whether a release is first or a later one, both of VLLM_RELEASES."""
    return VLLM_RELEASES.index(release) >= VLLM_RELEASES.index(first)


# Those whose replies to lookups have no tail boundaries, and those whose hits above 0 have.
_WITHOUT_BOUNDARIES = tuple(release for release in VLLM_RELEASES if not is_since(release, "0.29.0"))
_WITH_BOUNDARIES = VLLM_RELEASES[len(_WITHOUT_BOUNDARIES) :]

# Seconds that a call may take if neither it nor its client was given a timeout.
DEFAULT_TIMEOUT = 10.0

LOOKUP = b"lookup"
LOOKUP_FROM = b"lookup_from"
RENEW = b"renew"
STORE = b"store"
EVICT = b"evict"
RESET = b"reset"
RESET_RANK = b"reset_rank"
PLAN = b"plan"
LOAD_MASK = b"load_mask"
STORE_MASK = b"store_mask"
LOOKUP_MASK = b"lookup_mask"
STORE_PROMPT = b"store_prompt"

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

_MAX_REPLY = 2 << 20  # bytes of a frame of a reply that is no hit and no document, such as masks

# The types that a key or payload may have.
_BYTES = (bytes, bytearray, memoryview)

# How long close waits for requests that are under way, in seconds.
_CLOSE_TIMEOUT = 1.0


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


_Self = TypeVar("_Self", bound="_Requests")


class _Requests:
    """The requests that both clients have."""

    _logger = logger

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
        """Takes tcp://host:port (IPv6 in brackets), host:port, tls://host:port,
        or ipc:///path; or a list of them with commas, of which the client uses one that follows from its
        pool's name, the next when that fails, and the first again after a minute. timeout bounds each call
        in seconds, connecting included, unless the call is given another one; looking up a host's name is the system's
        and is not bounded. vllm is the release of the engine, one of VLLM_RELEASES: lookups of a server
        whose pool is of another one fail with WrongRelease. pool is {"name": ...} or a description: the
        fields of pool in the server's configuration, and a name if it is to have one. Either may have client, a dict
        of what the client says of itself: docs/protocol.md has its keys.

        token has 1 to 255 bytes in UTF-8; "" means none. token_file is a file whose first
        line, without the spaces around it, is the token; it is read when the token is sent.
        Without both it is the file that HITLINE_TOKEN_FILE names, if any.

        tls is for addresses of tls://. Without it the client wants TLS 1.3 and trusts the
        system's authorities, or those of the file HITLINE_TLS_CA alone. It presents the
        certificate of the file HITLINE_TLS_CERT, if set, with the key in HITLINE_TLS_KEY."""
        self._timeout = check_timeout(timeout)
        endpoints = parse_list(address, tls)
        if on_instance is not None and not callable(on_instance):
            raise TypeError(f"on_instance is {type(on_instance).__name__}, must be a function of an Instance")
        if vllm is not None and vllm not in VLLM_RELEASES:
            raise ValueError(f"vllm is {vllm!r}, must be one of {', '.join(VLLM_RELEASES)}")
        self._vllm = vllm or ""
        self._raise_errors = raise_errors
        self._log = FailureLog(self._logger)
        self._handshake = Handshake(self._vllm, Token(token, token_file), on_instance, self._log)
        self._retry = self._new_retry(endpoints)
        self._set_pool(pool)
        self._begin_work()
        forkable.add(self)

    def _begin_work(self) -> None:
        """Makes what a forked process must have for its own, besides a connection."""

    def _after_fork(self) -> None:
        if not self._retry.closed:
            self._begin_work()

    def _set_pool(self, pool: Mapping[str, Any] | None) -> None:
        """Sets the pool of a client that has no connection yet, and which server it begins with."""
        self._handshake.set_pool(pool)
        self._handshake.is_list = len(self._retry.endpoints) > 1
        self._retry.choose(pool_key(pool))

    def _new_retry(self, endpoints: Sequence[Endpoint]) -> Retry:
        return Retry(endpoints, self._handshake.prepare, PING_IN_POOL, self._timeout, self._log)

    @property
    def address(self) -> str:
        """Of the server, of a list that of the one that is used."""
        return self._retry.endpoint.address

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, within a second. A request that is under way fails."""
        self._retry.close(time.monotonic() + _CLOSE_TIMEOUT)

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
        self._command(STORE, _group_rank(group, tp_rank, pp_rank, pcp_rank), *keys_frames("keys", keys), timeout=timeout)

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
        self._command(EVICT, _group_rank(group, tp_rank, pp_rank, pcp_rank), *keys_frames("keys", keys), timeout=timeout)

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
        hashes = keys_frames("block_hashes", block_hashes)
        frames = self._command(STORE_PROMPT, numbers, packed_ranks, packed_states, *hashes, timeout=timeout)
        if len(frames) != 1 or len(frames[0]) % 4:
            raise BadReply(f"store_prompt with {len(frames)} frames behind the status")
        return list(struct.unpack(f">{len(frames[0]) // 4}I", frames[0]))

    def renew(self, block_hashes: Sequence[bytes], *, timeout: float | None = None) -> None:
        """Asks for the blocks of a prompt's first tokens to be kept, as a lookup with a start_token does not ask the
        store for what lies before. It returns when the server has queued it. Raises Unsupported where
        pool_reply has no renew, since there is nothing to renew."""
        self._command(RENEW, *keys_frames("block_hashes", block_hashes), timeout=timeout)

    def plan(
        self, token_len: int, block_hashes: Sequence[bytes], *, start_token: int = 0, timeout: float | None = None
    ) -> Plan:
        """Looks up a prompt and returns the hit with the chunks that must be loaded for
        it, none for a hit of start_token or less. It counts as a lookup; start_token and
        block_hashes are as for that. Up to vLLM 0.26 an engine lowers a hit of all tokens; ask
        load_mask for the chunks of the lowered hit."""
        prompt = Prompt(token_len, block_hashes, start_token)
        frames = self._command(PLAN, *prompt.frames_from(), timeout=timeout)
        if len(frames) != 2:
            raise BadReply(f"plan with {len(frames)} frames behind the status")
        return Plan(*self._hit_of(frames[0], prompt.token_len), _decode_masks(frames[1]))

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
        request = Request(PING, encode(PING, payload), MAX_DOCUMENT, is_about_pool=False)
        if done(self._retry.exchange(request, self._call_timeout(timeout))) != [payload]:
            raise BadReply("ping came back with another payload")

    def stat(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Returns the counters of the server and of the client's pool."""
        request = Request(STAT, encode(STAT), self._handshake.max_document)
        return decode_object("stat", done(self._retry.exchange(request, self._call_timeout(timeout))))

    @property
    def pool_reply(self) -> dict[str, Any] | None:
        """What the server said of the pool when it was last told: its name, digest,
        alignment and the other fields of the reply. None before that, and if the server
        has refused the pool since."""
        return self._handshake.pool_reply

    def check_pool(self, *, timeout: float | None = None) -> dict[str, Any] | None:
        """Tells the server the pool, unless the connection is in it, and returns
        pool_reply. Raises a RefusedError if the server does not have it."""
        self._retry.exchange(PING_IN_POOL, self._call_timeout(timeout))
        return self.pool_reply

    def _command(
        self, name: bytes, *frames: bytes, timeout: float | None = None, resend: bool = True
    ) -> list[bytes]:
        """Exchanges a request whose reply begins with 01, and returns the rest."""
        request = Request(name, encode(name, *frames), _MAX_REPLY)
        return done(self._retry.exchange(request, self._call_timeout(timeout), resend=resend))

    def _call_timeout(self, timeout: float | None) -> float:
        """Returns the timeout of a call, in seconds."""
        return self._timeout if timeout is None else check_timeout(timeout)

    def _lookup(self, prompt: Prompt, timeout: float, *, resend: bool = True, waits: bool = False) -> LookupResult:
        """Asks for a hit from the start of the prompt; a server that knows no starts, for one of the whole prompt.
        Without resend a lookup that is refused as busy raises Busy at once, and delays no other request. With waits
        nobody waits for it."""
        deadline = time.monotonic() + timeout
        name, frames = LOOKUP, prompt.frames
        if prompt.start_token and (not prompt.hashes_before or self._retry.knows(LOOKUP_FROM)):
            name, frames = LOOKUP_FROM, prompt.frames_from
        limit = _HIT_SIZE + _BOUNDARY_SIZE * self._handshake.num_groups
        request = Request(name, encode(name, *frames()), limit, True)
        try:
            reply = self._retry.exchange(request, timeout, resend=resend, waits=waits)
        except UnknownRequest:
            if name == LOOKUP or not prompt.hashes_before:
                raise
            if self._log.is_due("starts"):
                self._logger.info("hitline at %s knows no start_token: it is asked for whole prompts", self.address)
            return self._lookup(prompt, max(deadline - time.monotonic(), 0.0), resend=resend, waits=waits)
        if len(reply) != 1:
            raise BadReply(f"a hit of {len(reply)} frames")
        return self._hit_of(reply[0], prompt.token_len)

    def _hit_of(self, frame: bytes, token_len: int) -> LookupResult:
        """Returns the hit in a reply. Raises BadReply for one that no server of the release sends, or that no prompt
        of token_len tokens can have."""
        release = self._handshake.release
        hit, boundaries = result = _decode_hit(frame, release)
        if hit > token_len:
            raise BadReply(f"a hit of {hit} tokens for a prompt of {token_len}")
        if hit and not boundaries and release in _WITH_BOUNDARIES:
            raise BadReply(f"a hit of {hit} tokens without a tail boundary, of vLLM {release}")
        # The block at a tail boundary has the hit's last token, so a boundary is at the hit or behind it.
        for group, boundary in enumerate(boundaries):
            if boundary.group_id != group or boundary.num_tokens < hit:
                raise BadReply(f"for group {group} of {len(boundaries)}, a hit of {hit} tokens has {boundary}")
        return result

    def _lookup_or_zero(self, prompt: Prompt, timeout: float, waits: bool = False) -> LookupResult:
        """Returns the hit of a prompt: whatever is raised is a failure."""
        try:
            return self._lookup(prompt, timeout, waits=waits)
        except Exception as error:
            return self._zero(error)

    def _zero(self, error: Exception) -> LookupResult:
        """The hit of a lookup that failed: called while error is handled."""
        if self._raise_errors:
            raise error
        self._log.failure("lookup at %s failed and counts as a hit of 0 tokens: %s", self.address, error)
        return LookupResult(0)

    def _reset(self, timeout: float) -> bool:
        try:
            self._command(RESET, timeout=timeout)
        except Exception as error:
            return self._not_reset(error)
        return True

    def _not_reset(self, error: Exception) -> bool:
        """What a reset that failed returns: called while error is handled."""
        if self._raise_errors:
            raise error
        self._log.failure("reset at %s failed: %s", self.address, error)
        return False


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
        prompt = Prompt(token_len, block_hashes, start_token, hashes_before)
        return self._lookup_or_zero(prompt, self._call_timeout(timeout))

    def reset(self, *, timeout: float | None = None) -> bool:
        """Makes the server forget every block; tells whether it did."""
        return self._reset(self._call_timeout(timeout))


class LookupKeyClient(_Requests):
    """Has the methods and arguments of vLLM's lookup client.

    With vllm lookup returns what the client of that release returns: the hit as a number up to
    0.28, a LookupResult from 0.29 on. Without it that is a number, of whichever server.

    Lookups with non_block run one after the other on one worker thread, which starts
    with the first of them and ends with close.
    """

    # What lookup returns from vLLM 0.29.0 on.
    _result_type: Callable[..., Any] = LookupResult
    _boundary_type: Callable[..., Any] = TailKeyBoundary

    def _begin_work(self) -> None:
        self._worker = Worker("hitline-lookup")
        self._pending: dict[str, Task[LookupResult]] = {}
        self._pending_lock = threading.Lock()

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
        prompt = functools.partial(Prompt, token_len, block_hashes, start_token, hashes_before)
        result = self._find(req_id, prompt, non_block, self._timeout)
        return None if result is None else self._in_form(result)

    def _find(
        self, req_id: str, make_prompt: Callable[[], Prompt], non_block: bool, timeout: float
    ) -> LookupResult | None:
        """Returns the hit of the prompt, or of the pending lookup of req_id. With non_block it returns None until that
        is done."""
        task = self._pending.get(req_id)
        if task is None:
            prompt = make_prompt()
            if not non_block:  # nothing is gained by handing over what is waited for
                return self._lookup_or_zero(prompt, timeout)
            try:
                task = self._begin(req_id, prompt, timeout)
            except Exception as error:  # the client is closed
                return self._zero(error)
        if non_block and not task.is_done:
            return None
        try:
            return task.result()
        except Exception as error:
            return self._zero(error)
        finally:
            with self._pending_lock:
                if self._pending.get(req_id) is task:
                    del self._pending[req_id]

    def _begin(self, req_id: str, prompt: Prompt, timeout: float) -> Task[LookupResult]:
        """Has the worker ask, unless another thread has begun a lookup of req_id."""
        with self._pending_lock:
            task = self._pending.get(req_id)
            if task is None:
                task = self._pending[req_id] = self._worker.submit(self._lookup_or_zero, prompt, timeout, True)
        return task

    def _in_form(self, result: LookupResult) -> Any:
        """Returns what lookup returns in the engine's release."""
        if self._vllm not in _WITH_BOUNDARIES:
            return result.hit_length
        hit, boundaries = result
        return self._result_type(hit, tuple(itertools.starmap(self._boundary_type, boundaries)))

    def discard(self, req_id: str) -> None:
        """Drops the pending lookup of req_id, if there is one. If it is running, its
        answer is thrown away."""
        task = self._pending.pop(req_id, None)
        if task is not None:
            task.cancel(HitlineError("the lookup was discarded"))

    def reset(self, *, timeout: float | None = None) -> bool:
        """Makes the server forget every block, after the lookups that are pending;
        tells whether it did."""
        timeout = self._call_timeout(timeout)
        try:
            return self._worker.submit(self._reset, timeout).result()
        except Exception as error:
            return self._not_reset(error)

    def close(self) -> None:
        """Cancels the pending lookups, ends the worker and closes the connection, within a second."""
        deadline = time.monotonic() + _CLOSE_TIMEOUT
        self._worker.stop()
        self._retry.close(deadline)
        self._worker.join(max(0.0, deadline - time.monotonic()))
        self._pending.clear()


def _decode_hit(frame: bytes, vllm: str = "") -> LookupResult:
    """Decodes a hit of a release, or of any if that is empty. Up to vLLM 0.28 it has no tail
    boundaries."""
    if len(frame) % _BOUNDARY_SIZE != _HIT_SIZE or len(frame) > _HIT_SIZE and vllm in _WITHOUT_BOUNDARIES:
        raise BadReply(f"a hit of {len(frame)} bytes, want {_HIT_SIZE} and, from 0.29.0 on, {_BOUNDARY_SIZE} a group")
    hit, *tail = struct.unpack(f">{len(frame) // 4}I", frame)
    return LookupResult(hit, tuple(map(TailKeyBoundary, tail[::2], tail[1::2])))


class Prompt:
    """A prompt that can be looked up from a start. Hashes before the start are checked when they are needed."""

    __slots__ = ("_before", "blob", "count", "hashes_before", "size", "start_token", "token_len")

    def __init__(
        self,
        token_len: int,
        block_hashes: Sequence[bytes],
        start_token: int = 0,
        hashes_before: int = 0,
        is_uniform: bool = False,
    ) -> None:
        """is_uniform: see join_keys."""
        self.token_len = _number("token_len", token_len, 32)
        self.start_token = start_token
        self.hashes_before = hashes_before
        if start_token != 0 or hashes_before != 0:
            self._check_start()
            if hashes_before:
                self._before, block_hashes = _split("block_hashes", block_hashes, hashes_before)
        self.count, self.size, self.blob = join_keys("block_hashes", block_hashes, is_uniform)

    def _check_start(self) -> None:
        self.start_token = _number("start_token", self.start_token, 32)
        self.hashes_before = _number("hashes_before", self.hashes_before, 32)
        if self.start_token > self.token_len:
            raise ValueError(f"start_token is {self.start_token}, must be at most token_len, {self.token_len}")
        if self.hashes_before and not self.start_token:
            raise ValueError(f"hashes_before is {self.hashes_before}, must be 0 without a start_token")

    def frames(self) -> tuple[bytes, bytes, bytes]:
        """Those of a lookup of the whole prompt."""
        size, blob = self.size, self.blob
        if self.hashes_before:
            _, size, blob = join_keys("block_hashes", self._before)
            if self.blob and size != self.size:
                raise ValueError(f"block_hashes has hashes of {size} and of {self.size} bytes: all must have one length")
            blob += self.blob
        return self.token_len.to_bytes(4, "big"), size.to_bytes(2, "big"), blob

    def frames_from(self) -> tuple[bytes, bytes, bytes]:
        """Those of a request that begins at the start."""
        tokens = self.token_len.to_bytes(4, "big") + self.start_token.to_bytes(4, "big")
        return tokens, self.size.to_bytes(2, "big"), self.blob


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


def _split(name: str, keys: Sequence[bytes], count: int) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Returns copies of the first keys and of the others."""
    try:
        before, behind = keys[:count], keys[count:]
        if len(before) == count:
            return before, behind
    except (LookupError, TypeError):
        raise _wrong_keys(name, keys) from None
    raise ValueError(f"hashes_before is {count}, but {name} has {len(before)}")


def keys_frames(name: str, keys: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The two frames that carry keys: their length, and all of them joined."""
    count, size, blob = join_keys(name, keys)
    if not count:
        raise ValueError(f"{name} is empty")
    return size.to_bytes(2, "big"), blob


def join_keys(name: str, keys: Sequence[bytes], is_uniform: bool = False) -> tuple[int, int, bytes]:
    """Returns how many keys there are, the bytes of each, and all of them joined. is_uniform tells that the caller
    knows them to be of one length: counting them takes longer than joining them."""
    try:
        count, blob = len(keys), b"".join(keys)
        size = len(keys[0]) if count else 0
    except (LookupError, TypeError):
        raise _wrong_keys(name, keys) from None
    if not count and isinstance(keys, (str, *_BYTES)):
        raise _wrong_keys(name, keys)
    # Of arrays and views of larger items, len counts these.
    if len(blob) != count * size or size > _MAX_HASH or count and not size:
        raise _wrong_keys(name, keys)
    if not is_uniform and operator.countOf(map(len, keys), size) != count:  # as fast as can be: there are thousands
        raise _wrong_keys(name, keys)
    return count, size, blob


def _wrong_keys(name: str, keys: Sequence[bytes]) -> Exception:
    """The error of what is no sequence of bytes of one length."""
    if not isinstance(keys, Sequence) or isinstance(keys, (str, *_BYTES)):
        return TypeError(f"{name} is {type(keys).__name__}, must be a list of bytes")
    for i, key in enumerate(keys):
        if not isinstance(key, _BYTES):
            advice = ", as bytes.fromhex returns" if isinstance(key, str) else ""
            return TypeError(f"{name}[{i}] is {type(key).__name__}, must be bytes{advice}")
        if isinstance(key, memoryview) and not (key.c_contiguous and key.nbytes == len(key)):
            return TypeError(f"{name}[{i}] is a memoryview of {key.nbytes} bytes as {key.shape}, must be bytes")
    size = len(keys[0])
    odd = next((i for i, key in enumerate(keys) if len(key) != size), 0)
    return ValueError(
        f"{name}[{odd}] has {len(keys[odd])} bytes and {name}[0] has {size}: "
        f"all must have the same length, 1 to {_MAX_HASH} bytes"
    )


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
