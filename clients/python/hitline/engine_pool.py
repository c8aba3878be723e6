"""Describes the pool of a vLLM engine, as the section pool of hitline's configuration does.

describe is called where the connector's scheduler side is built: it takes the arguments
of the constructor of MooncakeStoreScheduler, and returns the fields of the section, which
docs/configuration.md explains. Sizes and layout are those that vLLM resolves itself.

vllm is imported when describe is called. The module imports without it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any

from hitline.client import VLLM_RELEASES, is_since

__all__ = ["UnsupportedPool", "describe", "looks_up", "saves"]


# The kinds of groups, by the class of vLLM's spec. A release lacks some of the classes.
_KINDS = {
    "FullAttentionSpec": "full_attention",
    "TQFullAttentionSpec": "full_attention",
    "MLAAttentionSpec": "mla_attention",
    "SinkFullAttentionSpec": "sink_full_attention",
    "RSWASpec": "rswa",
    "HiddenStateCacheSpec": "hidden_state",
    "SlidingWindowSpec": "sliding_window",
    "SlidingWindowMLASpec": "sliding_window_mla",
    "ChunkedLocalAttentionSpec": "chunked_local_attention",
    "MambaSpec": "mamba",
    "CircularBufferSpec": "circular_buffer",
    "KpoolTailSpec": "kpool_tail",
    "HiSparseHotSpec": "hisparse_hot",
    "HiSparseResidentSpec": "hisparse_resident",
}
_FULL_KINDS = ("full_attention", "mla_attention", "sink_full_attention", "rswa", "hidden_state")
_SCRATCH_KINDS = ("circular_buffer", "kpool_tail", "hisparse_hot", "hisparse_resident")

# The fields of a spec, beside its block size, that groups of a kind have.
_SPEC_FIELDS = {
    **dict.fromkeys(_FULL_KINDS, ("sliding_window", "attention_chunk_size")),
    "rswa": ("sliding_window", "attention_chunk_size", "rswa_window"),
    "sliding_window": ("sliding_window", "extra_retained_tokens"),
    "sliding_window_mla": ("sliding_window", "extra_retained_tokens", "bounded_replay"),
    "chunked_local_attention": ("attention_chunk_size",),
    "mamba": ("mamba_cache_mode",),
}

# Bytes of a block's hash, by vLLM's prefix_caching_hash_algo.
_HASH_LENS = {"sha256": 32, "sha256_cbor": 32, "xxhash": 16, "xxhash_cbor": 16}

_BY_HAND = "write the section pool of hitline's configuration by hand"


class UnsupportedPool(ValueError):
    """The pool of this engine cannot be described."""

    def __init__(self, found: str, advice: str = _BY_HAND) -> None:
        super().__init__(f"hitline cannot describe the engine's pool: {found}; {advice}")


def describe(vllm_config: Any, kv_cache_config: Any, release: str | None = None) -> dict[str, Any]:
    """The fields of the section pool, ready for json.dumps.

    release is that of vLLM, vllm.__version__ if None. Fields that the release does not
    have are absent, and so are fields of groups that have their default, and the length of
    hashes of an algorithm that is not known. Engines of equal configuration have equal
    descriptions.

    Raises UnsupportedPool for what has no description, and for block sizes that vLLM
    refuses. It does not check all that vLLM's connector does: an engine that the connector
    refuses may have a description.
    """
    release = _known_release(release)
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    transfer = vllm_config.kv_transfer_config
    extra = transfer.kv_connector_extra_config
    scheduler_block_size, hash_block_size = _block_sizes(vllm_config, kv_cache_config)
    pool: dict[str, Any] = {
        "vllm": release,
        "model_name": model.model.rstrip("/").split("/")[-1],
        "cache_prefix": str(extra.get("cache_prefix", "")),
        "hash_block_size": hash_block_size,
        "scheduler_block_size": scheduler_block_size,
        "use_eagle": _use_eagle(vllm_config, release),
        "retention_interval": _retention_interval(kv_cache_config, release),
        "tp_size": parallel.tensor_parallel_size,
        "pp_size": parallel.pipeline_parallel_size,
        "pcp_size": parallel.prefill_context_parallel_size,
        "dcp_size": parallel.decode_context_parallel_size,
        "num_kv_head": _num_kv_head(model, release),
    }
    hash_len = _HASH_LENS.get(getattr(vllm_config.cache_config, "prefix_caching_hash_algo", ""))
    if hash_len is not None:
        pool["hash_len"] = hash_len
    if not is_since(release, "0.25.0"):
        pool.update(pcp_rank=0, dcp_rank=0)  # global rank 0 looks up
    if is_since(release, "0.27.0"):
        pool["capacity_only"] = not looks_up(transfer, release) and not saves(transfer, release)
    if is_since(release, "0.30.0"):
        pool.update(_sharing(extra))
        pool["kv_cache_layout"] = _kv_cache_layout(vllm_config, kv_cache_config)
    if is_since(release, "0.32.0") and kv_cache_config.cache_hit_alignment_tokens is not None:
        pool["cache_hit_alignment_tokens"] = kv_cache_config.cache_hit_alignment_tokens
    pool["groups"] = _groups(vllm_config, kv_cache_config, release, scheduler_block_size)
    if not pool["groups"] and not pool.get("capacity_only"):
        raise UnsupportedPool("it has no KV cache groups", "unset HITLINE_ADDRESS to go without hitline")
    return pool


def _known_release(release: str | None) -> str:
    if release is None:
        release = str(importlib.import_module("vllm").__version__).partition("+")[0]
    if release not in VLLM_RELEASES:
        known = ", ".join(VLLM_RELEASES)
        raise UnsupportedPool(f"vLLM is {release}, known are {known}", f"set HITLINE_VLLM to one of them, or {_BY_HAND}")
    return release


def _block_sizes(vllm_config: Any, kv_cache_config: Any) -> tuple[int, int]:
    """The scheduler's block size and that of hashes, in tokens."""
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    try:
        scheduler_block_size, hash_block_size = utils.resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    except ValueError as error:
        raise UnsupportedPool(f"vLLM refuses its block sizes: {error}", "correct the engine's configuration") from error
    # From 0.32.0 on the engine records what it hashes with.
    recorded = getattr(kv_cache_config, "hash_block_size", None)
    if recorded not in (None, hash_block_size):
        raise UnsupportedPool(f"the engine hashes blocks of {recorded} tokens, and the connector of {hash_block_size}")
    return scheduler_block_size, hash_block_size


def _use_eagle(vllm_config: Any, release: str) -> bool:
    """Whether groups drop the last block of a hit."""
    name = "use_eagle_block_drop" if is_since(release, "0.30.0") else "use_eagle"
    method = getattr(vllm_config.speculative_config, name, None)
    return bool(method()) if callable(method) else False


def _retention_interval(kv_cache_config: Any, release: str) -> int | None:
    if is_since(release, "0.29.0"):
        interval = kv_cache_config.prefix_cache_retention_interval
    else:
        interval = importlib.import_module("vllm.envs").VLLM_PREFIX_CACHE_RETENTION_INTERVAL
    return None if interval is None else int(interval)


def _num_kv_head(model: Any, release: str) -> int:
    if not is_since(release, "0.27.0") and getattr(model, "use_mla", False) is True:
        return 1
    return int(model.get_total_num_kv_heads())


def looks_up(transfer: Any, release: str) -> bool:
    """Whether the engine of a kv_transfer_config asks what is in the store."""
    return not is_since(release, "0.27.0") or bool(transfer.kv_connector_extra_config.get("enable_lookup", True))


def saves(transfer: Any, release: str) -> bool:
    """Whether the engine of a kv_transfer_config stores what it computes."""
    if transfer.kv_role != "kv_consumer":
        return True
    return is_since(release, "0.29.0") and bool(transfer.kv_connector_extra_config.get("save_decode_cache", False))


def _sharing(extra: dict[str, Any]) -> dict[str, Any]:
    """The options by which engines of different tensor-parallel sizes share a store. A
    size that vLLM ignores becomes 0, and a list that it ignores becomes empty."""
    sizes = extra.get("prefill_tp_sizes")
    valid = isinstance(sizes, list) and all(_is_positive(size) for size in sizes)
    sharing: dict[str, Any] = {
        "enable_store_tp_lcm": extra.get("enable_store_tp_lcm") is True,
        "prefill_tp_sizes": list(sizes or ()) if valid else [],
        "enable_cross_layers_blocks": str(extra.get("enable_cross_layers_blocks", False)).lower() == "true",
    }
    size = extra.get("store_tp_size")
    if size is not None:
        sharing["store_tp_size"] = size if _is_positive(size) else 0
    return sharing


def _is_positive(number: object) -> bool:
    return type(number) is int and number > 0


def _kv_cache_layout(vllm_config: Any, kv_cache_config: Any) -> str:
    if kv_cache_config.kv_cache_layout is not None:
        return str(kv_cache_config.kv_cache_layout)
    try:
        return str(vllm_config.cache_config.get_resolved_kv_cache_layout().name)
    except ValueError as error:
        raise UnsupportedPool(f"its KV cache layout is not known: {error}") from error


def _groups(vllm_config: Any, kv_cache_config: Any, release: str, scheduler_block_size: int) -> list[dict[str, Any]]:
    """Describes all groups, also those that are not kept in the store."""
    groups = kv_cache_config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    if is_since(release, "0.29.0"):
        utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        dcp_size = vllm_config.parallel_config.decode_context_parallel_size
        specs = [utils.resolve_dcp_kv_cache_spec(spec, dcp_size) for spec in specs]
    elif len(specs) == 1:  # the connector resizes it
        specs = [dataclasses.replace(specs[0], block_size=scheduler_block_size)]
    described = [_group(number, group, spec, release) for number, (group, spec) in enumerate(zip(groups, specs))]
    if is_since(release, "0.30.0"):  # it matters from then on
        for fields, group, spec in zip(described, groups, specs):
            if _is_wrapped(group, spec, kv_cache_config):
                fields["uniform"] = True
    _number_variants(described, [_layer_specs(spec)[0] for spec in specs], release)
    return described


def _layer_specs(spec: Any) -> list[Any]:
    """The specs that spec wraps, else spec itself. vLLM searches by the first of them."""
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    if isinstance(spec, interface.UniformTypeKVCacheSpecs):
        return list(spec.kv_cache_specs.values())
    return [spec]


def _is_wrapped(group: Any, spec: Any, kv_cache_config: Any) -> bool:
    """Whether the workers have a wrapper of unequal specs. The scheduler's side is given
    the first of them, but a tensor holds only layers of equal specs."""
    if spec is not _layer_specs(spec)[0]:
        return True
    layers = set(group.layer_names)
    return sum(not layers.isdisjoint(tensor.layers) for tensor in kv_cache_config.kv_cache_tensors) > 1


def _group(number: int, group: Any, spec: Any, release: str) -> dict[str, Any]:
    """Describes a group of a spec, whose block size is that after the factor of
    decode-context parallelism."""
    layer_specs = _layer_specs(spec)
    first = layer_specs[0]
    place = f"spec of group {number}"
    kinds = [_kind(each, place) for each in layer_specs]
    if len(set(kinds)) > 1:
        raise UnsupportedPool(f"{place} wraps {' and '.join(dict.fromkeys(kinds))}")
    if first.block_size != spec.block_size:
        raise UnsupportedPool(f"{place} has blocks of {spec.block_size} tokens and wraps one of {first.block_size}")
    kind = kinds[0]
    described: dict[str, Any] = {"kind": kind, "block_size": spec.block_size}
    for name in _SPEC_FIELDS.get(kind, ()):
        value = getattr(first, name, None)
        if value and value != "none":
            described[name] = value
    if described.get("mamba_cache_mode", "all") not in ("align", "all"):
        raise UnsupportedPool(f"{place} has mamba_cache_mode {described['mamba_cache_mode']}")
    if is_since(release, "0.30.0"):
        kept = kind not in _SCRATCH_KINDS and "bounded_replay" not in described
        if bool(spec.prefix_cacheable) is not kept:
            raise UnsupportedPool(f"{place}, {kind}, is {'not ' if kept else ''}cached, unlike others of its kind")
    if group.is_eagle_group:
        described["is_eagle_group"] = True
    if not getattr(group, "enable_kv_transfer", True):
        described["enable_kv_transfer"] = False
    return described


def _kind(spec: Any, place: str) -> str:
    """The kind of a spec. A subclass may have rules of its own, so it has no kind."""
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    for name, kind in _KINDS.items():
        if type(spec) is getattr(interface, name, None):
            return kind
    name = type(spec).__name__
    if name == "CrossAttentionSpec":
        raise UnsupportedPool(
            f"{place} is cross attention, which vLLM's connector refuses too", "run this model without the connector"
        )
    raise UnsupportedPool(f"{place} is a {type(spec).__module__}.{name}, which has no kind here")


def _number_variants(described: Sequence[dict[str, Any]], specs: Sequence[Any], release: str) -> None:
    """Sets variant so that groups have equal fields exactly if vLLM's specs are equal."""
    numbered: list[tuple[Any, dict[str, Any], int]] = []  # spec, fields and variant of its first group
    for group, spec in zip(described, specs):
        names = ("kind", "block_size", *_SPEC_FIELDS.get(group["kind"], ()))
        fields = {name: group[name] for name in names if name in group}
        extra = fields.get("extra_retained_tokens", 0)
        if extra and is_since(release, "0.33.0"):  # they count as part of the window
            del fields["extra_retained_tokens"]
            fields["sliding_window"] += extra
            spec = dataclasses.replace(spec, sliding_window=spec.sliding_window + extra, extra_retained_tokens=0)
        for known, _, variant in numbered:
            if known == spec:
                break
        else:
            variant = sum(known_fields == fields for _, known_fields, _ in numbered)
            numbered.append((spec, fields, variant))
        if variant:
            group["variant"] = variant
