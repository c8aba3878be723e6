"""What a client says on each new connection before its requests: its token, and the pool that they are about.

A client that wants to know of restarts asks for the server's instance as well. One of an engine's release that says no
pool asks which releases the server's own pool fits, before its first lookup.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hitline.connection import DONE, MAX_DOCUMENT, Connection, Endpoint, Request, Token, encode
from hitline.errors import (
    BadReply,
    Busy,
    ConnectionFailed,
    FailureLog,
    NotAllowed,
    PoolDiffers,
    RefusedError,
    WrongRelease,
    decode_object,
    string,
)
from hitline.retry import Retry

AUTH = b"auth"
PING = b"ping"
POOL = b"pool"
STAT = b"stat"

# Needs the pool as well, unlike other pings.
PING_IN_POOL = Request(PING, encode(PING, b""), MAX_DOCUMENT)

# For how long a refusal of a pool or a token is taken to hold on a connection, in seconds.
# That of a pool that differs holds as long as the connection.
_RETRY = 10.0

# Servers accept as many groups in descriptions. The replies to pool and stat grow with the groups.
_MAX_GROUPS = 4096
_DOCUMENT_PER_GROUP = 2 << 10  # bytes


class Instance(NamedTuple):
    """One run of a server. The memory index of a new one is empty."""

    id: str  # random, 16 hexadecimal digits
    start_time: str  # RFC 3339, UTC
    version: str  # of the server
    protocol: int  # number of the wire, see docs/protocol.md


class Handshake:
    """Prepares connections, one at a time."""

    def __init__(
        self,
        vllm: str,
        token: Token,
        on_instance: Callable[[Instance], object] | None,
        log: FailureLog,
    ) -> None:
        """vllm is the engine's release, empty if servers of any may be asked. on_instance is called with the first
        Instance, and with each that differs from the one before."""
        self.backend = ""  # the store of the pool's blocks, as the server has named it last
        self.pool_reply: dict[str, Any] | None = None  # to the pool as it was told last
        self.release = vllm  # that replies must fit: the engine's, or that of the server's pool; empty: any
        self.vllm = vllm
        self.check_pool: Callable[[dict[str, Any]], None] = lambda reply: None  # raises if a pool cannot be used
        self._token = token
        self._on_instance = on_instance
        self._instances: dict[Endpoint, str] = {}  # id of the last one of each
        self._log = log
        self.is_list = False  # whether there are several servers, which must not have the pool in memory
        self.set_pool(None)

    def set_pool(self, pool: Mapping[str, Any] | None) -> None:
        """Sets the pool of a client that has no connection yet."""
        self._pool = _encode_pool(pool)  # empty: the server's own
        self.num_groups = _num_groups(pool)

    @property
    def max_document(self) -> int:
        """Bytes that the replies to pool and stat may have."""
        return MAX_DOCUMENT + _DOCUMENT_PER_GROUP * self.num_groups

    def prepare(self, retry: Retry, connection: Connection, request: Request, deadline: float) -> None:
        """Says what must be said on a connection before a request. Raises a RefusedError or WrongRelease if it cannot
        be used for that, and again until the server may be asked again."""
        if not connection.authenticated:
            self._authenticate(retry, connection, deadline)
        if self._on_instance is not None and not connection.instance_known:
            self._ask_instance(retry, connection, deadline)
        if self._pool and request.is_about_pool and not connection.in_pool:
            self._enter_pool(retry, connection, deadline)
        elif self.vllm and not self._pool and request.is_lookup:
            self._check_release(retry, connection, deadline)
        connection.is_ready = connection.in_pool or not self._pool and (not self.vllm or request.is_lookup)

    def _authenticate(self, retry: Retry, connection: Connection, deadline: float) -> None:
        """Sends the token, if there is one. A file of it is read each time."""
        _raise_refusal(connection, AUTH)
        try:
            token = self._token.read()
        except ConnectionFailed as error:
            retry.back_off(str(error))
            raise
        if token:
            endpoint = connection.endpoint
            assert connection.sock is not None
            if endpoint.host and not endpoint.is_tls:
                self._token.warn_of_plain_text(connection.sock, endpoint.address, "tls", self._log.logger)
            try:
                done(retry.ask(connection, Request(AUTH, encode(AUTH, token), MAX_DOCUMENT), deadline))
            except RefusedError as error:
                if not isinstance(error, Busy):
                    connection.refused[AUTH] = error, time.monotonic() + _RETRY
                raise
        connection.authenticated = True

    def _ask_instance(self, retry: Retry, connection: Connection, deadline: float) -> None:
        """Calls on_instance if the server is another instance than the last."""
        try:
            instance = _decode_instance(retry.ask(connection, Request(PING, encode(PING), MAX_DOCUMENT), deadline))
        except NotAllowed:
            instance = None
        connection.instance_known = True
        if instance is None or instance.id == self._instances.get(connection.endpoint):
            return
        self._instances[connection.endpoint] = instance.id
        assert self._on_instance is not None
        try:
            self._on_instance(instance)
        except Exception:
            self._log.logger.exception("on_instance failed for hitline at %s", connection.endpoint.address)

    def _enter_pool(self, retry: Retry, connection: Connection, deadline: float) -> None:
        _raise_refusal(connection, POOL)
        self.pool_reply, self.release = None, self.vllm
        try:
            # A server that has too many pools is busy for longer than an engine can wait.
            request = Request(POOL, encode(POOL, self._pool), self.max_document)
            reply = decode_object("pool", done(retry.ask(connection, request, deadline, resend=False)))
            _check_described(reply)
            if self.vllm:
                self._compare_release(string(reply, "vllm"))
            if self.is_list and string(reply, "backend") == "memory":
                raise PoolDiffers("its blocks are in its memory, so each server of the list has others; give one address")
            self.check_pool(reply)
        except (RefusedError, WrongRelease) as error:
            lasts = isinstance(error, (PoolDiffers, WrongRelease))
            connection.refused[POOL] = error, math.inf if lasts else time.monotonic() + _RETRY
            raise
        self.pool_reply, self.backend = reply, string(reply, "backend")
        self.release = self.vllm or string(reply, "vllm").partition(", ")[0]
        connection.in_pool = True

    def _check_release(self, retry: Retry, connection: Connection, deadline: float) -> None:
        """Asks once which releases the server's pool fits, and compares each time."""
        if connection.fitting is None:
            request = Request(STAT, encode(STAT), self.max_document)
            stat = decode_object("stat", done(retry.ask(connection, request, deadline)))
            connection.fitting, self.backend = string(stat, "vllm"), string(stat, "backend")
        self._compare_release(connection.fitting)

    def _compare_release(self, fitting: str) -> None:
        """Raises WrongRelease if vllm is none of the releases that a pool fits, joined with ", "."""
        if self.vllm in fitting.split(", "):
            return
        found = " or ".join(fitting.rsplit(", ", 1)) or "an unknown release"
        raise WrongRelease(
            f"the engine is vLLM {self.vllm}, but the server's pool is for vLLM {found}: "
            f'set pool.vllm: "{self.vllm}" in the server\'s configuration'
        )


def _raise_refusal(connection: Connection, name: bytes) -> None:
    """Raises why the server has refused a request, while that holds."""
    error, until = connection.refused.get(name, (None, 0.0))
    if error is not None and time.monotonic() < until:
        raise error.with_traceback(None)


def done(frames: list[bytes]) -> list[bytes]:
    """Returns what is behind the status 01 of a reply."""
    if frames[0] != DONE:
        raise BadReply(f"status {frames[0][:16].hex() or 'without a byte'}, want 01")
    return frames[1:]


def _decode_instance(frames: list[bytes]) -> Instance:
    """Returns the instance that a reply to a ping names."""
    named = decode_object("ping", done(frames))
    protocol = named.get("protocol")
    instance = string(named, "instance")
    if not instance or type(protocol) is not int:
        raise BadReply("ping without an instance and a number of the protocol")
    return Instance(instance, string(named, "start_time"), string(named, "version"), protocol)


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


def pool_key(pool: Mapping[str, Any] | None) -> bytes:
    """Returns what a pool is known by: its name, else its description, from which that follows. Empty for the server's
    own."""
    if not pool:
        return b""
    name = pool.get("name")
    if isinstance(name, str) and name:
        return name.encode("utf-8", "surrogatepass")
    described = {key: value for key, value in pool.items() if key not in ("name", "client")}
    return json.dumps(described, sort_keys=True).encode() if described else b""


def _num_groups(pool: Mapping[str, Any] | None) -> int:
    """How many groups a pool has at most."""
    if pool is None or pool.keys() <= {"name", "client"}:  # it is not described
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
