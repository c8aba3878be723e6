"""Has the store keep what lies before the start of lookups.

A store that evicts by lease keeps what it was asked for last, and a lookup with a start does not ask
for what lies before. An engine that saves asks for its whole prompts when it saves. For one that only
loads, Renewals sends the hashes before the start to the server, in the client's worker thread and
after the lookup is answered. The server has the store asked when no lookup is, or drops it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hitline.client import RENEW, LookupResult, keys_frames
from hitline.errors import ConnectionFailed
from hitline.lookup_steps import EngineLookup, Step

if TYPE_CHECKING:
    from hitline.engine_client import EngineClient

__all__ = ["Renewals"]

# How many renewals may wait for the worker thread. Lookups wait while one is sent.
MAX_WAITING = 4

# How many prompts are remembered as renewed; the oldest is forgotten.
MAX_RENEWED = 1024


class Renewals(Step):
    """Renews what lies before lookups, once in a lease, if the server's pool wants that."""

    def __init__(self, client: EngineClient) -> None:
        self.free = threading.BoundedSemaphore(MAX_WAITING)
        self.renewed: dict[bytes, float] = {}  # by the last hash of what was renewed, oldest first: when
        self.saves = True  # whether the engine saves what it has computed
        self._client = client

    def found(self, lookup: EngineLookup, result: LookupResult) -> None:
        if lookup.hashes_before:
            self.renew(lookup.block_hashes, lookup.hashes_before, lookup.num_tokens)

    def renew(self, block_hashes: Sequence[bytes], count: int, num_tokens: int) -> None:
        """Has the blocks of the first count hashes of a prompt renewed. It neither waits nor raises."""
        client, pool = self._client, self._client.pool
        wanted = ("always",) if self.saves else ("auto", "always")
        if not count or not pool.lease or pool.renew not in wanted:
            return
        last, now = block_hashes[count - 1], client.clock()
        if now < self.renewed.get(last, -pool.lease) + pool.lease or not self.free.acquire(blocking=False):
            return
        self.renewed.pop(last, None)
        self.renewed[last] = now
        if len(self.renewed) > MAX_RENEWED:
            del self.renewed[next(iter(self.renewed))]
        try:
            deadline = time.monotonic() + client.lookup_timeout(num_tokens)
            client._worker.submit(self._send, list(block_hashes[:count]), deadline)
        except ConnectionFailed:  # the client is closed
            self.free.release()

    def _send(self, block_hashes: Sequence[bytes], deadline: float) -> None:
        try:
            timeout = max(deadline - time.monotonic(), 0.001)
            self._client._command(RENEW, *keys_frames("block_hashes", block_hashes), timeout=timeout, resend=False)
        except Exception as error:
            self._client._log.failure("renewal at %s failed: %s", self._client.address, error)
        finally:
            self.free.release()
