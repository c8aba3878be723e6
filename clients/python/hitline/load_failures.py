"""Ends repeated lookups of a request whose hit the engine cannot load.

With vLLM's kv_load_failure_policy recompute a request whose load failed is scheduled
again, and its prompt is looked up again. If the store lost the blocks and the server still
reports them, hit and failure would alternate for ever. FailedLoads finds a hit of
0 for such a request, from its first failed load until the engine discards it.

A load of MooncakeStoreConnector begins with update_state_after_alloc, which gives out the
blocks, and ends with the output that names the request in finished_recving. Until then the
blocks belong to this request. The load has failed if an output before that, or that one,

- has one of these blocks in invalid_block_ids: every release, one group; 0.30 also several;
- has the request in failed_recving: from 0.31 on, several groups.

With several groups an engine up to 0.29 dies of the first failed load, before the connector
is given the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hitline import engine_connector
from hitline.client import LookupResult
from hitline.engine_connector import Wrapper, step_of
from hitline.lookup_steps import EngineLookup, Step

if TYPE_CHECKING:
    from hitline.engine_client import EngineClient

__all__ = ["FailedLoads"]

# The id of the block that stands for positions without one, in the tables of all requests.
NULL_BLOCK = 0


class FailedLoads(Step):
    """Knows which loads are in progress and which requests had one fail. Both collections have unfinished requests
    only. When it is built, it has the connector of this process report to it."""

    def __init__(self, client: EngineClient) -> None:
        self.count = 0  # how many requests had a load fail
        self.requests: set[str] = set()  # those that had one fail
        self.loads: dict[str, frozenset[int]] = {}  # blocks of the loads in progress
        self._client = client
        difference = engine_connector.wrap(_WRAPPERS)
        if difference:
            client._logger.warning(
                "hitline does not see failed loads, and kv_load_failure_policy recompute may repeat them for ever: %s",
                difference,
            )

    def find(self, lookup: EngineLookup) -> LookupResult | None:
        return LookupResult(0) if lookup.req_id in self.requests else None

    def discard(self, req_id: str) -> None:
        self.loads.pop(req_id, None)
        self.requests.discard(req_id)

    def begin_load(self, req_id: str, block_ids: Iterable[int]) -> None:
        self.loads[req_id] = frozenset(block_ids) - {NULL_BLOCK}

    def end_load(self, req_id: str) -> None:
        self.loads.pop(req_id, None)

    def fail(self, block_ids: Iterable[int], req_ids: Iterable[str]) -> None:
        """Fails the loads in progress that have one of the blocks, or one of the ids."""
        invalid, named = frozenset(block_ids), frozenset(req_ids)
        failed = {r for r, loaded in self.loads.items() if r in named or not invalid.isdisjoint(loaded)}
        for req_id in sorted(failed - self.requests):
            self.requests.add(req_id)
            self.count += 1
            self._client._logger.warning(
                "request %s: the engine could not load blocks that hitline at %s reports as stored, "
                "so lookups of this request are hits of 0 until it ends; failed requests so far: %d",
                req_id,
                self._client.address,
                self.count,
            )
        if invalid or named:
            self._client.forget()  # the hits of other requests may have the same blocks


def _report_alloc(alloc: Callable[..., Any]) -> Callable[..., Any]:
    def update_state_after_alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> Any:
        result = alloc(self, request, blocks, num_external_tokens)
        failed_loads = step_of(self, FailedLoads)
        if failed_loads is not None and num_external_tokens > 0:
            failed_loads.begin_load(request.request_id, [i for group in blocks.get_block_ids() for i in group])
        elif failed_loads is not None:
            failed_loads.end_load(request.request_id)
        return result

    return update_state_after_alloc


def _report_output(output: Callable[..., Any]) -> Callable[..., Any]:
    def update_connector_output(self: Any, connector_output: Any) -> Any:
        failed_loads = step_of(self, FailedLoads)
        if failed_loads is not None:
            # Releases before 0.30 have no failed_recving.
            failed = getattr(connector_output, "failed_recving", None)
            failed_loads.fail(connector_output.invalid_block_ids or (), failed or ())
            for req_id in connector_output.finished_recving or ():
                failed_loads.end_load(req_id)
        return output(self, connector_output)

    return update_connector_output


# By name of the connector's method.
_WRAPPERS = {
    "update_state_after_alloc": Wrapper(["self", "request", "blocks", "num_external_tokens"], _report_alloc),
    "update_connector_output": Wrapper(["self", "connector_output"], _report_output),
}
