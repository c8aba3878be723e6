"""Gives the hit of a lookup again if the same request is asked for again soon.

vLLM looks up the request at the head of its queue at every step for as long as there is no room
for it, and waits for each of these lookups. RememberedHits gives the hit that it found last,
and asks for it again in the client's worker thread.

A hit of all tokens that can be hit is asked for again after half of the longest time for which a
hit is given, which is a second, or half of the time for which the store keeps blocks that were
found. A smaller one is asked for again after 100 ms, since the missing blocks may be stored
meanwhile. A lookup that failed is remembered as what it counts as, a hit of 0.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hitline.client import LookupResult
from hitline.errors import Busy, ConnectionFailed, RefusedError, WrongRelease
from hitline.lookup_steps import EngineLookup, Step

if TYPE_CHECKING:
    from hitline.engine_client import EngineClient

__all__ = ["RememberedHits"]

# From which age on a hit that may grow is asked for again, in seconds; and how long after a
# lookup that failed the next is sent.
REFRESH_AFTER = 0.1


class RememberedHits(Step):
    """The last hit of each unfinished request. Times are those of the client's clock. Other threads call refresh,
    postpone and forget alone."""

    def __init__(self, client: EngineClient) -> None:
        self.hits: dict[str, EngineLookup] = {}  # by request: what the server was asked for
        self._client = client

    def find(self, lookup: EngineLookup) -> LookupResult | None:
        hit = self.hits.get(lookup.req_id)
        if hit is None:
            return None
        now = self._client.clock()
        if hit.key != lookup.key or now >= hit.asked_at + self._client.pool.max_age:
            self.discard(lookup.req_id)
            return None
        result = hit.result
        if now >= hit.refresh_at and not hit.refreshing:
            hit.block_hashes = list(lookup.block_hashes)
            self._begin_refresh(hit)
        return result

    def found(self, lookup: EngineLookup, result: LookupResult) -> None:
        hit = lookup.sent
        if hit is not None and hit.key == lookup.key:
            self.refresh(hit, result, hit.asked_at)
            self.hits[lookup.req_id] = hit

    def refresh(self, hit: EngineLookup, result: LookupResult, asked_at: float) -> None:
        """Sets what was found. It has no effect on a hit that has been dropped."""
        pool = self._client.pool
        after = pool.max_age / 2
        if result.hit_length < pool.max_hit(hit.num_tokens):
            after = min(after, REFRESH_AFTER)
        hit.refresh_at = asked_at + after
        hit.result = result  # first: the thread that looks up must not take the old one for a new one
        hit.asked_at, hit.refreshing = asked_at, False

    def postpone(self, hit: EngineLookup) -> None:
        """Has a hit asked for again later, since it could not be now."""
        hit.refresh_at, hit.refreshing = self._client.clock() + REFRESH_AFTER, False

    def discard(self, req_id: str) -> None:
        self.hits.pop(req_id, None)  # another thread may have cleared it

    def forget(self) -> None:
        self.hits.clear()

    def _begin_refresh(self, hit: EngineLookup) -> None:
        hit.refreshing = True
        deadline = time.monotonic() + self._client.lookup_timeout(hit.num_tokens)
        try:
            self._client._worker.submit(self._ask_again, hit, deadline)
        except ConnectionFailed:  # the client is closed
            self.postpone(hit)

    def _ask_again(self, hit: EngineLookup, deadline: float) -> None:
        """Asks for a hit again, in the worker's thread. The scheduler's lookups wait meanwhile, so a lookup that
        is refused as busy is not sent again."""
        client, asked_at = self._client, self._client.clock()
        timeout = deadline - time.monotonic()
        if timeout < client.lookup_timeout(hit.num_tokens) / 2:  # too little to tell a server that hangs
            self.postpone(hit)
            return
        try:
            result = client._lookup(hit.prompt(), timeout, resend=False, waits=True)
        except Exception as error:
            if isinstance(error, (RefusedError, WrongRelease)) and not isinstance(error, Busy):
                # What was found before may be another pool's.
                self.refresh(hit, LookupResult(0), asked_at)
                client._log.failure("lookup at %s failed and counts as a hit of 0 tokens: %s", client.address, error)
            else:
                self.postpone(hit)
                text = "lookup at %s failed, so the hit found before is given for at most 1 s: %s"
                client._log.failure(text, client.address, error)
        else:
            self.refresh(hit, result, asked_at)
