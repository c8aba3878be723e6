"""Makes vLLM's MooncakeStoreConnector ask a hitline server.

vLLM calls register in each of its processes. If HITLINE_ADDRESS is not set it does
nothing. Otherwise the class that the connector's scheduler side uses for lookups is
replaced, in the module that defines it and in the one that imports it by name, now or
as soon as they are imported. HITLINE_TIMEOUT bounds each lookup in seconds (default 1).

The replacement has the methods of the engine's release and returns what they return:
from 0.29.0 on vLLM's own MooncakeLookupResult. The release is vllm.__version__, or
HITLINE_VLLM for a build of vLLM that is no release. Before its first lookup the client
compares it with the release that the server answers for; where they differ, lookups are
hits of 0 and an error says why.

What is replaced must have the shape that it has in that release. If it has another one,
the import of that module fails with UnsupportedVLLM: an engine does not start with half
a replacement, nor quietly without it.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from hitline.client import MOST_TIMEOUT, VLLM_RELEASES, LookupKeyClient
from hitline.load_failures import LoadTrackingClient

__all__ = ["UnsupportedVLLM", "register"]

# A child of vLLM's logger, whose handlers and level it shares.
logger = logging.getLogger("vllm.hitline")

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
MODULES = (PACKAGE + ".worker", PACKAGE + ".scheduler")
DATA = PACKAGE + ".data"
CLASS = "LookupKeyClient"

# Of a method, the names of its parameters, self left out, and whether they have a default.
_Parameters = list[tuple[str, bool]]

_RELEASES = list(VLLM_RELEASES)

# Classes of the module DATA from 0.29.0 on, which results are made of.
RESULTS: dict[str, _Parameters] = {
    "MooncakeLookupResult": [("hit_length", False), ("tail_key_boundaries", True)],
    "TailKeyBoundary": [("group_id", False), ("num_tokens", False)],
}


def _is_since(release: str, first: str) -> bool:
    return _RELEASES.index(release) >= _RELEASES.index(first)


def _shape(release: str) -> dict[str, _Parameters]:
    """The methods of the class in a release."""
    tokens = "num_tokens" if _is_since(release, "0.27.0") else "token_len"
    return {
        "__init__": [("vllm_config", False)],
        "lookup": [("req_id", False), (tokens, False), ("block_hashes", False), ("non_block", True)],
        "discard": [("req_id", False)],
        "reset": [],
        "close": [],
    }


def _result(release: str) -> str:
    """What lookup returns in a release, or None."""
    return "MooncakeLookupResult" if _is_since(release, "0.29.0") else "int"


def _modules(release: str) -> list[str]:
    """The modules that a release must have."""
    return [*MODULES, DATA] if _result(release) in RESULTS else [*MODULES]


def _expected(release: str) -> str:
    tokens = _shape(release)["lookup"][1][0]
    text = (
        f"that of vLLM {release}, {CLASS}(vllm_config) in {MODULES[0]}, imported by name into {MODULES[1]}, with "
        f"lookup(req_id, {tokens}, block_hashes, non_block=False) -> {_result(release)} | None, "
        "discard(req_id), reset() and close(), and no other public methods"
    )
    if DATA in _modules(release):
        text += (
            ", and MooncakeLookupResult(hit_length, tail_key_boundaries=()) and "
            f"TailKeyBoundary(group_id, num_tokens) in {DATA}"
        )
    return text


class UnsupportedVLLM(ImportError):
    """This vLLM has no lookup client of the shape that can be replaced."""


def register() -> None:
    """Entry point of the group vllm.general_plugins."""
    address = os.environ.get("HITLINE_ADDRESS")
    if not address or any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    timeout = _timeout()
    LookupKeyClient(address).close()  # refuses a bad address now, and connects to nothing
    release = _release()
    for name in _modules(release):
        if not _exists(name):
            _refuse(f"there is no module {name}", _expected(release))
    replacement = _replacement(address, timeout, release)
    present = [sys.modules[name] for name in MODULES if name in sys.modules]
    for module in present:
        _check(module, replacement)
    for module in present:
        setattr(module, CLASS, replacement)
    sys.meta_path.insert(0, _Finder(replacement))


def _release() -> str:
    """The release of vLLM that runs here."""
    named = os.environ.get("HITLINE_VLLM", "")
    if named:
        if named not in VLLM_RELEASES:
            raise ValueError(f"HITLINE_VLLM is {named!r}, must be one of {', '.join(VLLM_RELEASES)}")
        return named
    if not _exists("vllm"):
        _refuse("there is no module vllm", f"vLLM, one of {', '.join(VLLM_RELEASES)}")
    version = getattr(importlib.import_module("vllm"), "__version__", None)
    # What follows + names the build: 0.28.0+cpu.
    release = version.partition("+")[0] if isinstance(version, str) else ""
    if release not in VLLM_RELEASES:
        advice = "set HITLINE_VLLM to the one whose connector this vLLM has, or "
        _refuse(f"vLLM is {version}", f"one of {', '.join(VLLM_RELEASES)}", advice)
    return release


def _timeout() -> float:
    text = os.environ.get("HITLINE_TIMEOUT", "1")
    try:
        timeout = float(text)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= MOST_TIMEOUT:
        raise ValueError(f"HITLINE_TIMEOUT is {text!r}, must be a number of seconds, more than 0 and at most {MOST_TIMEOUT:.0f}")
    return timeout


def _replacement(address: str, timeout: float, release: str) -> type[LookupKeyClient]:
    class HitlineLookupKeyClient(LoadTrackingClient):
        """What it logs goes where vLLM's own lines go."""

        _logger = logger
        _release = release

        def __init__(self, vllm_config: object) -> None:
            super().__init__(address, timeout=timeout, vllm=release)
            logger.info("lookups are asked of hitline at %s, in the form of vLLM %s", address, release)

    if not _is_since(release, "0.27.0"):
        return HitlineLookupKeyClient

    class NumTokensLookupKeyClient(HitlineLookupKeyClient):
        def lookup(  # type: ignore[override]
            self, req_id: str, num_tokens: int, block_hashes: Sequence[bytes], non_block: bool = False
        ) -> Any:
            return super().lookup(req_id, num_tokens, block_hashes, non_block)

    return NumTokensLookupKeyClient


def _exists(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # nor is its package there
        return False


class _Finder(MetaPathFinder):
    """Has a module's class replaced when the module has been executed."""

    def __init__(self, replacement: type[Any]) -> None:
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
                _check(module, self.replacement)
                setattr(module, CLASS, self.replacement)

        loader.exec_module = exec_module


def _check(module: ModuleType, replacement: Any) -> None:
    """Refuses a module whose class cannot be replaced. Has replacement return the
    engine's own results."""
    release = replacement._release
    difference = _difference(getattr(module, CLASS, None), release)
    if difference:
        _refuse(f"in {module.__name__}, {difference}", _expected(release))
    if DATA not in _modules(release):
        return
    data = importlib.import_module(DATA)
    for name, parameters in RESULTS.items():
        found = getattr(data, name, None)
        if not isinstance(found, type):
            _refuse(f"in {DATA}, {name} is {'missing' if found is None else 'no class'}", _expected(release))
        if _parameters(found) != parameters:
            _refuse(f"in {DATA}, {name} is built with {inspect.signature(found)}", _expected(release))
    replacement._result_type = data.MooncakeLookupResult
    replacement._boundary_type = data.TailKeyBoundary


def _difference(found: object, release: str) -> str:
    """Tells how found differs from the class in a release; empty if it does not."""
    if not isinstance(found, type):
        return f"{CLASS} is missing" if found is None else f"{CLASS} is no class"
    shape = _shape(release)
    for name, _ in inspect.getmembers(found, callable):
        if not name.startswith("_") and name not in shape:
            return f"{CLASS} has a method {name}"
    for name, want in shape.items():
        method = getattr(found, name, None)
        if not inspect.isfunction(method):
            return f"{CLASS} has no method {name}"
        signature = inspect.signature(method)
        if (_parameters(method) or [])[1:] != want:
            return f"{CLASS} has {name}{signature}"
        returns = signature.return_annotation
        if name == "lookup" and returns is not signature.empty:
            # Of types the text names their modules as well.
            text = re.sub(r"\w+\.", "", _text(returns))
            if text not in (f"{_result(release)} | None", f"Optional[{_result(release)}]"):
                return f"lookup of {CLASS} returns {_text(returns)}"
    return ""


def _parameters(function: Callable[..., Any]) -> _Parameters | None:
    """The names of the parameters and whether they have a default; None if some cannot
    be given by position."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in parameters):
        return None
    return [(p.name, p.default is not p.empty) for p in parameters]


def _text(annotation: object) -> str:
    return annotation.strip("'\"") if isinstance(annotation, str) else str(annotation)


_refused: set[str] = set()


def _refuse(found: str, expected: str, advice: str = "") -> NoReturn:
    text = (
        f"hitline cannot take the place of vLLM's lookup client: {found}; expected is {expected}; "
        f"{advice}unset HITLINE_ADDRESS to go without hitline."
    )
    if text not in _refused:
        _refused.add(text)
        logger.error("%s", text)
    raise UnsupportedVLLM(text)
