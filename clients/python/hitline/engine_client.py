"""The client of a vLLM engine: what its lookups go through, the engine's pool, and the engine's own server.

A lookup goes through steps, in this order; the first that has the hit ends it:

    failed_loads  a request whose load has failed gets a hit of 0    load_failures.py
    remembered    the hit that was found a moment ago                remembered_hits.py
    asking        the server's, now or in the worker's thread        here
    stats         what was asked is counted for vLLM                 lookup_stats.py
    renewals      what lies before the start is kept in the store    renewals.py

A server that is away or hangs costs one timeout: see retry.py.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hitline import engine_connector, engine_keys, engine_pool
from hitline.client import DEFAULT_TIMEOUT, Instance, LookupKeyClient, LookupResult, Prompt, is_since
from hitline.client_info import describe_client
from hitline.connection import Endpoint
from hitline.engine_connector import Wrapper
from hitline.errors import PoolDiffers, WrongRelease, string
from hitline.load_failures import FailedLoads
from hitline.lookup_stats import LookupStats
from hitline.lookup_steps import EngineLookup, ServedPool, Step
from hitline.own_server import OwnServer, WrongConfiguration
from hitline.remembered_hits import RememberedHits
from hitline.renewals import Renewals
from hitline.retry import Retry

__all__ = ["EngineClient", "Settings"]

# A child of vLLM's logger, whose handlers and level it shares.
logger = logging.getLogger("vllm.hitline")

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


class Settings(NamedTuple):
    """What the plug-in's variables say."""

    address: str  # auto if program is not empty
    program: str  # path of hitline for a server of the engine's own, "" for none
    timeout: float | None  # of a lookup, in seconds; None: LOOKUP_TIMEOUT
    release: str
    on_mismatch: str  # fail, miss or own
    pool_name: str  # "" for none
    lookup: str = "local"  # or whole
    instance_id: str = ""  # "" for the engine's own


class Asking(Step):
    """Asks the server: at once, or in the worker's thread, until whose answer the lookup is pending."""

    def __init__(self, client: EngineClient) -> None:
        self.sent: dict[str, EngineLookup] = {}  # that are pending, by request
        self._client = client

    def find(self, lookup: EngineLookup) -> LookupResult | None:
        req_id, sent = lookup.req_id, self.sent.pop(lookup.req_id, lookup)
        if not lookup.is_answered_by(sent):
            self.discard(req_id)
            sent = lookup
        if sent is lookup:
            lookup.asked_at = self._client.clock()
        lookup.sent = sent
        timeout = self._client.lookup_timeout(lookup.num_tokens)
        result = self._client._find(req_id, lookup.prompt, lookup.non_block, timeout)
        if result is None:
            self.sent[req_id] = sent
        return result

    def discard(self, req_id: str) -> None:
        self.sent.pop(req_id, None)
        LookupKeyClient.discard(self._client, req_id)

    def forget(self) -> None:
        for req_id in list(self.sent):
            self.discard(req_id)


class OwnEndpoint(Endpoint):
    """Where the engine's own server listens: somewhere else after each start."""

    def __init__(self, server: OwnServer) -> None:
        super().__init__(f"ipc://{server.path}")
        self._server = server

    def targets(self) -> list[tuple[int, Any]]:
        self._target = path = self._server.path
        self.address = f"ipc://{path}"
        self._server.check_socket(path)
        return super().targets()

    def check_peer(self, sock: Any) -> None:
        self._server.check_peer(sock)


class EngineClient(LookupKeyClient):
    """The client of an engine, and the engine's own server if it has one. Both log by the logger
    vllm.hitline. Lookups, resets and discards come from the scheduler's thread."""

    _logger = logger

    settings: Settings
    original: Callable[[object], Any]  # vLLM's own class, as it is without this one

    def __new__(cls, vllm_config: object) -> Any:
        """Returns vLLM's own client for an engine that looks up nothing, if it was to have a server of its own."""
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        settings = cls.settings
        if transfer is None or not settings.program or engine_pool.looks_up(transfer, settings.release):
            return super().__new__(cls)
        logger.info("enable_lookup is false: no hitline is started, and vLLM's own client resets the store")
        return cls.original(vllm_config)

    def __init__(self, vllm_config: object) -> None:
        settings = self.settings
        self._server_ids: dict[Endpoint, str] = {}  # of the last instance of each
        self.own_server = server = OwnServer(settings.program, _store_settings(), logger) if settings.program else None
        super().__init__(
            f"ipc://{server.path}" if server else settings.address,
            timeout=settings.timeout or LOOKUP_TIMEOUT,
            vllm=settings.release,
            on_instance=self._log_restart,
            token="" if server else None,  # the engine's own server has none to compare it with
        )
        self._handshake.check_pool = self._check_pool
        self._concerns: list[str] = []  # those that were logged last
        self.clock = time.monotonic
        self.key_prefixes: list[list[str]] | None = None  # of the engine's worker, if it is known
        self.num_computed = 0  # tokens that the engine has of the request that it looks up
        self.pool = ServedPool({}, is_local=False)  # the engine's, as the server has described it last
        self.failed_loads = FailedLoads(self)
        self.remembered = RememberedHits(self)
        self.asking = Asking(self)
        self.stats = LookupStats(self)
        self.renewals = Renewals(self)
        self.steps = [self.failed_loads, self.remembered, self.asking, self.stats, self.renewals]
        self._finders = [step.find for step in self.steps if type(step).find is not Step.find]
        self._told = [step.found for step in self.steps if type(step).found is not Step.found]
        difference = engine_connector.wrap(_SHUTDOWN)
        if difference:
            logger.warning("the client is not closed when the engine shuts down: %s", difference)
        if server is not None and not self._start_server(server):
            return
        address = self.address if server else settings.address
        logger.info("lookups are asked of hitline at %s, in the form of vLLM %s", address, settings.release)

    def _new_retry(self, endpoints: Sequence[Endpoint]) -> Retry:
        return super()._new_retry(endpoints if self.own_server is None else [OwnEndpoint(self.own_server)])

    def _start_server(self, server: OwnServer) -> bool:
        """Starts the engine's own server, and tells whether it did. If its configuration is
        refused, it raises WrongConfiguration, or with another HITLINE_ON_MISMATCH than fail warns."""
        try:
            server.check()
        except WrongConfiguration as error:
            if self.settings.on_mismatch == "fail":
                raise
            logger.warning("%s: %s", self._without, error)
            return False
        server.start()
        return True

    def close(self) -> None:
        super().close()
        if self.own_server is not None:
            self.own_server.close()

    # Lookups.

    def lookup(  # type: ignore[override]
        self, req_id: str, num_tokens: int, block_hashes: Sequence[bytes], non_block: bool = False
    ) -> Any:
        """Returns what vLLM's own client does, of a lookup that begins where the engine's own cache ends."""
        result: LookupResult | None = None
        try:
            start = 0, 0
            if self.num_computed:
                start, block_hashes = self._begin_at(num_tokens, block_hashes)
            lookup = EngineLookup(req_id, num_tokens, block_hashes, start, non_block)
            for find in self._finders:
                result = find(lookup)
                if result is not None:
                    break
            else:
                return None
            for tell in self._told:
                tell(lookup, result)
        except Exception as error:  # of wrong arguments; vLLM's own client returns 0, and its engine goes on
            result = self._zero(error)
        return self._in_form(result)

    def skip_lookup(self, request: Any, num_computed: int) -> bool:
        """Whether no hit can be above what the engine has of a request. What it has is renewed all the same."""
        if self.pool.max_hit(request.num_tokens) > num_computed:
            return False
        self.discard(request.request_id)
        (_, hashes_before), block_hashes = self._begin_at(request.num_tokens, request.block_hashes)
        self.renewals.renew(block_hashes, hashes_before, request.num_tokens)
        return True

    def _begin_at(self, num_tokens: int, block_hashes: Sequence[bytes]) -> tuple[tuple[int, int], Sequence[bytes]]:
        """Returns at which token a lookup begins and behind how many hashes, and the hashes of num_tokens tokens."""
        if not self.pool.is_local:
            return (0, 0), block_hashes
        block, hash_block = self.pool.scheduler_block_size, self.pool.hash_block_size
        token = min(self.num_computed, num_tokens) // block * block
        if not token or token // hash_block > len(block_hashes):
            return (0, 0), block_hashes
        # Up to 0.26 num_tokens is rounded down to whole blocks of the scheduler, and the hashes are not.
        if len(block_hashes) > num_tokens // hash_block:
            block_hashes = block_hashes[: num_tokens // hash_block]
        return (token, token // hash_block), block_hashes

    def lookup_timeout(self, num_tokens: int) -> float:
        return self.settings.timeout or LOOKUP_TIMEOUT * max(1.0, num_tokens / TIMEOUT_TOKENS)

    def _lookup(self, prompt: Prompt, timeout: float, *, resend: bool = True, waits: bool = False) -> LookupResult:
        began, failed = time.perf_counter(), True
        try:
            result = super()._lookup(prompt, timeout, resend=resend, waits=waits)
            failed = False
            return result
        finally:
            seconds, num_hashes = time.perf_counter() - began, prompt.hashes_before + prompt.count
            self.stats.records.append((seconds, failed, self._handshake.pool_reply, prompt.token_len, num_hashes))

    def discard(self, req_id: str) -> None:
        """The engine calls this for each request that has finished."""
        for step in self.steps:
            step.discard(req_id)

    def forget(self) -> None:
        """Forgets what was found so far, also by lookups that are pending."""
        for step in self.steps:
            step.forget()

    def reset(self) -> bool:  # type: ignore[override]
        # HITLINE_TIMEOUT is for lookups: a server may have to walk a whole store.
        done = super().reset(timeout=max(self._timeout, DEFAULT_TIMEOUT))
        self.forget()
        return done

    def _reset(self, timeout: float) -> bool:
        return super()._reset(self._retry.wait_for_ping(timeout))

    # The engine's pool.

    @property
    def _without(self) -> str:
        """What follows if the server cannot serve the engine's pool, as a text."""
        return "vLLM's own client looks up" if self.settings.on_mismatch == "own" else "lookups are hits of 0"

    def start(self, vllm_config: Any, kv_cache_config: Any, key_prefixes: list[list[str]] | None) -> bool:
        """Describes the engine's pool to the server, before the first lookup. Returns False, closed, if the server
        cannot serve it and vLLM's own client is to look up then. Raises PoolDiffers if the engine is not to start."""
        server = self.own_server
        if server is not None and not server.started:  # its configuration was refused
            return not self._give_way()
        if server is not None and not server.wait_ready(READY_TIMEOUT):
            logger.warning("the engine's own hitline is not ready after %.0f s, the engine goes on", READY_TIMEOUT)
        transfer = getattr(vllm_config, "kv_transfer_config", None)
        self.renewals.saves = transfer is None or engine_pool.saves(transfer, self.settings.release)
        info = describe_client(vllm_config, self.settings.instance_id)
        self._set_pool({**self._describe(vllm_config, kv_cache_config), "client": info})
        self.key_prefixes = key_prefixes
        try:
            reply = self.check_pool(timeout=max(self._timeout, START_TIMEOUT))
        except PoolDiffers as error:
            if self.settings.on_mismatch == "fail":
                self.close()
                raise PoolDiffers(f"hitline at {self.address}: {error}", error.refusal) from None
            self._log.note_difference(str(error))  # this is the one time that it is logged
            logger.warning("%s, hitline at %s: %s", self._without, self.address, error)
            return not self._give_way()
        except WrongRelease as error:
            self._log.failure("lookup at %s failed and counts as a hit of 0 tokens: %s", self.address, error)
        except Exception as error:
            logger.warning(
                "lookups are hits of 0 until hitline at %s has been told the engine's pool: %s", self.address, error
            )
        else:
            assert reply is not None  # a description has been sent
            name = string(reply, "name") or "as its own"
            logger.info("hitline at %s serves the engine's pool %s", self.address, name)
        return True

    def _give_way(self) -> bool:
        """Closes the client if vLLM's own is to take its place, and tells whether it is."""
        if self.settings.on_mismatch != "own":
            return False
        self.close()
        return True

    def _describe(self, vllm_config: Any, kv_cache_config: Any) -> dict[str, Any]:
        """The engine's pool. If it has no description, its name: empty for the server's own pool."""
        name = {"name": self.settings.pool_name}
        try:
            description = engine_pool.describe(vllm_config, kv_cache_config, self.settings.release)
            return {**description, **name} if self.settings.pool_name else description
        except engine_pool.UnsupportedPool as error:
            logger.warning("%s", error)
        except Exception as error:
            logger.warning("hitline cannot describe the engine's pool: %r", error)
        return name

    def _check_pool(self, reply: dict[str, Any]) -> None:
        """Is called with the reply to the pool. Raises PoolDiffers if it names other keys than the engine's."""
        found = engine_keys.differences(self.key_prefixes, reply) if self.key_prefixes else []
        if found:
            parts = "; ".join(f"{d['field']} is {d['configured']}, the engine's is {d['described']}" for d in found[:8])
            raise PoolDiffers(
                f"the keys of the pool are not those of the engine's worker: {parts}", {"differences": found}
            )
        concerns = list(self._find_concerns(reply))
        if concerns != self._concerns and self._log.is_due("concerns"):
            for text in concerns:
                if text not in self._concerns:
                    logger.warning("hitline at %s %s", self.address, text)
            self._concerns = concerns
        self.pool = ServedPool(reply, self._is_local(reply))

    def _is_local(self, reply: Mapping[str, Any]) -> bool:
        """Whether lookups in a pool begin where the engine's own cache ends."""
        if self.settings.lookup != "local":
            return False
        if is_since(self.settings.release, "0.28.0"):
            return True
        # With mamba groups these schedulers pass the largest of the groups' separate hits, and so
        # tokens that some of the groups do not have.
        return all(group.get("kind") != "mamba" for group in reply.get("groups") or ())

    def _find_concerns(self, reply: dict[str, Any]) -> Iterator[str]:
        """What the engine will suffer of a pool as it is served, each as a text to be logged."""
        if refused := string(reply, "reset_refused"):
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
        if dies_of_failed_loads(self.settings.release, reply):
            yield (
                "has blocks in its memory that the store may have lost: an engine with several groups dies of a load "
                "that fails, up to vLLM 0.29; use hitline's backend mooncake"
            )

    def _log_restart(self, instance: Instance) -> None:
        """Is called before the new instance is told the pool."""
        endpoint = self._retry.endpoint
        if endpoint in self._server_ids:
            self.remembered.forget()
            what = "hitline at %s was restarted at %s"
            if self._handshake.backend == "memory":
                what += ": what it had in memory is not found until it is stored again"
                logger.warning(what, self.address, instance.start_time)
            else:
                logger.info(what, self.address, instance.start_time)
        self._server_ids[endpoint] = instance.id


def dies_of_failed_loads(release: str, reply: dict[str, Any]) -> bool:
    """Whether a hit that cannot be loaded may come, and ends the engine."""
    several = len(reply.get("groups") or ()) > 1
    return several and reply.get("backend") == "memory" and not is_since(release, "0.30.0")


def _store_settings() -> dict[str, str]:
    """Variables of the engine's own server, from the engine's configuration of Mooncake. The
    server itself reads the address of the master from that file."""
    try:
        module = engine_connector.CONNECTOR.rpartition(".")[0] + ".worker"
        config = importlib.import_module(module).MooncakeStoreConfig.load_from_config()
    except Exception:  # if the server needs the file, it says what is wrong with it
        return {}
    tenant = getattr(config, "tenant_id", None)  # before 0.28.0 there is none
    return {"HITLINE_BACKEND_MOONCAKE_TENANT": tenant} if isinstance(tenant, str) else {}


def _close_client(shutdown: Callable[..., Any]) -> Callable[..., Any]:
    """Closes the client, and so the engine's own server, before the connector shuts down."""

    def close_and_shutdown(self: Any) -> Any:
        client = engine_connector.client_of(self, EngineClient)
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
