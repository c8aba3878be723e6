"""Gives the hit of a lookup again if the same request is asked for again soon.

vLLM looks up the request at the head of its queue at every step for as long as there is no room
for it, and waits for each of these lookups. RememberingClient gives the hit that it found last,
and asks for it again in the client's worker thread.

A hit of all tokens that can be hit is asked for again after half of the longest time for which a
hit is given, which is a second, or half of the time for which the store keeps blocks that were
found. A smaller one is asked for again after 100 ms, since the missing blocks may be stored
meanwhile. A lookup that failed is remembered as what it counts as, a hit of 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hitline.client import (
    WHOLE,
    Busy,
    Hashes,
    LookupKeyClient,
    LookupResult,
    RefusedError,
    Start,
    WrongRelease,
    join_keys,
)

__all__ = ["RememberedHits", "RememberingClient", "max_hit"]

# For how long a hit is given, in seconds since it was asked for.
MAX_AGE = 1.0

# From which age on a hit that may grow is asked for again, in seconds; and how long after a
# lookup that failed the next is sent.
REFRESH_AFTER = 0.1


class Prompt(NamedTuple):
    """What is looked up. The last hash stands for those in front of it."""

    num_tokens: int
    num_hashes: int
    last_hash: bytes
    start: Start = WHOLE

    def holds_for(self, other: Prompt) -> bool:
        """Whether an answer to this is one to another prompt. A start before the other's makes the
        answer no larger."""
        return self._replace(start=other.start) == other and self.start.token <= other.start.token


class _Hit:
    """What was found for a prompt. Any thread may refresh it."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.result = LookupResult(0)
        self.asked_at = 0.0
        self.refresh_at = 0.0
        self.refreshing = False  # whether it is being asked for again


class RememberedHits:
    """The last hit of each request. Times are those of clock, in seconds. The thread that looks
    up makes all calls but refresh, postpone and clear."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._hits: dict[str, _Hit] = {}

    def __len__(self) -> int:
        return len(self._hits)

    def find(self, req_id: str, prompt: Prompt, pool: Mapping[str, Any] | None) -> _Hit | None:
        """Returns the hit of a request for a prompt. None if there is none that may be given. pool
        is the server's reply that describes it."""
        hit = self._hits.get(req_id)
        if hit is None or hit.prompt == prompt and self.clock() < hit.asked_at + max_age(pool):
            return hit
        self._hits.pop(req_id, None)  # another thread may have cleared it
        return None

    def is_due(self, hit: _Hit) -> bool:
        """Whether the hit is to be asked for again."""
        return not hit.refreshing and self.clock() >= hit.refresh_at

    def add(
        self, req_id: str, prompt: Prompt, result: LookupResult, asked_at: float, pool: Mapping[str, Any] | None
    ) -> None:
        hit = _Hit(prompt)
        self.refresh(hit, result, asked_at, pool)
        self._hits[req_id] = hit

    def refresh(self, hit: _Hit, result: LookupResult, asked_at: float, pool: Mapping[str, Any] | None) -> None:
        """Sets what was found. It has no effect on a hit that has been dropped."""
        longest = max_hit(pool, hit.prompt.num_tokens)
        after = max_age(pool) / 2
        if longest is None or result.hit_length < longest:
            after = min(after, REFRESH_AFTER)
        hit.refresh_at = asked_at + after
        hit.result = result  # first: the thread that looks up must not take the old one for a new one
        hit.asked_at, hit.refreshing = asked_at, False

    def postpone(self, hit: _Hit) -> None:
        """Has a hit asked for again later, since it could not be now."""
        hit.refresh_at, hit.refreshing = self.clock() + REFRESH_AFTER, False

    def drop(self, req_id: str) -> None:
        self._hits.pop(req_id, None)

    def clear(self) -> None:
        self._hits.clear()


def max_age(pool: Mapping[str, Any] | None) -> float:
    """For how long a hit may be given. The reply may say for how long the store keeps blocks that
    were found: half of that is left for the engine to load them."""
    lease = (pool or {}).get("lease_ms")
    return min(MAX_AGE, lease / 2000) if type(lease) is int and lease > 0 else MAX_AGE


def max_hit(pool: Mapping[str, Any] | None, num_tokens: int) -> int | None:
    """Returns what a hit of a prompt is at most, None if the server has not described its pool. Hits
    are multiples of the pool's alignment, and the engine computes the last token itself."""
    alignment = (pool or {}).get("alignment")
    if not isinstance(alignment, int) or alignment < 1:
        return None
    return max(num_tokens - 1, 0) // alignment * alignment


def _prompt(num_tokens: int, block_hashes: Sequence[bytes], start: Start) -> Prompt:
    try:
        count = len(block_hashes)
        return Prompt(num_tokens, count, block_hashes[count - 1] if count else b"", start)
    except (LookupError, TypeError):
        join_keys("block_hashes", block_hashes)  # its error says what is wrong
        raise


class RememberingClient(LookupKeyClient):
    """A client that remembers hits. All calls come from the scheduler's thread. It remembers those
    of unfinished requests only."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._remembered = RememberedHits()
        self._described: Mapping[str, Any] | None = None  # see _last_pool_reply
        self._pending: dict[str, tuple[Prompt, float]] = {}  # of pending lookups: the prompt, and when it was sent

    def _lookup_pending(
        self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool, start: Start
    ) -> LookupResult | None:
        prompt = _prompt(token_len, block_hashes, start)
        hit = self._remembered.find(req_id, prompt, self._last_pool_reply())
        if hit is not None:
            result = hit.result
            if self._remembered.is_due(hit):
                self._begin_refresh(hit, block_hashes)
            return result
        sent, asked_at = self._pending.pop(req_id, (prompt, self._remembered.clock()))
        if not sent.holds_for(prompt):
            super().discard(req_id)
            sent, asked_at = prompt, self._remembered.clock()
        found = super()._lookup_pending(req_id, token_len, block_hashes, non_block, start)
        if found is None:
            self._pending[req_id] = sent, asked_at
        elif sent == prompt:
            self._remembered.add(req_id, prompt, found, asked_at, self._last_pool_reply())
        return found

    def _last_pool_reply(self) -> Mapping[str, Any] | None:
        """What the server said last of the pool, also while another thread tells it the pool again."""
        self._described = self._pool_reply or self._described
        return self._described

    def _begin_refresh(self, hit: _Hit, block_hashes: Sequence[bytes]) -> None:
        hit.refreshing = True
        deadline = time.monotonic() + self._lookup_timeout(hit.prompt.num_tokens)
        try:
            self._submit(self._refresh, hit, list(block_hashes), deadline)
        except Exception:  # the client is closed
            self._remembered.postpone(hit)

    def _refresh(self, hit: _Hit, block_hashes: Sequence[bytes], deadline: float) -> None:
        """Asks for a hit again, in the worker's thread. The scheduler's lookups wait meanwhile, so a refresh that
        is refused as busy is not sent again."""
        asked_at = self._remembered.clock()
        timeout = deadline - time.monotonic()
        if timeout < self._lookup_timeout(hit.prompt.num_tokens) / 2:  # too little to tell a server that hangs
            self._remembered.postpone(hit)
            return
        try:
            hashes = Hashes(block_hashes, hit.prompt.start)
            result = self._lookup(hit.prompt.num_tokens, hashes, timeout, resend=False)
        except Exception as error:
            if isinstance(error, (RefusedError, WrongRelease)) and not isinstance(error, Busy):
                # What was found before may be another pool's.
                self._remembered.refresh(hit, LookupResult(0), asked_at, self._last_pool_reply())
                self._log("lookup at %s failed and counts as a hit of 0 tokens: %s", error)
            else:
                self._remembered.postpone(hit)
                self._log("lookup at %s failed, so the hit found before is given for at most 1 s: %s", error)
        else:
            self._remembered.refresh(hit, result, asked_at, self._last_pool_reply())

    def discard(self, req_id: str) -> None:
        self._remembered.drop(req_id)
        self._pending.pop(req_id, None)
        super().discard(req_id)

    def reset(self, *, timeout: float | None = None) -> bool:
        done = super().reset(timeout=timeout)
        self._forget()
        return done

    def _forget(self) -> None:
        """Drops all hits, and those of the lookups that are pending."""
        self._remembered.clear()
        for req_id in self._pending:
            super().discard(req_id)
        self._pending.clear()
