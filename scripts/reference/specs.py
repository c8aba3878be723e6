"""Builds a release's KV cache groups from the groups of a case."""

import dataclasses

CLASSES = {
    "full_attention": "FullAttentionSpec",
    "mla_attention": "MLAAttentionSpec",
    "sink_full_attention": "SinkFullAttentionSpec",
    "rswa": "RSWASpec",
    "hidden_state": "HiddenStateCacheSpec",
    "sliding_window": "SlidingWindowSpec",
    "sliding_window_mla": "SlidingWindowMLASpec",
    "chunked_local_attention": "ChunkedLocalAttentionSpec",
    "mamba": "MambaSpec",
    "circular_buffer": "CircularBufferSpec",
    "kpool_tail": "KpoolTailSpec",
    "hisparse_hot": "HiSparseHotSpec",
    "hisparse_resident": "HiSparseResidentSpec",
}

# Fields of a case's group that are fields of the spec under the same name.
OWN_FIELDS = (
    "sliding_window", "attention_chunk_size", "mamba_cache_mode", "rswa_window",
    "extra_retained_tokens", "bounded_replay",
)


def fields_of(cls):
    return {field.name for field in dataclasses.fields(cls)}


def kinds_of(reference):
    """Returns the kinds that the release has."""
    return {kind for kind, name in CLASSES.items() if isinstance(vars(reference.specs).get(name), type)}


def build_spec(reference, group, block_size):
    """Returns the spec of a group. Groups of another variant have an unequal spec."""
    cls = getattr(reference.specs, CLASSES[group["kind"]])
    variant = group.get("variant", 0)
    values = {
        "block_size": block_size,
        "num_kv_heads": 1 + variant,
        "head_size": 64,
        "dtype": reference.specs.torch.float16,
        "shapes": ((1 + variant, 8),),
        "dtypes": (reference.specs.torch.float16,),
        "page_size": 4096 * (1 + variant),
        "blocks_per_request": 4,
        "sliding_window": block_size if group["kind"] == "kpool_tail" else None,
        **{name: group[name] for name in OWN_FIELDS if name in group},
    }
    known = fields_of(cls)
    missing = [name for name in OWN_FIELDS if name in group and name not in known]
    if missing:
        raise ValueError(f"vLLM {reference.release}: {cls.__name__} has no {', '.join(missing)}")
    spec = cls(**{name: value for name, value in values.items() if name in known})
    if group.get("uniform"):
        wrapper = reference.specs.UniformTypeKVCacheSpecs
        return wrapper(block_size=block_size, kv_cache_specs={"layer.0": spec, "layer.1": spec})
    return spec


def build_groups(reference, groups, dcp_size=1):
    """Returns the groups of a case. Block sizes in cases are those after the DCP factor."""
    cls = reference.specs.KVCacheGroupSpec
    known = fields_of(cls)
    built = []
    for number, group in enumerate(groups):
        size = group["block_size"]
        flags = {name: group[name] for name in ("is_eagle_group", "enable_kv_transfer") if name in group}
        if unknown := flags.keys() - known:
            raise ValueError(f"vLLM {reference.release}: groups have no {', '.join(unknown)}")
        spec = build_spec(reference, group, size)
        if dcp_size > 1:
            spec = before_dcp(reference, group, spec, dcp_size)
        built.append(cls(layer_names=[f"layer.{number}"], kv_cache_spec=spec, **flags))
    return built


def before_dcp(reference, group, spec, dcp_size):
    """Returns the spec that the release's DCP factor turns into the given one."""
    resolve = vars(reference.kv_cache_utils).get("resolve_dcp_kv_cache_spec")
    size = group["block_size"]
    if resolve is None or resolve(spec, dcp_size).block_size == size:
        return spec
    if size % dcp_size:
        raise ValueError(f"a block of {size} tokens cannot be one of {dcp_size} ranks")
    spec = build_spec(reference, group, size // dcp_size)
    if resolve(spec, dcp_size).block_size != size:
        raise ValueError(f"vLLM {reference.release} does not make blocks of {size} tokens out of {spec}")
    return spec
