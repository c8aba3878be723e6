"""Draws random cases that a release can express."""

import inspect
import math

import specs

FULL = ["full_attention"] * 3 + ["mla_attention", "sink_full_attention", "rswa", "hidden_state"]
WINDOWS = ["sliding_window", "sliding_window", "sliding_window_mla"]
SCRATCH = ["circular_buffer", "kpool_tail", "hisparse_hot", "hisparse_resident"]
MODELS = ["m", "Llama-3.1-8B", "org/Qwen3", "deep/seek/V4/", "name@x"]


class Features:
    """What a release can express, found in its modules."""

    def __init__(self, reference):
        module, worker = reference.specs, reference.worker.MooncakeStoreWorker
        coordinator = reference.coordinator.MooncakeStoreCoordinator
        arguments = inspect.signature(coordinator).parameters
        config = specs.fields_of(module.KVCacheConfig)
        self.kinds = specs.kinds_of(reference)
        self.extra_retained = "extra_retained_tokens" in specs.fields_of(module.SlidingWindowSpec)
        self.bounded_replay = "bounded_replay" in specs.fields_of(module.SlidingWindowMLASpec)
        self.transfer_flag = "enable_kv_transfer" in specs.fields_of(module.KVCacheGroupSpec)
        self.start_token = "start_token" in inspect.signature(coordinator.store_mask).parameters
        self.dcp_argument = "dcp_world_size" in arguments
        self.partial_argument = "enable_partial_hash_hits" in arguments
        self.rank_counts = hasattr(worker, "_init_lookup_key_prefixes")
        # Until 0.26 a worker takes only multiples of the scheduler's block size.
        self.any_length = hasattr(coordinator, "align_lookup_length")
        self.namespaces = hasattr(worker, "_select_store_layout")
        self.alignment = "cache_hit_alignment_tokens" in config
        self.dcp_factor = "resolve_dcp_kv_cache_spec" in vars(reference.kv_cache_utils)
        self.capacity_only = "_capacity_only" in inspect.getsource(worker)
        # Until 0.28 a worker gives a lone group the scheduler's block size.
        self.lone_group_resized = "prefix_cache_retention_interval" not in config
        # Until 0.29 scratch groups must fit the block sizes as others do.
        self.scratch_exempt = "prefix_cacheable_groups" in vars(module.KVCacheConfig)


class Drawer:
    """Draws the cases of one release."""

    def __init__(self, reference):
        self.features = Features(reference)

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, *choices):
        return self.random.choice(choices)

    def draw(self, random, topic, identity):
        self.random = random
        return getattr(self, topic)(identity)

    # Pools

    def kind(self, choices):
        return self.random.choice([kind for kind in choices if kind in self.features.kinds])

    def window(self, size):
        count = self.random.randint(0, 6)
        return max(1, self.pick(count * size + self.pick(-1, 0, 1, 2), self.random.randint(1, 8 * size)))

    def group(self, family, size, unit):
        """Draws a group of a family: full, window, mamba, align, chunked, scratch."""
        group = {"block_size": size}
        if family == "full":
            group["kind"] = self.kind(FULL)
            if group["kind"] == "rswa":
                group["rswa_window"] = self.pick(16, 64)
        elif family == "window":
            group |= {"kind": self.kind(WINDOWS), "sliding_window": self.window(size)}
            if self.features.extra_retained and self.chance(0.35):
                group["extra_retained_tokens"] = self.pick(0, 1, size, self.random.randint(0, 3 * size))
            if self.features.bounded_replay and group["kind"] == "sliding_window_mla" and self.chance(0.1):
                group["bounded_replay"] = True
        elif family in ("mamba", "align"):
            group |= {"kind": "mamba", "mamba_cache_mode": "align" if family == "align" else self.pick("none", "align")}
        elif family == "chunked":
            group |= {"kind": "chunked_local_attention", "attention_chunk_size": size * self.pick(1, 2, 3, 4)}
            if self.chance(0.2):
                group["attention_chunk_size"] += self.random.randint(1, size)
        else:
            group["kind"] = self.kind(SCRATCH)
            if self.features.scratch_exempt and self.chance(0.3):
                group["block_size"] = self.random.randint(1, 2 * unit)
        if self.chance(0.25):
            group["variant"] = self.random.randint(1, 2)
        if family != "scratch" and self.chance(0.08):
            group["uniform"] = True
        return group

    def families(self):
        return self.pick(
            ["full"], ["window"], ["mamba"], ["align"], ["chunked"],
            ["full", "window"], ["full", "window"], ["full", "mamba"], ["full", "full"],
            ["window", "window"], ["window", "mamba"], ["full", "chunked"],
            ["full", "align"], ["full", "align"], ["align", "full", "full"], ["full", "align", "window"],
            ["full", "align", "align"], ["full", "window", "window"], ["full", "window", "window", "window"],
            ["full", "full", "window"], ["window", "full", "mamba"], ["full", "chunked", "window"],
            ["full", "full", "align", "window"], ["full", "full", "window", "window", "mamba"],
        )  # fmt: skip

    def groups(self, unit):
        families = list(self.families())
        even = "chunked" in families and self.chance(0.8)
        common = unit * self.pick(1, 1, 2, 4)
        groups = []
        for family in families:
            size = common if even or self.chance(0.4) else unit * self.pick(1, 1, 2, 2, 3, 4, 6, 8)
            groups.append(self.group(family, size, unit))
        while self.chance(0.3):  # an equal spec
            groups.insert(self.random.randint(0, len(groups)), dict(self.random.choice(groups)))
        if self.features.kinds & set(SCRATCH) and self.chance(0.12):
            groups.insert(self.random.randint(0, len(groups)), self.group("scratch", common, unit))
        if self.chance(0.3):
            self.random.shuffle(groups)
        if self.chance(0.35):
            for group in groups:
                if self.chance(0.4):
                    group["is_eagle_group"] = self.chance(0.9)
        return groups

    def is_scratch(self, group):
        return group["kind"] in SCRATCH or group.get("bounded_replay", False)

    def pool(self, identity):
        unit = self.pick(1, 2, 3, 4, 4, 8, 16, 16, 32)
        groups = self.groups(unit)
        while all(self.is_scratch(group) for group in groups):  # the connector refuses these
            groups = self.groups(unit)
        exempt = self.features.scratch_exempt
        sizes = [group["block_size"] for group in groups if not (exempt and self.is_scratch(group))]
        scheduler = math.lcm(unit, *sizes) * self.pick(1, 1, 1, 1, 1, 2, 3)
        if self.chance(0.015):
            scheduler += self.pick(1, unit)
        if self.chance(0.01):
            groups[0]["block_size"] += 1
        return {
            "id": identity,
            "groups": groups,
            "hash_block_size": unit,
            "scheduler_block_size": scheduler,
            "use_eagle": self.chance(0.35),
        }

    # Lengths and presence

    def number_of_hashes(self, case):
        unit, scheduler = case["hash_block_size"], case["scheduler_block_size"]
        per = max(1, scheduler // unit)
        number = self.pick(
            self.random.randint(0, 12), self.random.randint(0, 60), self.random.randint(0, 4 * per),
            self.random.randint(1, 6) * per + self.pick(-1, 0, 0, 1),
        )  # fmt: skip
        return min(number, self.pick(160, 160, 160, 700))

    def length(self, case, most):
        """Draws a number of tokens at or about a boundary."""
        unit, scheduler = case["hash_block_size"], case["scheduler_block_size"]
        size = self.random.choice(case["groups"])["block_size"]
        length = self.pick(most, most, self.random.randint(0, max(0, most)), most - self.pick(1, unit, size))
        boundary = self.pick(None, scheduler, scheduler, scheduler, unit, size)
        if boundary:
            length = length // boundary * boundary
        if self.chance(0.05):  # beyond the hashes
            length = most + self.random.randint(0, 2 * scheduler)
        return max(0, length + self.pick(0, 0, 0, 0, 1, -1))

    def ranges(self, indexes):
        """Returns sorted indexes as half-open ranges."""
        ranges = []
        for i in indexes:
            if ranges and ranges[-1][1] == i:
                ranges[-1][1] = i + 1
            else:
                ranges.append([i, i + 1])
        return ranges

    def chunk_ends(self, case, group, number):
        stride = max(1, group["block_size"] // case["hash_block_size"])
        return range(stride - 1, number, stride)

    def present(self, case, number):
        """Draws which hashes each group has."""
        every = self.pick("all", "prefix", "prefix", "tails", "tails", "holes", "sparse", "mixed", "mixed", "mixed")
        prefix = self.random.randint(number // 2, number)
        per = max(1, case["scheduler_block_size"] // case["hash_block_size"])
        presence = []
        for group in case["groups"]:
            pattern = every
            if every == "mixed":
                pattern = self.pick("all", "prefix", "tails", "holes", "ends", "points", "sparse")
            full = group["kind"] in FULL
            if pattern == "all" or (pattern == "tails" and full):
                indexes = range(prefix if pattern == "tails" else number)
            elif pattern == "prefix":
                indexes = range(prefix if self.chance(0.6) else self.random.randint(0, number))
            elif pattern == "tails":
                keep = self.random.randint(1, max(1, per))
                ends = [end for end in range(per, number + 1, per) if self.chance(0.85)]
                ends += [self.random.randint(0, number) for _ in range(self.random.randint(0, 3))]
                indexes = sorted({i for end in ends for i in range(max(0, end - keep), end)})
            elif pattern == "ends":
                indexes = [i for i in self.chunk_ends(case, group, number) if self.chance(0.9)]
            elif pattern == "points":
                points = self.random.randint(1, 4) if number else 0
                indexes = sorted({self.random.randrange(number) for _ in range(points)})
            else:
                density = self.pick(0.97, 0.9, 0.7) if pattern == "holes" else self.pick(0.1, 0.3, 0.5)
                indexes = [i for i in range(number) if self.chance(density)]
            presence.append(self.ranges(indexes))
        return presence

    # Cases

    def set_partial_hits(self, case):
        if self.features.partial_argument:
            align = any(group.get("mamba_cache_mode") == "align" for group in case["groups"])
            case["enable_partial_hash_hits"] = self.chance(0.7 if align else 0.15)
        elif self.features.dcp_argument and self.chance(0.2):
            case["dcp_size"] = self.pick(2, 4)

    def find_hit(self, identity):
        case = self.pool(identity)
        self.set_partial_hits(case)
        number = self.number_of_hashes(case)
        everything = self.chance(0.05)
        return case | {
            "hash_len": 8,
            "num_hashes": number,
            "present": None if everything else self.present(case, number),
            "max_length": self.length(case, number * case["hash_block_size"]),
            "apply_eagle": self.chance(0.75),
        }

    def masks(self, identity):
        case = self.pool(identity)
        self.set_partial_hits(case)
        scheduler, unit = case["scheduler_block_size"], case["hash_block_size"]
        case["op"] = self.pick("store_mask", "store_mask", "store_mask", "lookup_mask", "load_mask")
        if case["op"] == "load_mask":
            number = self.number_of_hashes(case)
            return case | {"num_hashes": number, "token_len": self.length(case, number * unit)}
        fine = case.get("enable_partial_hash_hits") or self.chance(0.2)
        length = self.random.randint(0, 8) * scheduler
        if fine:
            length = self.random.randint(0, 8 * scheduler // unit) * unit
        elif self.chance(0.08):
            length += self.random.randint(1, scheduler)
        case["aligned_token_len"] = min(length, 40000 // unit * unit)
        if case["op"] == "lookup_mask":
            return case
        size = self.random.choice(case["groups"])["block_size"]
        case["retention_interval"] = self.pick(
            None, 0, 0, scheduler, 2 * scheduler, size,
            scheduler * self.random.randint(1, 6), self.random.randint(1, 2 * scheduler),
        )  # fmt: skip
        case["num_prompt_tokens"] = self.pick(
            None, length, length + 1, self.random.randint(0, length + scheduler), self.length(case, length)
        )
        if self.features.start_token:
            start = self.random.randint(0, length + scheduler)
            case["start_token"] = self.pick(0, start // scheduler * scheduler, start // size * size, start)
        return case

    def worker_lookup(self, identity):
        case = self.pool(identity)
        features = self.features
        if len(case["groups"]) == 1 and features.lone_group_resized:
            case["scheduler_block_size"] = case["groups"][0]["block_size"]
        case |= {
            "model_name": self.random.choice(MODELS),
            "cache_prefix": self.pick("", "", "team-1/blue", "a@b"),
            "tp_size": self.pick(1, 1, 2, 2, 4, 8, 3),
            "num_kv_head": self.pick(1, 2, 4, 8, 3),
            "pp_size": self.pick(1, 1, 1, 2, 3),
        }
        if features.rank_counts:
            case["pcp_size"] = self.pick(1, 1, 1, 1, 2, 3)
            case["dcp_size"] = self.dcp_size(case)
        else:
            case["pcp_rank"] = self.pick(0, 0, 0, 1)
            case["dcp_rank"] = self.pick(0, 0, 0, 1)
        self.set_options(case)
        if case.get("cache_hit_alignment_tokens") and case["scheduler_block_size"] % case["hash_block_size"]:
            case["cache_hit_alignment_tokens"] = None
        number = self.number_of_hashes(case)
        case |= {
            "hash_len": self.pick(4, 8, 16, 32),
            "num_hashes": number,
            "token_len": self.length(case, number * case["hash_block_size"]),
        }
        if not features.any_length and self.chance(0.95):
            case["token_len"] -= case["token_len"] % case["scheduler_block_size"]
        kept = [group for group in case["groups"] if self.is_store_group(group)]
        case["present"] = self.present(case | {"groups": kept}, number)
        case["absent"] = self.absent(len(kept), number)
        case["store"] = self.pick(*["normal"] * 14, "negative", "twos", "raises", "short_result", "long_result")
        return case

    def dcp_size(self, case):
        if self.chance(0.8):
            return 1
        size = self.pick(2, 2, 4)
        if case["tp_size"] % size:
            case["tp_size"] = size
        if not self.features.dcp_factor:
            return size
        divisible = all(
            group["block_size"] % size == 0 and not self.is_scratch(group)
            for group in case["groups"]
            if group["kind"] != "mamba"
        )
        return size if divisible else 1

    def set_options(self, case):
        features = self.features
        if features.transfer_flag and len(case["groups"]) > 1 and self.chance(0.06):
            group = self.random.choice(case["groups"])
            group["enable_kv_transfer"] = False
            if not any(map(self.is_store_group, case["groups"])):
                group["enable_kv_transfer"] = True
        if features.capacity_only and self.chance(0.01):
            case["capacity_only"] = True
        if features.alignment:
            case["cache_hit_alignment_tokens"] = self.pick(
                None, case["hash_block_size"], case["hash_block_size"], case["scheduler_block_size"]
            )
        if features.namespaces and self.chance(0.3):
            case["extra_config"] = self.pick(
                {}, {"store_tp_size": self.pick(1, 2, 3, 4, 6, 8, 16, 2.0, "4", None)},
                {"store_tp_size": case["tp_size"] * self.pick(1, 2, 4)},
                {
                    "enable_store_tp_lcm": True,
                    "prefill_tp_sizes": self.pick([1, 2], [2, 4], [3, 2], [], [0, 2], [8], [1, 2, 4]),
                },
                {"enable_store_tp_lcm": False, "store_tp_size": 2},
            )  # fmt: skip
            if self.chance(0.15):
                case["extra_config"]["enable_cross_layers_blocks"] = self.pick(True, False, "true", "no")
            case["kv_cache_layout"] = self.pick("LBHNC", "LBHNC", "LBNHC")

    def is_store_group(self, group):
        if not group.get("enable_kv_transfer", True):
            return False
        return not (self.features.scratch_exempt and self.is_scratch(group))

    def absent(self, groups, number):
        entries = []
        while groups and number and self.chance(0.45):
            start = self.random.randrange(number)
            prefix = None if self.chance(0.3) else sorted({self.random.randrange(4) for _ in range(2)})
            end = start + self.random.randint(1, 6)
            entries.append({"group": self.random.randrange(groups), "prefix": prefix, "ranges": [[start, end]]})
        return entries
