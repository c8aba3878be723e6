"""Answers cases with a release's modules, in the format of the vectors."""

import hashlib
import inspect
from types import SimpleNamespace

import specs
from modules import Stub


def hashes_of(case):
    """Returns the hashes of a case. Copies of dup_of are those before any replacement."""
    length = case.get("hash_len", 32)
    own = [hashlib.sha256(f"{case['id']}:{i}".encode()).digest()[:length] for i in range(case.get("num_hashes", 0))]
    copies = {int(j): own[i] for j, i in case.get("dup_of", {}).items()}
    return [copies.get(i, h) for i, h in enumerate(own)]


def in_ranges(ranges, num_hashes):
    return [i for start, end in ranges for i in range(start, min(end, num_hashes))]


def runs_of(mask):
    """Returns a mask as run lengths, the first of False; None is all True."""
    if mask is None:
        return None
    runs = []
    for value in mask:
        value = bool(value)
        if not runs and value:
            runs = [0]
        if runs and len(runs) % 2 == int(not value):
            runs[-1] += 1
        else:
            runs.append(1)
    return runs


def failure(error, stage):
    expect = {"error": type(error).__name__}
    if stage:
        expect["stage"] = stage
    if str(error) and isinstance(error, AssertionError):
        expect["message"] = str(error)
    return expect


def sha256(lines):
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def accepted(function, **arguments):
    """Returns those of the arguments that a function takes."""
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def build_coordinator(reference, case):
    cls = reference.coordinator.MooncakeStoreCoordinator
    return cls(
        specs.build_groups(reference, case["groups"]),
        scheduler_block_size=case["scheduler_block_size"],
        hash_block_size=case["hash_block_size"],
        use_eagle=case["use_eagle"],
        retention_interval=case.get("retention_interval"),
        **accepted(
            cls,
            dcp_world_size=case.get("dcp_size", 1),
            enable_partial_hash_hits=case.get("enable_partial_hash_hits", False),
        ),
    )


def build_pool(reference, case, exists):
    cls = reference.coordinator.ExternalCachedBlockPool
    return cls(exists=exists, **accepted(cls, hash_block_size=case["hash_block_size"]))


def find_hit(reference, case):
    """Answers a case of find_hit.json."""
    hashes = hashes_of(case)
    exists = None
    if case["present"] is not None:
        exists = {
            (group, hashes[i])
            for group, ranges in enumerate(case["present"])
            for i in in_ranges(ranges, len(hashes))
        }
    stage = "construct"
    try:
        coordinator = build_coordinator(reference, case)
        stage = "find"
        masks, hit = coordinator.find_longest_cache_hit(
            hashes, case["max_length"], build_pool(reference, case, exists), apply_eagle=case["apply_eagle"]
        )
    except (AssertionError, IndexError, ValueError) as error:
        return failure(error, stage)
    return {"hit_length": hit, "masks": [runs_of(mask) for mask in masks]}


def masks(reference, case):
    """Answers a case of masks.json."""
    stage = "construct"
    try:
        coordinator = build_coordinator(reference, case)
        stage = case["op"]
        if stage == "load_mask":
            result = coordinator.load_mask(hashes_of(case), case["token_len"])
        elif stage == "lookup_mask":
            result = coordinator.lookup_mask(case["aligned_token_len"])
        else:
            arguments = {"num_prompt_tokens": case.get("num_prompt_tokens")}
            if "start_token" in case:
                arguments["start_token"] = case["start_token"]
            result = coordinator.store_mask(case["aligned_token_len"], **arguments)
    except (AssertionError, IndexError, ValueError) as error:
        return failure(error, stage)
    return {"masks": [runs_of(mask) for mask in result]}


class Store:
    """The store of a worker case: answers as the case says, and records the keys."""

    def __init__(self, mode, content):
        self.mode, self.content = mode, content
        self.calls, self.keys = 0, []

    def setup(self, *args, **kwargs):
        return 0

    def batch_is_exist(self, keys):
        self.calls += 1
        self.keys = list(keys)
        if self.mode == "raises":
            raise RuntimeError("the store of the case fails")
        present = 2 if self.mode == "twos" else 1
        absent = -1 if self.mode == "negative" else 0
        answers = [present if key in self.content else absent for key in keys]
        if self.mode == "short_result":
            return answers[:-1]
        return answers + [1] if self.mode == "long_result" else answers


def build_worker(reference, case, store=None, server=None):
    """Runs the worker's own constructor, with the case in place of the engine's configuration.

    store is its store client, by default one without keys. server is the class of its lookup
    server; without one it has none.
    """
    module = reference.worker
    pcp = case.get("pcp_size", case.get("pcp_rank", 0) + 1)
    dcp = case.get("dcp_size", case.get("dcp_rank", 0) + 1)
    module.get_tensor_model_parallel_rank = lambda: 0
    module.get_tensor_model_parallel_world_size = lambda: case["tp_size"]
    module.get_pcp_group = lambda: SimpleNamespace(world_size=pcp, rank_in_group=case.get("pcp_rank", 0))
    module.get_dcp_group = lambda: SimpleNamespace(world_size=dcp, rank_in_group=case.get("dcp_rank", 0))
    sizes = case["scheduler_block_size"], case["hash_block_size"]
    module.resolve_kv_cache_block_sizes = lambda *args: sizes
    module.LookupKeyServer = server or (lambda *args: None)
    module.MooncakeStoreConfig = Stub
    reference.mooncake.MooncakeDistributedStore = lambda: store or Store("normal", set())
    extra = {"cache_prefix": case["cache_prefix"], **(case.get("extra_config") or {})}
    capacity_only = case.get("capacity_only", False)
    if capacity_only:
        extra["enable_lookup"] = False
    speculative = SimpleNamespace(use_eagle=lambda: True, use_eagle_block_drop=lambda: True)
    layout = case.get("kv_cache_layout", "LBHNC")
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            model=case["model_name"],
            get_num_layers=lambda parallel: 1,
            get_total_num_kv_heads=lambda: case["num_kv_head"],
        ),
        parallel_config=SimpleNamespace(
            rank=0,
            data_parallel_index=case.get("dp_rank", 0),
            pipeline_parallel_size=case["pp_size"],
            decode_context_parallel_size=dcp,
        ),
        kv_transfer_config=SimpleNamespace(
            kv_role="kv_consumer" if capacity_only else "kv_both", kv_connector_extra_config=extra
        ),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: module.KVCacheLayout[layout]),
        kv_events_config=None,
        speculative_config=speculative if case["use_eagle"] else None,
    )
    cls = reference.specs.KVCacheConfig
    values = {"cache_hit_alignment_tokens": case.get("cache_hit_alignment_tokens")}
    kv_cache_config = cls(
        num_blocks=1,
        kv_cache_tensors=[],
        # A capacity-only worker looks at no group.
        kv_cache_groups=[] if capacity_only else specs.build_groups(reference, case["groups"], dcp),
        **{name: value for name, value in values.items() if name in specs.fields_of(cls)},
    )
    return module.MooncakeStoreWorker(config, kv_cache_config)


def prefixes_of(reference, worker):
    """Returns the key prefixes of each store group, in the order asked."""
    prefixes = vars(worker).get("_lookup_key_prefixes")
    if prefixes is not None:
        return [list(group) for group in prefixes]
    # 0.24.0 makes the keys in lookup itself.
    key = reference.data.PoolKey
    ranks = [(t, p) for t in range(min(worker.tp_size, worker.num_kv_head)) for p in range(worker.pp_size)]
    replace = specs.dataclasses.replace
    return [
        [key(replace(db.metadata, tp_rank=t, pp_rank=p), "").to_string().removesuffix("@") for t, p in ranks]
        for db in worker.token_dbs
    ]


def content_of(case, hashes, prefixes):
    """Returns the keys that the store of a case has."""
    content = set()
    for group, names in enumerate(prefixes):
        for number, prefix in enumerate(names):
            gone = {
                i
                for entry in case["absent"]
                if entry["group"] == group and (entry["prefix"] is None or number in entry["prefix"])
                for i in in_ranges(entry["ranges"], len(hashes))
            }
            content.update(
                f"{prefix}@{hashes[i].hex()}" for i in in_ranges(case["present"][group], len(hashes)) if i not in gone
            )
    return content


def store_groups_of(reference, kept, groups):
    """Returns the places in the case of the groups that a worker kept."""
    if reference.version < (0, 29):
        return list(range(len(groups)))
    return [int(group.layer_names[0].removeprefix("layer.")) for group in kept]


def worker_lookup(reference, case):
    """Answers a case of worker_lookup.json."""
    try:
        worker = build_worker(reference, case)
    except (AssertionError, IndexError, ValueError) as error:
        return failure(error, "construct")
    hashes = hashes_of(case)
    capacity_only = case.get("capacity_only", False)
    prefixes = [] if capacity_only else prefixes_of(reference, worker)
    store = worker.store = Store(case["store"], set() if capacity_only else content_of(case, hashes, prefixes))
    expect = {}
    try:
        result = worker.lookup(case["token_len"], hashes)
        hit = getattr(result, "hit_length", result)
        expect["hit_length"] = hit
        expect["tail_key_boundaries"] = [
            [b.group_id, b.num_tokens] for b in getattr(result, "tail_key_boundaries", ())
        ]
        encode = vars(reference.protocol).get("encode_lookup_response")
        expect["reply"] = (encode(result) if encode else hit.to_bytes(4, "big")).hex()
    except (AssertionError, IndexError, ValueError) as error:
        expect |= failure(error, None)
    expect["store_calls"] = store.calls
    expect["num_keys"] = len(store.keys)
    if store.calls:
        expect |= {"keys_sha256": sha256(store.keys), "first_keys": store.keys[:2], "last_key": store.keys[-1]}
    if capacity_only:
        return expect
    expect["prefix_counts"] = [len(group) for group in prefixes]
    expect["prefixes_sha256"] = sha256([prefix for group in prefixes for prefix in group])
    expect["fine_grained"] = bool(vars(worker.coord).get("enable_partial_hash_hits", False))
    if reference.version >= (0, 29):
        expect["store_groups"] = store_groups_of(reference, worker._kv_cache_groups, case["groups"])
        expect["store_block_sizes"] = [group.kv_cache_spec.block_size for group in worker._kv_cache_groups]
    return expect


ANSWERS = {"find_hit": find_hit, "masks": masks, "worker_lookup": worker_lookup}
