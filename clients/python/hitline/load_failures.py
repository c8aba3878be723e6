"""Ends repeated lookups of a request whose hit the engine cannot load.

With vLLM's kv_load_failure_policy recompute a request whose load failed is scheduled
again, and its prompt is looked up again. If the store lost the blocks and the server still
reports them, hit and failure would alternate for ever. LoadTrackingClient returns a hit of
0 to such a request, from its first failed load until the engine discards it.

A load of MooncakeStoreConnector begins with update_state_after_alloc, which gives out the
blocks, and ends with the output that names the request in finished_recving. Until then the
blocks belong to this request. The load has failed if an output before that, or that one,

- has one of these blocks in invalid_block_ids: every release, one group; 0.30 also several;
- has the request in failed_recving: from 0.31 on, several groups.

With several groups an engine up to 0.29 dies of the first failed load, before the connector
is given the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hitline import engine_connector
from hitline.client import LookupKeyClient, LookupResult, Start
from hitline.engine_connector import Wrapper, client_of

__all__ = ["LoadTrackingClient"]

# The id of the block that stands for positions without one, in the tables of all requests.
NULL_BLOCK = 0


class LoadTrackingClient(LookupKeyClient):
    """A client that knows which loads are in progress and which requests had one fail.

    When it is built, it has the connector of this process report to it. All calls come
    from the scheduler's thread. Both collections have unfinished requests only.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.failed_loads = 0  # how many requests had a load fail
        self._loads: dict[str, frozenset[int]] = {}  # blocks of the loads in progress
        self._failed: set[str] = set()
        difference = engine_connector.wrap(_WRAPPERS)
        if difference:
            self._logger.warning(
                "hitline does not see failed loads, and kv_load_failure_policy recompute may repeat them for ever: %s",
                difference,
            )

    def _lookup_pending(
        self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool, start: Start
    ) -> LookupResult | None:
        if req_id in self._failed:
            return LookupResult(0, ())
        return super()._lookup_pending(req_id, token_len, block_hashes, non_block, start)

    def discard(self, req_id: str) -> None:
        """The engine calls this for each request that has finished."""
        self._loads.pop(req_id, None)
        self._failed.discard(req_id)
        super().discard(req_id)

    def _begin_load(self, req_id: str, block_ids: Iterable[int]) -> None:
        self._loads[req_id] = frozenset(block_ids) - {NULL_BLOCK}

    def _end_load(self, req_id: str) -> None:
        self._loads.pop(req_id, None)

    def _fail_loads(self, block_ids: Iterable[int], req_ids: Iterable[str]) -> None:
        """Fails the loads in progress that have one of the blocks, or one of the ids."""
        invalid = frozenset(block_ids)
        failed = {req_id for req_id, loaded in self._loads.items() if not invalid.isdisjoint(loaded)}
        failed.update(req_id for req_id in req_ids if req_id in self._loads)
        for req_id in sorted(failed - self._failed):
            self._failed.add(req_id)
            self.failed_loads += 1
            self._logger.warning(
                "request %s: the engine could not load blocks that hitline at %s reports as stored, "
                "so lookups of this request are hits of 0 until it ends; failed requests so far: %d",
                req_id,
                self.address,
                self.failed_loads,
            )


def _report_alloc(alloc: Callable[..., Any]) -> Callable[..., Any]:
    def update_state_after_alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> Any:
        result = alloc(self, request, blocks, num_external_tokens)
        client = client_of(self, LoadTrackingClient)
        if client is not None and num_external_tokens > 0:
            client._begin_load(request.request_id, [i for group in blocks.get_block_ids() for i in group])
        elif client is not None:
            client._end_load(request.request_id)
        return result

    return update_state_after_alloc


def _report_output(output: Callable[..., Any]) -> Callable[..., Any]:
    def update_connector_output(self: Any, connector_output: Any) -> Any:
        client = client_of(self, LoadTrackingClient)
        if client is not None:
            # Releases before 0.30 have no failed_recving.
            failed = getattr(connector_output, "failed_recving", None)
            client._fail_loads(connector_output.invalid_block_ids or (), failed or ())
            for req_id in connector_output.finished_recving or ():
                client._end_load(req_id)
        return output(self, connector_output)

    return update_connector_output


# By name of the connector's method.
_WRAPPERS = {
    "update_state_after_alloc": Wrapper(["self", "request", "blocks", "num_external_tokens"], _report_alloc),
    "update_connector_output": Wrapper(["self", "connector_output"], _report_output),
}
