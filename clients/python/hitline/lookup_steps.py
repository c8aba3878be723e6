"""What the lookups of an engine go through: see engine_client.py for the steps and their order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hitline.client import LookupResult, Prompt, join_keys

__all__ = ["EngineLookup", "ServedPool", "Step"]

# For how long a hit is given again, in seconds since it was asked for.
MAX_AGE = 1.0


class EngineLookup:
    """A lookup as the engine's scheduler asks for it."""

    def __init__(
        self, req_id: str, num_tokens: int, block_hashes: Sequence[bytes], start: tuple[int, int], non_block: bool
    ) -> None:
        """start is the token at which it begins, and how many hashes are before that. Raises TypeError if block_hashes
        is no list of bytes."""
        self.req_id = req_id
        self.num_tokens = num_tokens
        self.block_hashes = block_hashes
        self.start_token, self.hashes_before = start
        self.non_block = non_block
        self.sent: EngineLookup | None = None  # that was asked of the server: this one, or one that was pending
        # Times of the client's clock.
        self.asked_at = 0.0
        self.refresh_at = 0.0  # when it is to be asked again
        self.refreshing = False  # whether it is being asked again
        self.result: LookupResult
        try:
            count = len(block_hashes)
            # What is looked up. The last hash stands for those in front of it.
            self.key = num_tokens, count, block_hashes[count - 1] if count else b"", self.start_token
        except (LookupError, TypeError):
            join_keys("block_hashes", block_hashes)  # its error says what is wrong
            raise

    def prompt(self) -> Prompt:
        """Returns what is asked of the server. One function makes all hashes of an engine, so they have one length."""
        return Prompt(self.num_tokens, self.block_hashes, self.start_token, self.hashes_before, is_uniform=True)

    def is_answered_by(self, other: EngineLookup) -> bool:
        """Whether the answer to another lookup is one to this. A start before this one's makes it no larger."""
        return other.key == self.key or other.key[:3] == self.key[:3] and other.start_token < self.start_token


class ServedPool:
    """The engine's pool as the server has described it."""

    def __init__(self, reply: Mapping[str, Any], is_local: bool) -> None:
        """is_local tells whether lookups may begin where the engine's own cache ends."""
        pool = reply.get("pool") or {}
        self.alignment: int = reply.get("alignment") or 0
        self.hash_block_size: int = pool.get("hash_block_size") or 0
        self.scheduler_block_size: int = pool.get("scheduler_block_size") or 0
        self.is_local = is_local and self.hash_block_size > 0 and self.scheduler_block_size > 0
        self.renew = reply.get("renew")
        self.lease = (reply.get("lease_ms") or 0) / 1000  # how long the store keeps blocks that were found, in seconds
        # Half of that is left for the engine to load them.
        self.max_age = min(MAX_AGE, self.lease / 2) if self.lease > 0 else MAX_AGE

    def max_hit(self, num_tokens: int) -> float:
        """Returns what a hit of a prompt is at most; infinite if that is not known. Hits are multiples of the
        pool's alignment, and the engine computes the last token itself."""
        return max(num_tokens - 1, 0) // self.alignment * self.alignment if self.alignment else math.inf


class Step:
    """A step of lookups. All calls come from the scheduler's thread. What a step has no part in stays as it is here."""

    def find(self, lookup: EngineLookup) -> LookupResult | None:
        """Returns the hit, if this step has it. The steps behind it are then not asked."""
        return None

    def found(self, lookup: EngineLookup, result: LookupResult) -> None:
        """Is told the hit, whichever step has found it."""

    def discard(self, req_id: str) -> None:
        """Forgets a request, which has finished."""

    def forget(self) -> None:
        """Forgets what was found for all requests, as it may be no longer true."""
