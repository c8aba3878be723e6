"""Compares the keys of a vLLM worker with those of a pool that a server serves."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from hitline.errors import printable

__all__ = ["differences", "key_prefixes"]

# Longest prefix that is taken apart, in characters: the time grows with the square of it.
_MAX_PREFIX = 2048

# What stands in front of the hash in a key, from the start; the model with the cache
# prefix in front of it. The namespace is that of a store which engines of different
# tensor-parallel sizes share.
_PREFIX = re.compile(
    r"(?P<model>.*?)(?P<namespace>@store_pp:.*?)?@tp_rank:(?P<tp_rank>\d+)@pcp(?P<pcp>\d+)@dcp(?P<dcp>\d+)"
    r"@pp_rank:(?P<pp_rank>\d+)@group:(?P<group>\d+)",
    re.DOTALL,
)


def key_prefixes(worker: Any) -> list[list[str]] | None:
    """The key prefixes that a MooncakeStoreWorker looks up, for each group that it keeps in
    the store. None if there are none: vLLM 0.24.0 makes them with each lookup, and a worker
    that never looks up has none."""
    found = getattr(worker, "_lookup_key_prefixes", None)
    groups = getattr(worker, "_kv_cache_groups", None)
    if not found or groups is None or len(groups) != len(found):
        return None
    cached = [getattr(group.kv_cache_spec, "prefix_cacheable", True) for group in groups]
    return [[str(prefix) for prefix in prefixes] for prefixes, kept in zip(found, cached) if kept]


def differences(prefixes: Sequence[Sequence[str]], reply: dict[str, Any]) -> list[dict[str, Any]]:
    """How the prefixes of an engine differ from those of a pool, by the reply to a pool
    request. Each has field, configured and described, as those of a refusal. Empty if they
    are equal, or if the reply does not tell."""
    groups, digest = reply.get("groups"), reply.get("prefixes_sha256")
    flat = "\n".join(prefix for group in prefixes for prefix in group)
    if not isinstance(groups, list) or not isinstance(digest, str):
        return []
    if hashlib.sha256(flat.encode()).hexdigest() == digest:
        return []
    if len(groups) != len(prefixes):
        return [_difference("groups", len(groups), len(prefixes))]
    found: list[dict[str, Any]] = []
    for number, (group, own) in enumerate(zip(groups, prefixes)):
        place = f"groups[{number}]"
        found += _parts(place, str(group.get("key_prefix", "")), own[0] if own else "")
        if group.get("ranks") != len(own):
            found.append(_difference(f"{place}.ranks", group.get("ranks"), len(own)))
    return found or [_difference("prefixes_sha256", digest, "that of other ranks")]


def _parts(place: str, configured: str, described: str) -> list[dict[str, Any]]:
    """The parts in which two prefixes differ."""
    if configured == described:
        return []
    theirs, own = _PREFIX.fullmatch(configured[: _MAX_PREFIX + 1]), _PREFIX.fullmatch(described)
    if len(configured) > _MAX_PREFIX or theirs is None or own is None:
        return [_difference(f"{place}.key_prefix", configured, described)]
    return [
        _difference(f"{place}.{name}", theirs[name] or "none", own[name] or "none")
        for name in _PREFIX.groupindex
        if theirs[name] != own[name]
    ]


def _difference(field: str, configured: object, described: object) -> dict[str, Any]:
    configured = printable(configured) if isinstance(configured, str) else configured
    return {"field": field, "configured": configured, "described": described}
