"""Has the store keep what lies before the start of lookups.

A store that evicts by lease keeps what it was asked for last, and a lookup with a start does not ask
for what lies before. An engine that saves asks for its whole prompts when it saves. For one that only
loads, RenewingClient sends the hashes before the start to the server, in the client's worker thread and
after the lookup is answered. The server has the store asked when no lookup is, or drops it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from hitline.client import RENEW, LookupKeyClient, join_keys

__all__ = ["RenewingClient"]

# How many renewals may wait for the worker thread. Lookups wait while one is sent.
MAX_WAITING = 4

# How many prompts are remembered as renewed; the oldest is forgotten.
MAX_RENEWED = 1024


class RenewingClient(LookupKeyClient):
    """A client that renews what lies before its lookups. All calls come from the scheduler's thread."""

    _saves = True  # whether the engine saves what it has computed

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._clock = time.monotonic
        self._renewed: dict[bytes, float] = {}  # by the last hash of what was renewed, oldest first: when
        self._free = threading.BoundedSemaphore(MAX_WAITING)

    def _renew(self, block_hashes: Sequence[bytes], count: int, timeout: float) -> None:
        """Has the blocks of the first count hashes renewed, once in a lease, if the server's pool wants that. It
        neither waits nor raises."""
        reply = self._pool_reply or {}
        wanted = ("always",) if self._saves else ("auto", "always")
        lease = reply.get("lease_ms")
        if not count or reply.get("renew") not in wanted or not lease:
            return
        last, now = block_hashes[count - 1], self._clock()
        if now < self._renewed.get(last, -lease) + lease / 1000 or not self._free.acquire(blocking=False):
            return
        self._renewed.pop(last, None)
        self._renewed[last] = now
        if len(self._renewed) > MAX_RENEWED:
            del self._renewed[next(iter(self._renewed))]
        try:
            self._submit(self._send_renewal, list(block_hashes[:count]), time.monotonic() + timeout)
        except Exception:  # the client is closed
            self._free.release()

    def _send_renewal(self, block_hashes: Sequence[bytes], deadline: float) -> None:
        try:
            _, size, blob = join_keys("block_hashes", block_hashes)
            with self._locked(max(deadline - time.monotonic(), 0.001)) as until:
                self._exchange_locked((RENEW, size.to_bytes(2, "big"), blob), until, resend=False)
        except Exception as error:
            self._log("renewal at %s failed: %s", error)
        finally:
            self._free.release()
