"""Makes vLLM's MooncakeStoreConnector ask a hitline server.

vLLM calls register in each of its processes. If HITLINE_ADDRESS is not set it does
nothing. Otherwise the class that the connector's scheduler side uses for lookups is
replaced, in the module that defines it and in the one that imports it by name, now or
as soon as they are imported. HITLINE_TIMEOUT bounds each lookup in seconds.
With HITLINE_ADDRESS=auto the process that looks up runs a server of its own; an engine with
enable_lookup false looks up nothing, and keeps vLLM's own client. To another
server the client sends the token of the file HITLINE_TOKEN_FILE. At a tls:// address it trusts
the authorities of the file HITLINE_TLS_CA, and presents the certificate of HITLINE_TLS_CERT with
the key of HITLINE_TLS_KEY. A refused token, or a file of it that cannot be read, is as a server
that cannot be reached.

The replacement has the methods of the engine's release and returns what they return:
from 0.29.0 on vLLM's own MooncakeLookupResult. The release is vllm.__version__, or
HITLINE_VLLM for a build of vLLM that is no release.

When the scheduler side has been built, the engine's pool is described to the server, and
again on each new connection; HITLINE_POOL_NAME adds a name. If the pool cannot be described,
the server is asked for the pool of that name, without one for its own. If the server's pool
differs, the engine does not start. With HITLINE_ON_MISMATCH=miss it starts, and lookups are
hits of 0. So they are while there is no server, while it does not serve the pool for another
reason, and if a pool without a description is of another release.

A lookup begins where the engine's own cache ends: what lies before that counts as present, since
the engine loads only what lies behind it. With HITLINE_LOOKUP=whole it begins at token 0, as
vLLM's own. A request of which the engine has at least as many tokens as a hit could have is not
looked up.

What is replaced must have the shape that it has in that release. If it has another one,
the import of that module fails with UnsupportedVLLM: an engine does not start with half
a replacement, nor quietly without it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import operator
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

from hitline import engine_connector, engine_keys, engine_pool
from hitline.client import (
    DEFAULT_TIMEOUT,
    MAX_TIMEOUT,
    VLLM_RELEASES,
    WHOLE,
    Instance,
    LookupKeyClient,
    LookupResult,
    PoolDiffers,
    Start,
    WrongRelease,
    _string,
    is_since,
    parse_address,
)
from hitline.engine_connector import Wrapper
from hitline.load_failures import LoadTrackingClient
from hitline.lookup_stats import MeasuredClient
from hitline.own_server import OwnServer, WrongConfiguration, find_program
from hitline.probe import ProbingClient
from hitline.remembered_hits import RememberingClient, max_hit
from hitline.renewals import RenewingClient
from hitline.variables import warn_of_misspelt

__all__ = ["UnsupportedVLLM", "register"]

# A child of vLLM's logger, whose handlers and level it shares.
logger = logging.getLogger("vllm.hitline")

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
MODULES = (PACKAGE + ".worker", PACKAGE + ".scheduler")
DATA = PACKAGE + ".data"
CLASS = "LookupKeyClient"
SCHEDULER_CLASS = "MooncakeStoreScheduler"
WORKER_CLASS = "MooncakeStoreWorker"

# Of a method, the names of its parameters, self left out, and whether they have a default.
_Parameters = list[tuple[str, bool]]


# Classes of the module DATA from 0.29.0 on, which results are made of.
RESULTS: dict[str, _Parameters] = {
    "MooncakeLookupResult": [("hit_length", False), ("tail_key_boundaries", True)],
    "TailKeyBoundary": [("group_id", False), ("num_tokens", False)],
}

# The methods of the scheduler side that are wrapped, of the class SCHEDULER_CLASS.
SCHEDULER_METHODS: dict[str, _Parameters] = {
    "__init__": [("vllm_config", False), ("kv_cache_config", False)],
    "get_num_new_matched_tokens": [("request", False), ("num_computed_tokens", False)],
    "update_state_after_alloc": [("request", False), ("blocks", False), ("num_external_tokens", False)],
}

# The value of HITLINE_ADDRESS for a server of the engine's own.
AUTO = "auto"

# How long the engine's start waits for its own server, in seconds.
READY_TIMEOUT = 5.0

# How long the engine's start waits for the reply to the description of its pool, in seconds; as
# long as for a lookup if that is more.
START_TIMEOUT = 1.0

# How long a lookup may take if HITLINE_TIMEOUT is not set, in seconds: three times the longest
# recorded one of as many tokens as TIMEOUT_TOKENS, at a tensor-parallel size of 8. Longer prompts
# may take longer in proportion.
LOOKUP_TIMEOUT = 0.2
TIMEOUT_TOKENS = 30_000

ON_MISMATCH = ("fail", "miss")

# Where lookups begin: where the engine's own cache ends, or at token 0.
LOOKUPS = ("local", "whole")

# The workers in this process. Each has the kv_transfer_config it was built with as
# _hitline_transfer.
_workers: weakref.WeakSet[Any] = weakref.WeakSet()


class _Settings(NamedTuple):
    address: str  # AUTO if program is not empty
    program: str  # path of hitline for a server of the engine's own, "" for none
    timeout: float | None  # of a lookup, in seconds; None: LOOKUP_TIMEOUT
    release: str
    on_mismatch: str  # one of ON_MISMATCH
    pool_name: str  # "" for none
    lookup: str = LOOKUPS[0]


def _shape(release: str) -> dict[str, _Parameters]:
    """The methods of the class in a release."""
    tokens = "num_tokens" if is_since(release, "0.27.0") else "token_len"
    return {
        "__init__": [("vllm_config", False)],
        "lookup": [("req_id", False), (tokens, False), ("block_hashes", False), ("non_block", True)],
        "discard": [("req_id", False)],
        "reset": [],
        "close": [],
    }


def _result(release: str) -> str:
    """What lookup returns in a release, or None."""
    return "MooncakeLookupResult" if is_since(release, "0.29.0") else "int"


def _modules(release: str) -> list[str]:
    """The modules that a release must have."""
    return [*MODULES, DATA] if _result(release) in RESULTS else [*MODULES]


def _expected(release: str) -> str:
    tokens = _shape(release)["lookup"][1][0]
    text = (
        f"that of vLLM {release}, {CLASS}(vllm_config) in {MODULES[0]}, imported by name into {MODULES[1]}, with "
        f"lookup(req_id, {tokens}, block_hashes, non_block=False) -> {_result(release)} | None, "
        "discard(req_id), reset() and close(), and no other public methods, and there "
        f"{SCHEDULER_CLASS}(vllm_config, kv_cache_config) with "
        "get_num_new_matched_tokens(request, num_computed_tokens) and update_state_after_alloc(request, blocks, num_external_tokens)"
    )
    if DATA in _modules(release):
        text += (
            ", and MooncakeLookupResult(hit_length, tail_key_boundaries=()) and "
            f"TailKeyBoundary(group_id, num_tokens) in {DATA}"
        )
    return text


class UnsupportedVLLM(ImportError):
    """This vLLM has no lookup client of the shape that can be replaced."""


def register() -> None:
    """Entry point of the group vllm.general_plugins."""
    address = os.environ.get("HITLINE_ADDRESS")
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    if address != AUTO:  # the engine's own server refuses them
        warn_of_misspelt(os.environ, logger)
    if not address:
        return
    timeout, on_mismatch, pool_name, lookup = _timeout(), _on_mismatch(), _pool_name(), _lookup()
    program = ""
    if address == AUTO:
        program = find_program()
    else:
        _check_address(address)
    release = _release()
    for name in _modules(release):
        if not _exists(name):
            _refuse(f"there is no module {name}", _expected(release))
    replacement = _replacement(_Settings(address, program, timeout, release, on_mismatch, pool_name, lookup))
    present = [sys.modules[name] for name in MODULES if name in sys.modules]
    for module in present:
        _check(module, replacement)
        _check_scheduler(module, replacement)
    for module in present:
        _replace(module, replacement)
    sys.meta_path.insert(0, _Finder(replacement))


def _check_address(address: str) -> None:
    """Raises ValueError for what is no address, and for files of TLS that cannot be used."""
    try:
        parse_address(address)
    except ValueError as error:
        raise ValueError(f"HITLINE_ADDRESS is {address!r}, must be {AUTO} or an address: {error}") from None
    LookupKeyClient(address).close()  # connects to nothing


def _release() -> str:
    """The release of vLLM that runs here."""
    named = os.environ.get("HITLINE_VLLM", "")
    if named:
        if named not in VLLM_RELEASES:
            raise ValueError(f"HITLINE_VLLM is {named!r}, must be one of {', '.join(VLLM_RELEASES)}")
        return named
    if not _exists("vllm"):
        _refuse("there is no module vllm", f"vLLM, one of {', '.join(VLLM_RELEASES)}")
    version = getattr(importlib.import_module("vllm"), "__version__", None)
    # What follows + names the build: 0.28.0+cpu.
    release = version.partition("+")[0] if isinstance(version, str) else ""
    if release not in VLLM_RELEASES:
        advice = "set HITLINE_VLLM to the one whose connector this vLLM has, or "
        _refuse(f"vLLM is {version}", f"one of {', '.join(VLLM_RELEASES)}", advice)
    return release


def _timeout() -> float | None:
    text = os.environ.get("HITLINE_TIMEOUT")
    if text is None:
        return None
    try:
        timeout = float(text)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(
            f"HITLINE_TIMEOUT is {text!r}, must be a number of seconds, more than 0 and at most {MAX_TIMEOUT:.0f}"
        )
    return timeout


def _on_mismatch() -> str:
    text = os.environ.get("HITLINE_ON_MISMATCH", "") or ON_MISMATCH[0]
    if text not in ON_MISMATCH:
        raise ValueError(
            f"HITLINE_ON_MISMATCH is {text!r}, must be fail (the engine does not start) or miss (lookups are hits of 0)"
        )
    return text


def _lookup() -> str:
    text = os.environ.get("HITLINE_LOOKUP", "") or LOOKUPS[0]
    if text not in LOOKUPS:
        raise ValueError(
            f"HITLINE_LOOKUP is {text!r}, must be local (lookups begin where the engine's own cache ends) or whole"
        )
    return text


def _pool_name() -> str:
    name = os.environ.get("HITLINE_POOL_NAME", "")
    if len(name) > 255 or any(not "!" <= letter <= "~" or letter == '"' for letter in name):
        raise ValueError(
            f"HITLINE_POOL_NAME is {name!r}, must be 1 to 255 printable ASCII characters without spaces and quotes"
        )
    return name


class _EngineClient(LoadTrackingClient, RememberingClient, ProbingClient, MeasuredClient, RenewingClient):
    """The client of an engine, and the engine's own server if it has one. Both log by the logger
    vllm.hitline."""

    _logger = logger

    _settings: _Settings
    _release: str
    _original: Callable[[object], Any]  # vLLM's own class, as it is without this one
    _server_id = ""  # of the last instance
    _logged_concerns: Sequence[str] = ()  # see _concerns

    def __new__(cls, vllm_config: object) -> Any:
        """Returns vLLM's own client for an engine that looks up nothing, if it was to have a server of its own."""
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        if transfer is None or not cls._settings.program or engine_pool.looks_up(transfer, cls._release):
            return super().__new__(cls)
        logger.info("enable_lookup is false: no hitline is started, and vLLM's own client resets the store")
        return cls._original(vllm_config)

    def __init__(self, vllm_config: object) -> None:
        settings = self._settings
        server = OwnServer(settings.program, _store_settings(), logger) if settings.program else None
        address = f"ipc://{server.path}" if server else settings.address
        super().__init__(
            address,
            timeout=settings.timeout or LOOKUP_TIMEOUT,
            vllm=settings.release,
            on_instance=self._log_restart,
            token="" if server else None,  # the engine's own server has none to compare it with
        )
        self._key_prefixes: list[list[str]] | None = None  # of the engine's worker, if it is known
        self._num_computed = 0  # tokens that the engine has of the request that it looks up
        self._own_server = server
        difference = engine_connector.wrap(_SHUTDOWN)
        if difference:
            logger.warning("the client is not closed when the engine shuts down: %s", difference)
        if server is not None and not self._start_server(server):
            return
        logger.info("lookups are asked of hitline at %s, in the form of vLLM %s", address, settings.release)

    def _dial(self, deadline: float) -> None:
        server = self._own_server
        if server is not None:
            self._target = path = server.path
            self.address = f"ipc://{path}"
            server.check_socket(path)
        super()._dial(deadline)
        if server is not None:
            assert self._sock is not None
            server.check_peer(self._sock)

    def _start_server(self, server: OwnServer) -> bool:
        """Starts the engine's own server, and tells whether it did. If its configuration is
        refused, it raises WrongConfiguration, or with HITLINE_ON_MISMATCH=miss warns."""
        try:
            server.check()
        except WrongConfiguration as error:
            if self._settings.on_mismatch == "fail":
                raise
            logger.warning("lookups are hits of 0: %s", error)
            return False
        server.start()
        return True

    def _log_restart(self, instance: Instance) -> None:
        """Is called before the new instance is told the pool."""
        if self._server_id:
            self._remembered.clear()
            what = "hitline at %s was restarted at %s"
            if self._backend == "memory":
                logger.warning(
                    what + ": what it had in memory is not found until it is stored again",
                    self.address,
                    instance.start_time,
                )
            else:
                logger.info(what, self.address, instance.start_time)
        self._server_id = instance.id

    def _lookup_for_engine(self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool) -> Any:
        """Returns what lookup does, of a lookup that begins where the engine's own cache ends."""
        result: LookupResult | None
        try:
            start, hashes = self._begin_at(token_len, block_hashes)
            result = self._lookup_pending(req_id, token_len, hashes, non_block, start)
            if result is not None:
                self._renew(hashes, start.hashes_before, self._lookup_timeout(token_len))
        except Exception as error:  # of wrong arguments; vLLM's own client returns 0, and its engine goes on
            result = self._zero(error)
        return self._in_form(result)

    def _skip_lookup(self, request: Any) -> tuple[int, bool]:
        """Returns what a lookup without a hit does. What the engine has is renewed all the same."""
        self.discard(request.request_id)
        start, hashes = self._begin_at(request.num_tokens, request.block_hashes)
        self._renew(hashes, start.hashes_before, self._lookup_timeout(request.num_tokens))
        return 0, False

    def _begin_at(self, token_len: int, block_hashes: Sequence[bytes]) -> tuple[Start, Sequence[bytes]]:
        """Returns where a lookup begins, and the hashes of the blocks of token_len tokens."""
        reply = self._last_pool_reply() or {}
        pool = reply.get("pool") or {}
        block, hash_block = pool.get("scheduler_block_size"), pool.get("hash_block_size")
        if not self._num_computed or not block or not hash_block or not self._is_local(reply):
            return WHOLE, block_hashes
        token = min(self._num_computed, token_len) // block * block
        if not token or token // hash_block > len(block_hashes):
            return WHOLE, block_hashes
        # Up to 0.26 token_len is rounded down to whole blocks of the scheduler, and the hashes are not.
        if len(block_hashes) > token_len // hash_block:
            block_hashes = block_hashes[: token_len // hash_block]
        return Start(token, token // hash_block), block_hashes

    def _is_local(self, reply: Mapping[str, Any]) -> bool:
        """Whether lookups in a pool begin where the engine's own cache ends. reply is the server's, which
        describes the pool."""
        if self._settings.lookup != "local":
            return False
        if is_since(self._release, "0.28.0"):
            return True
        # With mamba groups these schedulers pass the largest of the groups' separate hits, and so
        # tokens that some of the groups do not have.
        return all(group.get("kind") != "mamba" for group in reply.get("groups") or ())

    def reset(self) -> bool:  # type: ignore[override]
        # HITLINE_TIMEOUT is for lookups: a server may have to walk a whole store.
        return super().reset(timeout=max(self._timeout, DEFAULT_TIMEOUT))

    def _lookup_timeout(self, token_len: int) -> float:
        return self._settings.timeout or LOOKUP_TIMEOUT * max(1.0, token_len / TIMEOUT_TOKENS)

    def close(self) -> None:
        super().close()
        if self._own_server is not None:
            self._own_server.close()

    def _start(self, vllm_config: Any, kv_cache_config: Any) -> None:
        """Describes the engine's pool to the server, before the first lookup. Raises
        PoolDiffers if the server's differs and the engine is not to start then."""
        server = self._own_server
        if server is not None and not server.started:
            return  # its configuration was refused
        if server is not None and not server.wait_ready(READY_TIMEOUT):
            logger.warning("the engine's own hitline is not ready after %.0f s, the engine goes on", READY_TIMEOUT)
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        self._saves = transfer is None or engine_pool.saves(transfer, self._release)
        self._set_pool(self._describe(vllm_config, kv_cache_config))
        self._key_prefixes = _worker_prefixes(vllm_config)
        try:
            reply = self.check_pool(timeout=max(self._timeout, START_TIMEOUT))
        except PoolDiffers as error:
            if self._settings.on_mismatch == "fail":
                self.close()
                raise PoolDiffers(f"hitline at {self.address}: {error}", error.refusal) from None
            self._logged_difference = str(error)  # this is the one time that it is logged
            logger.warning("lookups are hits of 0, hitline at %s: %s", self.address, error)
        except WrongRelease as error:
            self._log("lookup at %s failed and counts as a hit of 0 tokens: %s", error)
        except Exception as error:
            logger.warning(
                "lookups are hits of 0 until hitline at %s has been told the engine's pool: %s", self.address, error
            )
        else:
            assert reply is not None  # a description has been sent
            name = _string(reply, "name") or "as its own"
            logger.info("hitline at %s serves the engine's pool %s", self.address, name)

    def _describe(self, vllm_config: Any, kv_cache_config: Any) -> dict[str, Any]:
        """The engine's pool. If it has no description, its name: empty for the server's own pool."""
        name = {"name": self._settings.pool_name}
        try:
            description = engine_pool.describe(vllm_config, kv_cache_config, self._release)
            return {**description, **name} if self._settings.pool_name else description
        except engine_pool.UnsupportedPool as error:
            logger.warning("%s", error)
        except Exception as error:
            logger.warning("hitline cannot describe the engine's pool: %r", error)
        return name

    def _check_pool_reply(self, reply: dict[str, Any]) -> None:
        super()._check_pool_reply(reply)
        found = engine_keys.differences(self._key_prefixes, reply) if self._key_prefixes else []
        if found:
            parts = "; ".join(f"{d['field']} is {d['configured']}, the engine's is {d['described']}" for d in found[:8])
            raise PoolDiffers(
                f"the keys of the pool are not those of the engine's worker: {parts}", {"differences": found}
            )
        concerns = list(self._concerns(reply))
        if concerns != self._logged_concerns and self._may_log("concerns"):
            for text in concerns:
                if text not in self._logged_concerns:
                    logger.warning("hitline at %s %s", self.address, text)
            self._logged_concerns = concerns

    def _concerns(self, reply: dict[str, Any]) -> Iterator[str]:
        """What the engine will suffer of a pool as it is served, each as a text to be logged."""
        if refused := _string(reply, "reset_refused"):
            yield (
                "refuses to reset the store, so after reset_prefix_cache(reset_connector=True) the engine still loads "
                f"old blocks: {refused}"
            )
        waits, lasts = reply.get("backend_timeout_ms"), round(1000 * self._timeout)
        if type(waits) is int and waits >= lasts:
            yield (
                f"waits up to {waits} ms for its store, and the engine {lasts} ms for a lookup: a store that hangs looks "
                f"like a server that does. Set HITLINE_TIMEOUT above {waits / 1000}, or lower the backend's timeout"
            )
        if _dies_of_failed_loads(self._release, reply):
            yield (
                "has blocks in its memory that the store may have lost: an engine with several groups dies of a load "
                "that fails, up to vLLM 0.29; use hitline's backend mooncake"
            )

    def _may_exceed(self, num_tokens: int, num_computed_tokens: int) -> bool:
        """Whether a hit can be above what the engine has computed."""
        longest = max_hit(self._pool_reply, num_tokens)
        return longest is None or longest > num_computed_tokens

    def _fail_loads(self, block_ids: Iterable[int], req_ids: Iterable[str]) -> None:
        super()._fail_loads(block_ids, req_ids)
        if block_ids or req_ids:
            self._forget()  # the hits of other requests may have the same blocks


def _dies_of_failed_loads(release: str, reply: dict[str, Any]) -> bool:
    """Whether a hit that cannot be loaded may come, and ends the engine."""
    several = len(reply.get("groups") or ()) > 1
    return several and reply.get("backend") == "memory" and not is_since(release, "0.30.0")


def _store_settings() -> dict[str, str]:
    """Variables of the engine's own server, from the engine's configuration of Mooncake. The
    server itself reads the address of the master from that file."""
    try:
        config = importlib.import_module(MODULES[0]).MooncakeStoreConfig.load_from_config()
    except Exception:  # if the server needs the file, it says what is wrong with it
        return {}
    tenant = getattr(config, "tenant_id", None)  # before 0.28.0 there is none
    return {"HITLINE_BACKEND_MOONCAKE_TENANT": tenant} if isinstance(tenant, str) else {}


def _close_client(shutdown: Callable[..., Any]) -> Callable[..., Any]:
    """Closes the client, and so the engine's own server, before the connector shuts down."""

    def close_and_shutdown(self: Any) -> Any:
        client = engine_connector.client_of(self, _EngineClient)
        if client is not None and "_hitline_deleted" not in vars(self):
            client.close()
        return shutdown(self)

    return close_and_shutdown


def _keep_client(delete: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a connector that is deleted, so that its shutdown does not close the client: vLLM's
    __del__ calls shutdown. It may run in any thread, even inside a call of the client."""

    def __del__(self: Any) -> None:
        self._hitline_deleted = True
        delete(self)

    return __del__


# By name of the connector's method. They end an engine, and vLLM does not close the client.
_SHUTDOWN = {"shutdown": Wrapper(["self"], _close_client), "__del__": Wrapper(["self"], _keep_client)}


def _replacement(settings: _Settings) -> type[_EngineClient]:
    class HitlineLookupKeyClient(_EngineClient):
        _settings = settings
        _release = settings.release

        def lookup(  # type: ignore[override]
            self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool = False
        ) -> Any:
            return self._lookup_for_engine(req_id, token_len, block_hashes, non_block)

    if not is_since(settings.release, "0.27.0"):
        return HitlineLookupKeyClient

    class NumTokensLookupKeyClient(HitlineLookupKeyClient):
        def lookup(  # type: ignore[override]
            self, req_id: str, num_tokens: int, block_hashes: Sequence[bytes], non_block: bool = False
        ) -> Any:
            return self._lookup_for_engine(req_id, num_tokens, block_hashes, non_block)

    return NumTokensLookupKeyClient


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is its package there
        return False


class _Finder(MetaPathFinder):
    """Has a module's class replaced when the module has been executed."""

    def __init__(self, replacement: type[Any]) -> None:
        self.replacement = replacement

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Some loaders load more than one module, and what was imported by name
            # from a module before may be the replacement already.
            if module.__name__ == spec.name:
                if getattr(module, CLASS, None) is not self.replacement:
                    _check(module, self.replacement)
                _check_scheduler(module, self.replacement)
                _replace(module, self.replacement)

        loader.exec_module = exec_module


def _replace(module: ModuleType, replacement: type[Any]) -> None:
    found = getattr(module, CLASS)
    if found is not replacement:
        replacement._original = found
    setattr(module, CLASS, replacement)
    if module.__name__ == MODULES[1]:
        _wrap_scheduler(getattr(module, SCHEDULER_CLASS), replacement)
    else:
        _wrap_worker(getattr(module, WORKER_CLASS, None))


def _wrap_scheduler(cls: Any, replacement: type[Any]) -> None:
    """Has the engine's pool described when the scheduler side has been built, and lookups told what
    the engine has itself. Requests that no hit can help are not looked up."""
    build, match, alloc = cls.__init__, cls.get_num_new_matched_tokens, cls.update_state_after_alloc

    @functools.wraps(build)
    def __init__(self: Any, vllm_config: Any, kv_cache_config: Any) -> None:
        build(self, vllm_config, kv_cache_config)
        client = getattr(self, "client", None)
        if isinstance(client, replacement):
            client._start(vllm_config, kv_cache_config)

    @functools.wraps(match)
    def get_num_new_matched_tokens(self: Any, request: Any, num_computed_tokens: int) -> Any:
        client = self.client
        if not isinstance(client, replacement) or not getattr(self, "enable_lookup", True):
            return match(self, request, num_computed_tokens)
        client._num_computed = num_computed_tokens
        try:
            if not client._may_exceed(request.num_tokens, num_computed_tokens):
                return client._skip_lookup(request)
            return match(self, request, num_computed_tokens)
        finally:
            client._num_computed = 0

    @functools.wraps(alloc)
    def update_state_after_alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> Any:
        result = alloc(self, request, blocks, num_external_tokens)
        if num_external_tokens == 0:
            self.load_specs.pop(request.request_id, None)
        return result

    cls.__init__ = __init__
    cls.get_num_new_matched_tokens = get_num_new_matched_tokens
    # In a MultiConnector another child may load the request. These releases then save the hit, for which
    # they were given no blocks.
    if not is_since(replacement._release, "0.30.0"):
        cls.update_state_after_alloc = update_state_after_alloc


def _wrap_worker(cls: Any) -> None:
    """Has workers remembered."""
    build = getattr(cls, "__init__", None)
    if not inspect.isfunction(build):
        return

    @functools.wraps(build)
    def __init__(self: Any, vllm_config: Any, *more: Any, **named: Any) -> None:
        build(self, vllm_config, *more, **named)
        self._hitline_transfer = vllm_config.kv_transfer_config
        _workers.add(self)

    cls.__init__ = __init__


def _worker_prefixes(vllm_config: Any) -> list[list[str]] | None:
    """The key prefixes of the engine's worker, if it is in this process."""
    transfer = getattr(vllm_config, "kv_transfer_config", None)
    # vLLM's MultiConnector makes the scheduler's side and the worker's an equal configuration each,
    # with the identifier of the engine.
    for is_engines in (operator.is_, operator.eq):
        for worker in list(_workers):
            if is_engines(worker._hitline_transfer, transfer):
                return engine_keys.key_prefixes(worker)
    return None


def _check_scheduler(module: ModuleType, replacement: Any) -> None:
    """Refuses a module whose scheduler side cannot be wrapped."""
    if module.__name__ != MODULES[1]:
        return
    found = getattr(module, SCHEDULER_CLASS, None)
    for name, want in SCHEDULER_METHODS.items():
        method = getattr(found, name, None)
        if not inspect.isfunction(method):
            _refuse(f"in {module.__name__}, {SCHEDULER_CLASS} has no method {name}", _expected(replacement._release))
        if (_parameters(method) or [])[1:] != want:
            signature = inspect.signature(method)
            _refuse(f"in {module.__name__}, {SCHEDULER_CLASS} has {name}{signature}", _expected(replacement._release))


def _check(module: ModuleType, replacement: Any) -> None:
    """Refuses a module whose class cannot be replaced. Has replacement return the
    engine's own results."""
    release = replacement._release
    difference = _difference(getattr(module, CLASS, None), release)
    if difference:
        _refuse(f"in {module.__name__}, {difference}", _expected(release))
    if DATA not in _modules(release):
        return
    data = importlib.import_module(DATA)
    for name, parameters in RESULTS.items():
        found = getattr(data, name, None)
        if not isinstance(found, type):
            _refuse(f"in {DATA}, {name} is {'missing' if found is None else 'no class'}", _expected(release))
        if _parameters(found) != parameters:
            _refuse(f"in {DATA}, {name} is built with {inspect.signature(found)}", _expected(release))
    replacement._result_type = data.MooncakeLookupResult
    replacement._boundary_type = data.TailKeyBoundary


def _difference(found: object, release: str) -> str:
    """Tells how found differs from the class in a release; empty if it does not."""
    if not isinstance(found, type):
        return f"{CLASS} is missing" if found is None else f"{CLASS} is no class"
    shape = _shape(release)
    for name, _ in inspect.getmembers(found, callable):
        if not name.startswith("_") and name not in shape:
            return f"{CLASS} has a method {name}"
    for name, want in shape.items():
        method = getattr(found, name, None)
        if not inspect.isfunction(method):
            return f"{CLASS} has no method {name}"
        signature = inspect.signature(method)
        if (_parameters(method) or [])[1:] != want:
            return f"{CLASS} has {name}{signature}"
        returns = signature.return_annotation
        if name == "lookup" and returns is not signature.empty:
            # Of types the text names their modules as well.
            text = re.sub(r"\w+\.", "", _text(returns))
            if text not in (f"{_result(release)} | None", f"Optional[{_result(release)}]"):
                return f"lookup of {CLASS} returns {_text(returns)}"
    return ""


def _parameters(function: Callable[..., Any]) -> _Parameters | None:
    """The names of the parameters and whether they have a default; None if some cannot
    be given by position."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        return None
    return [(p.name, p.default is not p.empty) for p in parameters]


def _text(annotation: object) -> str:
    return annotation.strip("'\"") if isinstance(annotation, str) else str(annotation)


_refused: set[str] = set()


def _refuse(found: str, expected: str, advice: str = "") -> NoReturn:
    text = (
        f"hitline cannot take the place of vLLM's lookup client: {found}; expected is {expected}; "
        f"{advice}unset HITLINE_ADDRESS to go without hitline."
    )
    if text not in _refused:
        _refused.add(text)
        logger.error("%s", text)
    raise UnsupportedVLLM(text)
