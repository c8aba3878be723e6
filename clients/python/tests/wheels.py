"""Modules of vLLM's releases, unmodified, and stubs for all else that they import. HITLINE_TEST_WHEELS names their folder,
which `python3 -B scripts/reference --modules` fetches and prints."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hitline.engine_connector import CONNECTOR
from hitline.vllm_plugin import MODULES, PACKAGE

# The modules that tests import beside those of the connector: what an engine's groups are and how it resolves
# their sizes, its statistics, and from 0.31.0 on Mooncake's configuration. A release lacks
# some of them.
ENGINE = (
    "vllm/distributed/kv_transfer/kv_connector/v1/metrics.py",
    "vllm/distributed/mooncake_store.py",
    "vllm/utils/math_utils.py",
    "vllm/v1/core/kv_cache_utils.py",
    "vllm/v1/core/single_type_kv_cache_manager.py",
    "vllm/v1/kv_cache_interface.py",
    "vllm/v1/kv_cache_layout.py",
    "vllm/v1/kv_cache_spec_registry.py",
)

# Packages that are stubs unless they are installed.
STUBS = ("vllm", "msgspec", "numpy", "prometheus_client", "regex", "torch", "typing_extensions", "zmq")


class _CompiledOnce(importlib.machinery.SourceFileLoader):
    """Loads a file of a release. This process compiles it once, as most of the time of a load
    is that; the module is executed each time."""

    _codes: dict[str, types.CodeType] = {}

    def source_to_code(self, data: Any, path: Any, *, _optimization: int = -1) -> types.CodeType:
        if path not in self._codes:
            self._codes[path] = super().source_to_code(data, path)
        return self._codes[path]


# By the folder of a release its modules of ENGINE with all that they import, each with the names
# that it had when they were loaded.
_engines: dict[Path, list[tuple[types.ModuleType, dict[str, Any]]]] = {}


def load_engine(folder: Path) -> None:
    """Loads the modules of ENGINE of a release, whose Stubs must be in sys.meta_path. A process
    executes them once, as that takes longer than most tests. After that they are put back into
    sys.modules with the names that they had."""
    if folder not in _engines:
        for file in ENGINE:
            if (folder / file).exists():
                importlib.import_module(file.removesuffix(".py").replace("/", "."))
        loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] in STUBS]
        _engines[folder] = [(module, dict(vars(module))) for module in loaded]
    for module, names in _engines[folder]:
        vars(module).clear()
        vars(module).update(names)
        sys.modules[module.__name__] = module


class Stubs(MetaPathFinder, Loader):
    """Finds the store package of a release in folder, with engine also the modules of
    ENGINE, and stubs for all else of STUBS."""

    def __init__(self, folder: Path, engine: bool = False) -> None:
        self.folder = folder
        self.engine = engine

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in STUBS:
            return None
        name = fullname.replace(".", "/")
        at = self.folder / name
        if fullname == PACKAGE:
            return _file_spec(fullname, at / "__init__.py")
        file = at.with_suffix(".py")
        if fullname.startswith(PACKAGE + "."):
            return _file_spec(fullname, file) if file.exists() else None
        if self.engine and f"{name}.py" in ENGINE and file.exists():
            return _file_spec(fullname, file)
        spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        spec.submodule_search_locations = [str(at)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "vllm":
            text = (self.folder / "vllm" / "_version.py").read_text()
            scope: dict[str, Any] = {}
            exec(text, scope)
            module.__dict__["__version__"] = scope["__version__"]


def _file_spec(fullname: str, path: Path) -> importlib.machinery.ModuleSpec | None:
    return importlib.util.spec_from_file_location(fullname, path, loader=_CompiledOnce(fullname, str(path)))


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _StubType(name, (_Stub,), {})
        setattr(self, name, value)
        return value


class _StubType(type):
    """A type that has every attribute, and can be subscripted and called."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _StubType(name, (_Stub,), {})

    def __getitem__(cls, item: object) -> Any:
        return cls


class _Stub(metaclass=_StubType):
    def __init__(self, *args: object, **more: object) -> None:
        pass

    def __call__(self, *args: object, **more: object) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Stub()

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def finished(*req_ids: str) -> Any:
    """A scheduler output in which nothing happens but the end of these requests."""
    return SimpleNamespace(
        finished_req_ids=set(req_ids),
        preempted_req_ids=None,
        scheduled_new_reqs=[],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[]),
    )


class SchedulerSide:
    """That of a release's MooncakeStoreConnector, which hitline can describe no pool of."""

    def __init__(self, groups: int = 1, **extra: Any) -> None:
        scheduler = importlib.import_module(MODULES[1])
        # What the engine works out from its configuration.
        coordinator = SimpleNamespace(enable_partial_hash_hits=False, kv_cache_groups=[])
        for name, value in (
            ("resolve_kv_cache_block_sizes", lambda *_: (16, 16)),
            ("partial_hash_hits_enabled", lambda *_: False),
            ("MooncakeStoreCoordinator", SimpleNamespace(from_kv_cache_config=lambda *_: coordinator)),
        ):
            if hasattr(scheduler, name):
                setattr(scheduler, name, value)
        module: Any = importlib.import_module(CONNECTOR)
        module.KVConnectorRole = SimpleNamespace(SCHEDULER="scheduler", WORKER="worker")
        parts = [SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16)) for _ in range(groups)]
        self.connector = module.MooncakeStoreConnector(
            SimpleNamespace(
                kv_transfer_config=SimpleNamespace(kv_role="kv_both", kv_connector_extra_config=extra),
                parallel_config=SimpleNamespace(
                    world_size=1, prefill_context_parallel_size=1, decode_context_parallel_size=1
                ),
                cache_config=SimpleNamespace(block_size=16),
                kv_events_config=None,
            ),
            "scheduler",
            SimpleNamespace(
                kv_cache_groups=parts,
                transfer_groups=parts,
                transfer_group_ids=list(range(groups)),
                select_transfer_block_ids=lambda block_ids: block_ids,
                prefix_cacheable_groups=parts,
                prefix_cacheable_group_ids=list(range(groups)),
            ),
        )
        self.client = self.connector.connector_scheduler.client
