"""Feeds lookups to vLLM's own statistics, as its operation lookup_exists.

vLLM's worker records each lookup that it answers: its duration, how many keys of the store it
asked for, and whether it failed. With the plug-in the worker answers none. So MeasuredClient
records the lookups of the scheduler's side. The scheduler asks the connector of this process
for statistics at every step, and is given them.
"""

from __future__ import annotations

import collections
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hitline import engine_connector
from hitline.client import Hashes, LookupKeyClient, LookupResult
from hitline.engine_connector import Wrapper, client_of

__all__ = ["MeasuredClient", "num_keys"]

OPERATION = "lookup_exists"

# The module that has the class of the statistics. It is in the connector's package.
METRICS = engine_connector.CONNECTOR.rpartition(".")[0] + ".metrics"

# The oldest records are dropped beyond this number. A scheduler that does not step takes none.
MAX_RECORDS = 4096


class _Record(NamedTuple):
    seconds: float  # from the call of the lookup to its end, waiting included
    keys: int  # see num_keys
    failed: bool


class MeasuredClient(LookupKeyClient):
    """A client whose lookups are added to the statistics of the connector of this process."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Any thread that looks up appends, the scheduler's thread removes.
        self._records: collections.deque[_Record] = collections.deque(maxlen=MAX_RECORDS)
        difference = engine_connector.wrap(_WRAPPERS)
        if difference:
            self._logger.warning("vLLM's statistics have no lookups: %s", difference)

    def _lookup(self, token_len: int, hashes: Hashes, *arguments: Any, **named: Any) -> LookupResult:
        started = time.perf_counter()
        failed = True
        try:
            result = super()._lookup(token_len, hashes, *arguments, **named)
            failed = False
            return result
        finally:
            keys = num_keys(self._pool_reply, token_len, len(hashes))
            if keys:
                self._records.append(_Record(time.perf_counter() - started, keys, failed))

    def _take_stats(self) -> Any:
        """The statistics since the last call, in the worker's class; None if there are none."""
        if not self._records:
            return None
        stats = importlib.import_module(METRICS).MooncakeStoreConnectorStats()
        while self._records:
            seconds, keys, failed = self._records.popleft()
            status, failed_keys = ("error", keys) if failed else ("ok", 0)
            stats.record_operation(OPERATION, seconds, keys, status=status, num_failed_keys=failed_keys)
        return stats


def num_keys(pool: Mapping[str, Any] | None, num_tokens: int, num_hashes: int) -> int:
    """How many keys vLLM's worker would ask for in a lookup: each position of each group, once
    for each of its ranks. Positions that no hit can need are counted too; there are some in
    groups with a window shorter than the alignment. pool is the server's reply that describes
    it; if it is None, the number of hashes is returned."""
    if pool is None:
        return num_hashes
    try:
        return _num_keys(pool, num_tokens, num_hashes)
    except (KeyError, TypeError, ZeroDivisionError):  # the reply of another version
        return num_hashes


def _num_keys(pool: Mapping[str, Any], num_tokens: int, num_hashes: int) -> int:
    alignment = pool["alignment"]
    tokens = num_tokens // alignment * alignment
    fine_grained = alignment < pool["pool"]["scheduler_block_size"]
    keys = 0
    for group in pool["groups"]:
        size, stride = (alignment, 1) if fine_grained else (group["block_size"], group["stride"])
        keys += group["ranks"] * min(-(-tokens // size), num_hashes // stride)
    return max(keys, 0)


def _add_lookups(get_stats: Callable[..., Any]) -> Callable[..., Any]:
    def get_kv_connector_stats(self: Any) -> Any:
        stats = get_stats(self)
        client = client_of(self, MeasuredClient)
        return stats if stats is not None or client is None else client._take_stats()

    return get_kv_connector_stats


_WRAPPERS = {"get_kv_connector_stats": Wrapper(["self"], _add_lookups)}
