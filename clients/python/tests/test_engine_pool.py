"""Descriptions of engines' pools, made with the unmodified modules of vLLM's releases."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import sys
import unittest
import unittest.mock
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hitline import VLLM_RELEASES
from hitline.engine_pool import _KINDS, UnsupportedPool, describe
from tests.support import CONFIGS, NEWEST
from tests.test_releases import recorded_as
from tests.test_wheels import InWheels

RELEASES = list(VLLM_RELEASES)

# The class of vLLM's spec, by kind.
CLASSES = {kind: name for name, kind in reversed(list(_KINDS.items()))}

# Fields of a spec that groups of the vectors have under the same name.
SPEC_FIELDS = (
    "sliding_window", "attention_chunk_size", "mamba_cache_mode", "rswa_window",
    "extra_retained_tokens", "bounded_replay",
)  # fmt: skip

LLAMA = {
    "model": "org/model", "use_mla": False, "num_kv_heads": 8, "tp": 2, "pp": 1, "pcp": 1, "dcp": 1,
    "block_size": 16, "prefix_match_unit": None, "enable_prefix_caching": True, "use_eagle": False,
    "retention_interval": None, "kv_cache_layout": "LBHNC", "kv_role": "kv_both", "extra_config": {},
}  # fmt: skip
FULL = {"kind": "full_attention", "block_size": 16}
WINDOW = {"kind": "sliding_window", "block_size": 16, "sliding_window": 32}


def is_since(release: str, first: str) -> bool:
    return RELEASES.index(release) >= RELEASES.index(first)


def own_fields(cls: type[Any], **values: Any) -> dict[str, Any]:
    """Those of the values that are fields of cls."""
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: value for name, value in values.items() if name in names}


class Engine:
    """What an engine gives the connector, in the classes of the loaded release."""

    def __init__(self, release: str) -> None:
        self.release = release
        self.layers = 0
        self.specs = importlib.import_module("vllm.v1.kv_cache_interface")
        self.utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
        managers.register_all_kvcache_specs(None)

    def spec(self, group: dict[str, Any]) -> Any:
        cls = getattr(self.specs, CLASSES[group["kind"]])
        variant = group.get("variant", 0)
        values = {
            "num_kv_heads": 1 + variant,
            "head_size": 64,
            "dtype": self.specs.torch.float16,
            "shapes": ((1 + variant, 8),),
            "dtypes": (self.specs.torch.float16,),
            "page_size": 4096 * (1 + variant),
            "blocks_per_request": 4,
            **({"sliding_window": group["block_size"]} if group["kind"] == "kpool_tail" else {}),
            **{name: value for name, value in group.items() if name in ("block_size", *SPEC_FIELDS)},
        }
        return cls(**own_fields(cls, **values))

    def wrap(self, *specs: Any) -> Any:
        """A spec of layers of unequal specs."""
        self.layers += 1
        wrapped = {f"layer.{self.layers}.{number}": spec for number, spec in enumerate(specs)}
        return self.specs.UniformTypeKVCacheSpecs(block_size=specs[0].block_size, kv_cache_specs=wrapped)

    def group(self, spec: Any, **flags: Any) -> Any:
        cls = self.specs.KVCacheGroupSpec
        if missing := flags.keys() - own_fields(cls, **flags).keys():
            raise ValueError(f"groups of vLLM {self.release} have no {missing}")
        self.layers += 1
        layers = list(getattr(spec, "kv_cache_specs", (f"layer.{self.layers}.a", f"layer.{self.layers}.b")))
        return cls(layer_names=layers, kv_cache_spec=spec, **flags)

    def groups(self, groups: Sequence[dict[str, Any]]) -> list[Any]:
        built = []
        for group in groups:
            spec = self.spec(group)
            if group.get("uniform"):
                spec = self.wrap(spec, self.spec({**group, "variant": 7}))
            flags = {name: group[name] for name in ("is_eagle_group", "enable_kv_transfer") if name in group}
            built.append(self.group(spec, **flags))
        return built

    def tensors(self, groups: Sequence[Any]) -> list[Any]:
        """Those of a worker, one for the layers of each spec. Nothing depends on their
        sizes, and to 0.28.0 nothing on their layers."""
        cls = self.specs.KVCacheTensor
        if not is_since(self.release, "0.29.0"):
            return []
        layers = []
        for group in groups:
            layers += [[name] for name in getattr(group.kv_cache_spec, "kv_cache_specs", ())] or [group.layer_names]
        return [cls(size=0, layers=names, layer_stride=0, block_stride=0) for names in layers]

    def configs(self, groups: Sequence[Any], vllm: dict[str, Any], worker: bool = False) -> tuple[Any, Any]:
        """The arguments of the constructor of the connector's scheduler side, or of its
        workers, whose specs may be wrapped. vLLM's functions make and resolve them."""
        sys.modules["vllm"].__dict__["__version__"] = self.release + "+cpu"
        # From 0.29.0 on the connector does not read the variable.
        interval = 77 if is_since(self.release, "0.29.0") else vllm["retention_interval"]
        importlib.import_module("vllm.envs").__dict__["VLLM_PREFIX_CACHE_RETENTION_INTERVAL"] = interval
        unit = "prefix_match_unit" if is_since(self.release, "0.26.0") else "hash_block_size"
        eagle = SimpleNamespace(use_eagle=lambda: True, use_eagle_block_drop=lambda: True)
        layout = vllm["kv_cache_layout"]
        vllm_config = SimpleNamespace(
            model_config=SimpleNamespace(
                model=vllm["model"], use_mla=vllm["use_mla"], get_total_num_kv_heads=lambda: vllm["num_kv_heads"]
            ),
            parallel_config=SimpleNamespace(
                tensor_parallel_size=vllm["tp"],
                pipeline_parallel_size=vllm["pp"],
                prefill_context_parallel_size=vllm["pcp"],
                decode_context_parallel_size=vllm["dcp"],
            ),
            cache_config=SimpleNamespace(
                block_size=vllm["block_size"],
                enable_prefix_caching=vllm["enable_prefix_caching"],
                prefix_caching_hash_algo=vllm.get("hash_algo", "sha256"),
                get_resolved_kv_cache_layout=lambda: self.specs.KVCacheLayout[layout],
                **{unit: vllm["prefix_match_unit"]},
            ),
            kv_transfer_config=SimpleNamespace(
                kv_role=vllm["kv_role"], kv_connector_extra_config=vllm["extra_config"]
            ),
            speculative_config=eagle if vllm["use_eagle"] else None,
        )
        cls = self.specs.KVCacheConfig
        kv_cache_config = cls(
            num_blocks=1,
            kv_cache_tensors=self.tensors(groups),
            kv_cache_groups=list(groups),
            **own_fields(cls, prefix_cache_retention_interval=vllm["retention_interval"], kv_cache_layout=layout),
        )
        scheduler_config = self.utils.generate_scheduler_kv_cache_config([kv_cache_config])
        if hasattr(self.utils, "resolve_cache_hit_alignment_tokens"):
            with contextlib.suppress(ValueError):  # vLLM refuses the sizes
                sizes = self.utils.resolve_kv_cache_block_sizes(scheduler_config, vllm_config)
                tokens = self.utils.resolve_cache_hit_alignment_tokens(scheduler_config, vllm_config, *sizes)
                for config in (kv_cache_config, scheduler_config):
                    config.hash_block_size, config.cache_hit_alignment_tokens = sizes[1], tokens
        return vllm_config, kv_cache_config if worker else scheduler_config

    def describe(self, groups: Sequence[Any], worker: bool = False, **vllm: Any) -> dict[str, Any]:
        return describe(*self.configs(groups, {**LLAMA, **vllm}, worker))


_Test = Callable[[Any, Engine], None]


def in_releases(first: str = RELEASES[0], last: str = RELEASES[-1]) -> Callable[[_Test], Callable[[Any], None]]:
    """Has a test called with the engine of each release from first to last."""

    def decorate(test: _Test) -> Callable[[Any], None]:
        @functools.wraps(test)
        def run(self: Any) -> None:
            for release in RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1]:
                with self.subTest(release):
                    test(self, self.engine(release))

        return run

    return decorate


class Described(InWheels):
    def engine(self, release: str) -> Engine:
        self.load(release, engine=True)
        return Engine(release)

    def refused(self, engine: Engine, groups: Sequence[Any], text: str, worker: bool = False, **vllm: Any) -> None:
        with self.assertRaisesRegex(UnsupportedPool, text) as raised:
            engine.describe(groups, worker, **vllm)
        self.assertRegex(str(raised.exception), r"^hitline cannot describe the engine's pool: [^\n]+; [^\n]+$")


@unittest.skipUnless(CONFIGS, "HITLINE_TEST_CONFIGS names no folder of vectors")
class Vectors(Described):
    """Describes each configuration of the vectors. The descriptions are written beside them, for the Go
    test that compares them with the engines' pools."""

    @in_releases()
    def test_configurations(self, engine: Engine) -> None:
        recorded = {}
        for path in Path(CONFIGS).glob("config-*.json"):
            vectors = json.loads(path.read_text())
            recorded.update(dict.fromkeys(vectors["reference"]["releases"], vectors["cases"]))
        descriptions = {}
        for case in recorded[recorded_as(engine.release, recorded)]:
            with contextlib.suppress(UnsupportedPool):
                descriptions[case["id"]] = engine.describe(engine.groups(case["groups"]), **case["vllm"])
        (Path(CONFIGS) / f"described-{engine.release}.json").write_text(json.dumps(descriptions))


class Groups(Described):
    @in_releases()
    def test_variants(self, engine: Engine) -> None:
        heads = [dataclasses.replace(engine.spec(FULL), num_kv_heads=n) for n in (4, 4, 8, 4, 2)]
        window = engine.spec(WINDOW)
        specs = [*heads, window, dataclasses.replace(window, head_size=128), engine.wrap(heads[2], heads[0])]
        pool = engine.describe([engine.group(spec) for spec in specs])
        self.assertEqual([group.get("variant", 0) for group in pool["groups"]], [0, 0, 1, 0, 2, 0, 1, 1])
        self.assertNotIn("variant", engine.describe([engine.group(heads[4])])["groups"][0])

    @in_releases("0.28.0")
    def test_windows_that_include_their_extra_tokens(self, engine: Engine) -> None:
        groups = [
            {**WINDOW, "sliding_window": window, "extra_retained_tokens": extra, "variant": variant}
            for window, extra, variant in ((48, 16, 0), (64, 0, 0), (32, 32, 1), (48, 16, 1))
        ]
        pool = engine.describe(engine.groups([FULL, *groups]))
        variants = [0, 0, 0, 1, 1] if is_since(engine.release, "0.33.0") else [0, 0, 0, 0, 1]
        self.assertEqual([group.get("variant", 0) for group in pool["groups"]], variants)
        self.assertEqual([group.get("extra_retained_tokens", 0) for group in pool["groups"]], [0, 16, 0, 32, 16])
        self.assertEqual([group.get("sliding_window") for group in pool["groups"]], [None, 48, 64, 32, 48])

    @in_releases()
    def test_wrapped_specs(self, engine: Engine) -> None:
        full = engine.spec(FULL)
        large = dataclasses.replace(full, num_kv_heads=32)
        uniform = {"uniform": True} if is_since(engine.release, "0.30.0") else {}
        groups = [engine.group(spec) for spec in (full, engine.wrap(full, large), engine.wrap(large, full), full)]
        want = [FULL, {**FULL, **uniform}, {**FULL, **uniform, "variant": 1}, FULL]
        for worker in (False, True):
            self.assertEqual(engine.describe(groups, worker)["groups"], want)
        window = engine.spec(WINDOW)
        mixed = engine.group(engine.wrap(full, window))
        self.refused(engine, [mixed], "spec of group 0 wraps full_attention and sliding_window", worker=True)

    @in_releases(last="0.28.0")
    def test_a_wrapped_spec_that_the_connector_does_not_resize(self, engine: Engine) -> None:
        group = engine.group(engine.wrap(engine.spec(FULL)))
        self.refused(engine, [group], "spec of group 0 has blocks of 32 tokens and wraps one of 16", worker=True, dcp=2)
        self.assertEqual(engine.describe([group], dcp=2)["groups"][0]["block_size"], 32)
        self.assertEqual(engine.describe([engine.group(engine.spec(FULL))], dcp=2)["groups"][0]["block_size"], 32)

    @in_releases()
    def test_without_a_description(self, engine: Engine) -> None:
        full = engine.spec(FULL)
        cross = engine.specs.CrossAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=full.dtype)
        self.refused(engine, [engine.group(full), engine.group(cross)], "group 1 is cross attention, .*; run this model without")
        custom = type("CustomSpec", (type(full),), {"__module__": "a.plugin"})
        values = {field.name: getattr(full, field.name) for field in dataclasses.fields(full)}
        self.refused(engine, [engine.group(custom(**values))], "group 0 is a a.plugin.CustomSpec, which has no kind here")
        self.refused(engine, [], "it has no KV cache groups")
        unaligned = [engine.group(full), engine.group(dataclasses.replace(full, block_size=24))]
        self.refused(engine, unaligned, "vLLM refuses its block sizes: .*=7; .*; correct the engine", prefix_match_unit=7)
        mamba = engine.spec({"kind": "mamba", "block_size": 16, "mamba_cache_mode": "half"})
        self.refused(engine, [engine.group(mamba)], "group 0 has mamba_cache_mode half")
        self.assertEqual(engine.describe([engine.group(full)])["groups"], [FULL])

    @in_releases("0.30.0")
    def test_scratch_that_is_cached(self, engine: Engine) -> None:
        cls = engine.specs.FullAttentionSpec
        with unittest.mock.patch.object(cls, "prefix_cacheable", False):
            self.refused(engine, [engine.group(engine.spec(FULL))], "group 0, full_attention, is not cached, unlike")
        scratch = engine.spec({"kind": "circular_buffer", "block_size": 16})
        with unittest.mock.patch.object(type(scratch), "prefix_cacheable", True):
            self.refused(engine, [engine.group(scratch)], "group 0, circular_buffer, is cached, unlike")


class Fields(Described):
    @in_releases()
    def test_speculative_methods(self, engine: Engine) -> None:
        configs = engine.configs(engine.groups([FULL]), LLAMA)
        for speculative, want in (
            (None, False),
            (SimpleNamespace(), False),
            (SimpleNamespace(use_eagle=lambda: False, use_eagle_block_drop=lambda: False), False),
            (SimpleNamespace(use_eagle=lambda: True, use_eagle_block_drop=lambda: True), True),
            (SimpleNamespace(use_eagle=lambda: True, use_eagle_block_drop=lambda: False), not is_since(engine.release, "0.30.0")),
        ):
            configs[0].speculative_config = speculative
            self.assertIs(describe(*configs)["use_eagle"], want)

    @in_releases()
    def test_hash_lengths(self, engine: Engine) -> None:
        for algo, want in (("sha256", 32), ("sha256_cbor", 32), ("xxhash", 16), ("xxhash_cbor", 16), ("blake3", None)):
            self.assertEqual(engine.describe(engine.groups([FULL]), hash_algo=algo).get("hash_len"), want)
        vllm_config, kv_cache_config = engine.configs(engine.groups([FULL]), LLAMA)
        del vllm_config.cache_config.prefix_caching_hash_algo
        self.assertNotIn("hash_len", describe(vllm_config, kv_cache_config))

    @in_releases()
    def test_capacity_only(self, engine: Engine) -> None:
        consumer: dict[str, Any] = {"kv_role": "kv_consumer", "extra_config": {"enable_lookup": False}}
        saving = {**consumer, "extra_config": {"enable_lookup": False, "save_decode_cache": True}}
        groups = engine.groups([FULL])
        absent = not is_since(engine.release, "0.27.0")
        for vllm, want in (
            ({}, False),
            (consumer, True),
            ({**consumer, "kv_role": "kv_both"}, False),
            ({**consumer, "extra_config": {}}, False),
            (saving, not is_since(engine.release, "0.29.0")),
        ):
            pool = engine.describe(groups, **vllm)
            self.assertEqual(pool.get("capacity_only"), None if absent else want)
        if not absent:
            self.assertEqual(engine.describe([], **consumer)["groups"], [])

    @in_releases()
    def test_sharing(self, engine: Engine) -> None:
        lcm = {"enable_store_tp_lcm": True}
        cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
            ({}, {}),
            ({"store_tp_size": 4}, {"store_tp_size": 4}),
            *(({"store_tp_size": size}, {"store_tp_size": 0}) for size in (2.0, "4", True, 0, -1)),
            ({"store_tp_size": None}, {}),
            ({**lcm, "prefill_tp_sizes": [2, 6]}, {**lcm, "prefill_tp_sizes": [2, 6]}),
            *(({**lcm, "prefill_tp_sizes": sizes}, lcm) for sizes in ([2, 0], [2, 4.0], (2, 4), "24", None, [])),
            ({"enable_store_tp_lcm": "true"}, {}),
            *(({"enable_cross_layers_blocks": on}, {"enable_cross_layers_blocks": True}) for on in (True, "TRUE", "true")),
            *(({"enable_cross_layers_blocks": off}, {}) for off in (False, "no", 1, None)),
        )
        for extra, want in cases:
            pool = engine.describe(engine.groups([FULL]), extra_config=extra)
            names = ("store_tp_size", "enable_store_tp_lcm", "prefill_tp_sizes", "enable_cross_layers_blocks")
            got = {name: pool[name] for name in names if name in pool}
            default: dict[str, Any] = {"enable_store_tp_lcm": False, "prefill_tp_sizes": [], "enable_cross_layers_blocks": False}
            self.assertEqual(got, {**default, **want} if is_since(engine.release, "0.30.0") else {}, extra)

    @in_releases("0.30.0")
    def test_what_the_engine_has_resolved(self, engine: Engine) -> None:
        vllm_config, kv_cache_config = engine.configs(engine.groups([FULL]), LLAMA)
        vllm_config.cache_config.get_resolved_kv_cache_layout = lambda: SimpleNamespace(name="BLHNC")
        self.assertEqual(describe(vllm_config, kv_cache_config)["kv_cache_layout"], "LBHNC")
        kv_cache_config.kv_cache_layout = None
        self.assertEqual(describe(vllm_config, kv_cache_config)["kv_cache_layout"], "BLHNC")
        vllm_config.cache_config.get_resolved_kv_cache_layout = unittest.mock.Mock(side_effect=ValueError("not yet"))
        with self.assertRaisesRegex(UnsupportedPool, "its KV cache layout is not known: not yet"):
            describe(vllm_config, kv_cache_config)
        if is_since(engine.release, "0.32.0"):
            kv_cache_config.kv_cache_layout = "LBHNC"
            kv_cache_config.cache_hit_alignment_tokens = None
            self.assertNotIn("cache_hit_alignment_tokens", describe(vllm_config, kv_cache_config))
            kv_cache_config.hash_block_size = 8
            with self.assertRaisesRegex(UnsupportedPool, "hashes blocks of 8 tokens, and the connector of 16"):
                describe(vllm_config, kv_cache_config)

    def test_release(self) -> None:
        engine = self.engine(NEWEST)
        configs = engine.configs(engine.groups([FULL]), LLAMA)
        self.assertEqual(describe(*configs)["vllm"], NEWEST)  # of vllm.__version__, 0.33.0+cpu
        sys.modules["vllm"].__dict__["__version__"] = "0.33.1.dev3+g0"
        self.assertEqual(describe(*configs, NEWEST)["vllm"], NEWEST)
        with self.assertRaisesRegex(UnsupportedPool, "vLLM is 0.33.1.dev3, known are 0.24.0, .*; set HITLINE_VLLM to one"):
            describe(*configs)


if __name__ == "__main__":
    unittest.main()
