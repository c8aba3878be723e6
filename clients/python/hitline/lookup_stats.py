"""Feeds lookups to vLLM's own statistics, as its operation lookup_exists.

vLLM's worker records each lookup that it answers: its duration, how many keys of the store it
asked for, and whether it failed. With the plug-in the worker answers none. So LookupStats
records the lookups of the scheduler's side. The scheduler asks the connector of this process
for statistics at every step, and is given them.
"""

from __future__ import annotations

import collections
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hitline import engine_connector
from hitline.engine_connector import Wrapper, step_of
from hitline.lookup_steps import Step

if TYPE_CHECKING:
    from hitline.engine_client import EngineClient

__all__ = ["LookupStats", "num_keys"]

OPERATION = "lookup_exists"

# The module that has the class of the statistics. It is in the connector's package.
METRICS = engine_connector.CONNECTOR.rpartition(".")[0] + ".metrics"

# The oldest records are dropped beyond this number. A scheduler that does not step takes none.
MAX_RECORDS = 4096


class LookupStats(Step):
    """The lookups that were asked of the server. Any thread may add one, the scheduler's takes them."""

    def __init__(self, client: EngineClient) -> None:
        # Of each lookup the seconds from its call to its end, waiting included; whether it failed; and for num_keys the
        # reply to the pool, the number of tokens and that of hashes.
        self.records: collections.deque[tuple[float, bool, Mapping[str, Any] | None, int, int]]
        self.records = collections.deque(maxlen=MAX_RECORDS)
        difference = engine_connector.wrap(_WRAPPERS)
        if difference:
            client._logger.warning("vLLM's statistics have no lookups: %s", difference)

    def take(self) -> Any:
        """The statistics since the last call, in the worker's class; None if there are none."""
        stats = None
        while self.records:
            seconds, failed, pool, num_tokens, num_hashes = self.records.popleft()
            keys = num_keys(pool, num_tokens, num_hashes)
            if keys:
                stats = stats or importlib.import_module(METRICS).MooncakeStoreConnectorStats()
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
        lookups = step_of(self, LookupStats)
        return stats if stats is not None or lookups is None else lookups.take()

    return get_kv_connector_stats


_WRAPPERS = {"get_kv_connector_stats": Wrapper(["self"], _add_lookups)}
