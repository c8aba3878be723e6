"""Asks a server over HTTP which engines have most of a prompt, at its router.listen: see docs/router.md.

A client keeps one connection. Its methods may be called by several threads, one of which is served at a
time. A connection that the server has closed meanwhile is replaced. Nothing is asked again after another error.
In a forked process a client connects anew."""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import json
import os
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hitline.client import _number, join_keys
from hitline.connection import MAX_DOCUMENT, Token, check_timeout, check_tls, default_tls, forkable
from hitline.errors import (
    BadReply,
    ConnectionFailed,
    NotAllowed,
    NotAuthenticated,
    RefusedError,
    RequestTimeout,
    logger,
    printable,
)

__all__ = ["Holder", "Holders", "HoldersClient"]

# Longest answer that is read, in bytes: some 300 for each engine, and 21 for each block of kv_hints.
_MAX_REPLY = 32 << 20

# Numbers are signed ones of 64 bits to the server.
_NUMBER_BITS = 63

# Fields of a request that are named otherwise here.
_ARGUMENTS = {"tenant_id": "tenant", "instance_id": "engine", "dp_rank": "rank"}

# The fields of a request that are numbers. Others are texts.
_NUMBERS = ("block_size", "num_tokens", "dp_rank")

# The refusals that have a type of their own, by their code.
_REFUSALS = {"unauthorized": NotAuthenticated, "forbidden": NotAllowed}


@dataclass(frozen=True)
class Holder:
    """What one engine has of a prompt."""

    engine: str
    tokens: int  # leading tokens that it has, in all media together
    media: dict[str, int]  # those that one medium alone has: GPU, CPU, DISK and so on; predicted
    ranks: dict[int, int]  # those that each of its data-parallel ranks has


@dataclass(frozen=True)
class Holders:
    """Which engines have most of a prompt. More fields may come."""

    holders: tuple[Holder, ...]  # the longest prefix first; those that have nothing are left out
    loadable_tokens: int | None = None  # leading tokens that the shared store can load; None if not asked, or unknown
    unsure: dict[str, tuple[str, ...]] = field(default_factory=dict)  # engines that may have other blocks: stale, …
    loadable_unknown: str | None = None  # why loadable_tokens is unknown
    unsure_ranks: dict[str, dict[int, tuple[str, ...]]] = field(default_factory=dict)  # unsure by data-parallel rank
    # By the engine to fetch from: what to put into a request to another engine, as kv_hints.
    kv_hints: dict[str, dict[str, Any]] = field(default_factory=dict)


class HoldersClient:
    """A client of a server's router.listen."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8557",
        *,
        timeout: float = 10.0,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Takes http://host:port (IPv6 in brackets) or https://host:port. timeout bounds each request in
        seconds, connecting included; looking up a host's name is the system's and is not bounded.

        token, token_file and tls are as for Client, tls for addresses of https://."""
        check_timeout(timeout)
        check_tls(tls)
        self.address = address
        self._is_tls, self._host, self._port = _parse(address)
        self._token = Token(token, token_file)
        _check_token(self._token.text)
        self._tls = tls  # None: of the environment
        if self._is_tls:
            self._tls_context()  # the files are there
        elif tls is not None:
            raise ValueError(f"tls is for an address of https://, not for {address!r}")
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        forkable.add(self)

    def _after_fork(self) -> None:
        connection, self._connection = self._connection, None
        self._lock = threading.Lock()
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):  # it was closed
                os.close(connection.sock.detach())  # close would wait for another thread that reads an answer

    def __enter__(self) -> HoldersClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, after a request that is under way."""
        with self._lock:
            self._drop()

    def holders(
        self,
        block_hashes: Sequence[bytes] | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        model: str = "",
        tenant: str = "",
        engine: str = "",
        block_size: int = 0,
        loadable: bool = False,
        last_known: bool = False,
        kv_hints: bool = False,
        num_tokens: int = 0,
        lora_name: str = "",
        lora_path: str = "",
        cache_salt: str = "",
    ) -> Holders:
        """Returns which engines have most of a prompt. It is given by block_hashes, those of its
        whole blocks, all of one length, 8 bytes or more; or by token_ids, which the server
        hashes, with lora_name, lora_path and cache_salt if the request has them. model and tenant may be
        left out if the server has one model; block_size is compared with the model's. engine asks about one
        engine alone. With last_known an engine whose events may be missing counts for what it had last. With
        kv_hints the answer says how another engine can fetch the prefix. With loadable
        the shared store is asked as well, which counts as a lookup and grants leases as one:
        block_hashes must be whole digests then, of a prompt of num_tokens tokens, or of its whole blocks."""
        flags = {"loadable": loadable, "last_known": last_known, "kv_hints": kv_hints}
        fields = {
            "model": model, "tenant_id": tenant, "instance_id": engine, "block_size": block_size, "num_tokens": num_tokens,
            "lora_name": lora_name, "lora_path": lora_path, "cache_salt": cache_salt,
        }  # fmt: skip
        return _decode(self._post("/query", _encode(block_hashes, token_ids, fields, flags)))

    def predict(
        self,
        engine: str,
        block_hashes: Sequence[bytes] | None = None,
        *,
        token_ids: Sequence[int] | None = None,
        rank: int = 0,
        model: str = "",
        tenant: str = "",
        block_size: int = 0,
        lora_name: str = "",
        lora_path: str = "",
        cache_salt: str = "",
    ) -> None:
        """Says that a prompt, given as to holders, was sent to a data-parallel rank of an engine: its blocks count for
        the engine until its events say so, or for the server's predict_ttl. It needs the permission store."""
        fields = {
            "model": model, "tenant_id": tenant, "instance_id": engine, "dp_rank": rank, "block_size": block_size,
            "lora_name": lora_name, "lora_path": lora_path, "cache_salt": cache_salt,
        }  # fmt: skip
        self._post("/predict", _encode(block_hashes, token_ids, fields, {}))

    def followed(self, model: str = "", tenant: str = "") -> set[str]:
        """Returns the names of the engines that the server follows, of all models of the tenant or of one."""
        answer = self._request("GET", "/services", b"")
        try:
            return {
                str(source["instance_id"])
                for source in json.loads(answer)["sources"]
                if source["tenant_id"] == (tenant or "default") and model in ("", source["model"])
            }
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadReply(f"services: {printable(repr(error))} in the answer") from error

    def _post(self, path: str, body: bytes) -> bytes:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: bytes) -> bytes:
        """Sends a body, and returns that of the answer."""
        deadline = time.monotonic() + self._timeout
        lock = self._lock  # a process that is forked meanwhile gets another one
        if not lock.acquire(timeout=self._timeout):
            raise RequestTimeout(f"{self.address}: other threads' requests took {self._timeout} s")
        try:
            while True:
                is_new = self._connection is None or self._connection.sock is None
                try:
                    return self._exchange(method, path, body, deadline)
                except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                    self._drop()
                    if is_new:
                        raise
        except (socket.timeout, TimeoutError):
            self._drop()
            raise RequestTimeout(f"{self.address}: no answer within {self._timeout} s") from None
        except (http.client.BadStatusLine, BrokenPipeError, ConnectionResetError) as error:  # of a new connection
            self._drop()
            what = "the server does not speak HTTP; give the address of router.listen, with https:// if it has TLS"
            raise ConnectionFailed(f"{self.address}: {what}") from error
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise ConnectionFailed(f"{self.address}: {printable(str(error))}") from error
        except RefusedError:
            raise
        except BaseException:
            self._drop()  # it may be in the middle of an answer
            raise
        finally:
            lock.release()

    def _exchange(self, method: str, path: str, body: bytes, deadline: float) -> bytes:
        headers: dict[str, Any] = {"Content-Type": "application/json"}
        token = self._token.read()
        if token:
            _check_token(token)
            headers["Authorization"] = b"Bearer " + token
        connection = self._connected(deadline)
        if token and not self._is_tls:
            self._token.warn_of_plain_text(connection.sock, self.address, "https", logger)
        connection.sock.settimeout(_remaining(deadline))
        connection.request(method, path, body, headers)
        connection.response_class = functools.partial(_Response, deadline)  # type: ignore[assignment]
        with connection.getresponse() as response:
            answer = bytearray()
            # read would wait for each of its parts
            while (response.length or 0) <= _MAX_REPLY and (chunk := response.read1(1 << 20)):
                answer += chunk
                if len(answer) > _MAX_REPLY:
                    break
        if len(answer) + (response.length or 0) > _MAX_REPLY:
            raise BadReply(f"{self.address}: an answer of more than {_MAX_REPLY >> 20} MiB")
        if response.length:
            raise http.client.IncompleteRead(bytes(answer), response.length)
        if response.status != http.client.OK:
            raise _refusal(self.address, response, answer)
        return bytes(answer)

    def _connected(self, deadline: float) -> http.client.HTTPConnection:
        if self._connection is None or self._connection.sock is None:  # http.client closes it where the server says so
            seconds = _remaining(deadline)
            if self._is_tls:
                made: http.client.HTTPConnection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=seconds, context=self._tls_context()
                )
            else:
                made = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
            self._connection = made
            made.connect()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tls_context(self) -> ssl.SSLContext:
        return self._tls or default_tls()


def _encode(
    block_hashes: Sequence[bytes] | None,
    token_ids: Sequence[int] | None,
    fields: Mapping[str, Any],
    flags: Mapping[str, bool],
) -> bytes:
    """Returns the body of a request about a prompt, without the fields that say nothing."""
    if (block_hashes is None) == (token_ids is None):
        raise ValueError("want block_hashes or token_ids, and not both")
    body: dict[str, Any] = {name: True for name, value in flags.items() if value}
    for name, value in fields.items():
        argument = _ARGUMENTS.get(name, name)
        if name in _NUMBERS:
            value = _number(argument, value, _NUMBER_BITS)
        elif not isinstance(value, str):
            raise TypeError(f"{argument} is {value!r:.80}, must be a str")
        if value:
            body[name] = value
    if token_ids is not None:
        body["token_ids"] = _numbers("token_ids", token_ids)
    elif block_hashes is not None:
        _, size, blob = join_keys("block_hashes", block_hashes)
        hashes = blob.hex()
        body["seq_hashes"] = [hashes[i : i + 2 * size] for i in range(0, len(hashes), 2 * size or 1)]
    return json.dumps(body).encode()


def _numbers(name: str, numbers: Sequence[int]) -> list[int]:
    """Returns numbers that the server can read."""
    try:
        if isinstance(numbers, (bytes, bytearray, memoryview)):  # of a text that was not tokenized
            raise TypeError
        found = list(numbers)
    except TypeError:
        raise TypeError(f"{name} is {numbers!r:.80}, must be a list of int") from None
    if set(map(type, found)) <= {int} and min(found, default=0) >= 0 and max(found, default=0) < 1 << _NUMBER_BITS:
        return found
    return [_number(f"{name}[{i}]", number, _NUMBER_BITS) for i, number in enumerate(found)]


def _parse(address: str) -> tuple[bool, str, int]:
    """Returns whether an address is of https://, the host and the port."""
    if not isinstance(address, str):
        raise TypeError(f"address is {address!r}, must be a str such as 'http://127.0.0.1:8557'")
    try:
        parts = urllib.parse.urlsplit(address)
        is_plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port and is_plain:
            return parts.scheme == "https", parts.hostname, parts.port
    except ValueError:
        pass  # of a port that is none
    raise ValueError(f"address is {address!r}, must be http://host:port or https://host:port")


def _check_token(token: bytes) -> None:
    """Raises ValueError for a token that a header cannot have. http.client's error would have the token."""
    if b"\n" in token or b"\r" in token or b"\0" in token:
        raise ValueError("the token has a line break or a zero byte")


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


class _Response(http.client.HTTPResponse):
    """An answer that must have come by a deadline, headers included."""

    def __init__(self, deadline: float, sock: socket.socket, *arguments: Any, **named: Any) -> None:
        super().__init__(sock, *arguments, **named)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock, deadline))


class _Reader(io.RawIOBase):
    """Reads a socket by way of raw, its file, until a deadline."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_remaining(self._deadline))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _refusal(address: str, response: http.client.HTTPResponse, answer: bytearray) -> RefusedError:
    """Returns what an answer with another status than 200 says."""
    try:
        error = json.loads(answer[:MAX_DOCUMENT])["error"]
        code, text = printable(str(error["code"])), printable(str(error["message"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return RefusedError(f"{address}: {response.status} {printable(response.reason)}")
    return _REFUSALS.get(code, RefusedError)(f"{address}: {text} ({code})", {"refusal": code})


def _decode(answer: bytes) -> Holders:
    """Decodes the answer to /query and /query_by_hash."""
    try:
        document = json.loads(answer)
        loadable, unknown = document.get("loadable_tokens"), document.get("loadable_unknown")
        unsure = {engine: _texts(why) for engine, why in document.get("unsure", {}).items()}
        by_rank = {
            engine: {_rank(rank): _texts(why) for rank, why in ranks.items()}
            for engine, ranks in document.get("unsure_ranks", {}).items()
        }
        hints = document.get("kv_hints", {})
        if not isinstance(hints, dict):
            raise TypeError("kv_hints is no object")
        holders = []
        for engine, fields in document["instances"].items():
            media = {"GPU": fields["gpu"], "CPU": fields["cpu"], "DISK": fields["disk"], **fields.get("media", {})}
            ranks = {_rank(rank): _count(count) for rank, count in fields["dp"].items()}
            counts = {medium: _count(count) for medium, count in media.items()}
            holders.append(Holder(engine, _count(fields["longest_matched"]), counts, ranks))
        tokens = None if loadable is None else _count(loadable)
        return Holders(tuple(holders), tokens, unsure, unknown and str(unknown), by_rank, hints)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise BadReply(f"holders: {printable(repr(error))} in the answer") from error


def _texts(reasons: object) -> tuple[str, ...]:
    """Returns the reasons why an engine is unsure."""
    if not isinstance(reasons, list):
        raise TypeError(f"{reasons!r:.80} is no list of reasons")
    return tuple(map(str, reasons))


def _count(value: object) -> int:
    """Returns a number of tokens."""
    if type(value) is not int or not 0 <= value < 1 << _NUMBER_BITS:
        raise ValueError(f"{value!r:.80} is no number of tokens")
    return value


def _rank(name: str) -> int:
    """Returns the data-parallel rank of a name."""
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise ValueError(f"{name!r:.80} is no rank")
    return int(name)
