"""Makes vLLM's MooncakeStoreConnector ask a hitline server.

vLLM calls register in each of its processes. If HITLINE_ADDRESS is not set it does
nothing. Otherwise the class that the connector's scheduler side uses for lookups is
replaced, in the module that defines it and in the one that imports it by name, now or
as soon as they are imported. HITLINE_TIMEOUT bounds each lookup in seconds (default 1).

What is replaced must have the shape this was written for. If it has another one, the
import of that module fails with UnsupportedVLLM: an engine does not start with half a
replacement, nor quietly without it.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from hitline.client import MOST_TIMEOUT, LookupKeyClient

__all__ = ["UnsupportedVLLM", "register"]

# A child of vLLM's logger, whose handlers and level it shares.
logger = logging.getLogger("vllm.hitline")

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
MODULES = (PACKAGE + ".worker", PACKAGE + ".scheduler")
CLASS = "LookupKeyClient"

# Of each method, the names its parameters may have, self left out, and whether they
# have a default.
SHAPE: dict[str, list[tuple[tuple[str, ...], bool]]] = {
    "__init__": [(("vllm_config",), False)],
    "lookup": [
        (("req_id",), False),
        (("token_len", "num_tokens"), False),
        (("block_hashes",), False),
        (("non_block",), True),
    ],
    "discard": [(("req_id",), False)],
    "reset": [],
    "close": [],
}
RESULTS = ("int | None", "Optional[int]", "typing.Optional[int]")
EXPECTED = (
    f"{CLASS}(vllm_config) in {MODULES[0]}, imported by name into {MODULES[1]}, with "
    "lookup(req_id, token_len, block_hashes, non_block=False) -> int | None, "
    "discard(req_id), reset() and close(), and no other public methods"
)


class UnsupportedVLLM(ImportError):
    """This vLLM has no lookup client of the shape that can be replaced."""


def register() -> None:
    """Entry point of the group vllm.general_plugins."""
    address = os.environ.get("HITLINE_ADDRESS")
    if not address or any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    replacement = _replacement(address, _timeout())
    for name in MODULES:
        if not _exists(name):
            _refuse(f"there is no module {name}")
    present = [sys.modules[name] for name in MODULES if name in sys.modules]
    for module in present:
        _check(module)
    for module in present:
        setattr(module, CLASS, replacement)
    sys.meta_path.insert(0, _Finder(replacement))


def _timeout() -> float:
    text = os.environ.get("HITLINE_TIMEOUT", "1")
    try:
        timeout = float(text)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= MOST_TIMEOUT:
        raise ValueError(f"HITLINE_TIMEOUT is {text!r}, must be a number of seconds, more than 0 and at most {MOST_TIMEOUT:.0f}")
    return timeout


def _replacement(address: str, timeout: float) -> type:
    class HitlineLookupKeyClient(LookupKeyClient):
        """Takes what vLLM's client takes, and needs none of it. What it logs goes where
        vLLM's own lines go."""

        _logger = logger

        def __init__(self, vllm_config: object = None) -> None:
            super().__init__(address, timeout=timeout)
            logger.info("lookups are asked of hitline at %s", address)

    LookupKeyClient(address).close()  # refuses a bad address now, and connects to nothing
    return HitlineLookupKeyClient


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is its package there
        return False


class _Finder(MetaPathFinder):
    """Has a module's class replaced when the module has been executed."""

    def __init__(self, replacement: type) -> None:
        self.replacement = replacement

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in MODULES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Some loaders load more than one module, and what was imported by name
            # from a module before may be the replacement already.
            if module.__name__ == spec.name and getattr(module, CLASS, None) is not self.replacement:
                _check(module)
                setattr(module, CLASS, self.replacement)

        loader.exec_module = exec_module


def _check(module: ModuleType) -> None:
    difference = _difference(getattr(module, CLASS, None))
    if difference:
        _refuse(f"in {module.__name__}, {difference}")


def _difference(found: object) -> str:
    """Tells how found differs from what can be replaced; empty if it does not."""
    if not isinstance(found, type):
        return f"{CLASS} is missing" if found is None else f"{CLASS} is no class"
    for name, _ in inspect.getmembers(found, callable):
        if not name.startswith("_") and name not in SHAPE:
            return f"{CLASS} has a method {name}"
    for name, want in SHAPE.items():
        method = getattr(found, name, None)
        if not inspect.isfunction(method):
            return f"{CLASS} has no method {name}"
        signature = inspect.signature(method)
        got = list(signature.parameters.values())[1:]
        if len(got) != len(want) or not all(
            p.kind is p.POSITIONAL_OR_KEYWORD and p.name in names and (p.default is not p.empty) == has_default
            for p, (names, has_default) in zip(got, want)
        ):
            return f"{CLASS} has {name}{signature}"
        returns = signature.return_annotation
        if name == "lookup" and returns is not signature.empty and _text(returns) not in RESULTS:
            return f"lookup of {CLASS} returns {_text(returns)}"
    return ""


def _text(annotation: object) -> str:
    return annotation.strip("'\"") if isinstance(annotation, str) else str(annotation)


_refused: set[str] = set()


def _refuse(difference: str) -> NoReturn:
    text = f"hitline cannot take the place of vLLM's lookup client: {difference}. Expected: {EXPECTED}."
    if text not in _refused:
        _refused.add(text)
        logger.error("%s Unset HITLINE_ADDRESS to go without hitline.", text)
    raise UnsupportedVLLM(text)
