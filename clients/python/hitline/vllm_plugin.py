"""Makes vLLM's MooncakeStoreConnector ask a hitline server.

vLLM calls register in each of its processes. If HITLINE_ADDRESS is not set it does
nothing. Otherwise the class that the connector's scheduler side uses for lookups is
replaced, in the module that defines it and in the one that imports it by name, now or
as soon as they are imported. HITLINE_TIMEOUT bounds each lookup in seconds.
With HITLINE_ADDRESS=auto the process that looks up runs a server of its own; an engine with
enable_lookup false looks up nothing, and keeps vLLM's own client. To another
server the client sends the token of the file HITLINE_TOKEN_FILE. At a tls:// address it trusts
the authorities of the file HITLINE_TLS_CA, and presents the certificate of HITLINE_TLS_CERT with
the key of HITLINE_TLS_KEY. A refused token, or a file of it that cannot be read, is as a server
that cannot be reached.

The replacement has the methods of the engine's release and returns what they return:
from 0.29.0 on vLLM's own MooncakeLookupResult. The release is vllm.__version__, or what
HITLINE_VLLM names. A build with another version is of the known release whose files it has.

When the scheduler side has been built, the engine's pool is described to the server, and
again on each new connection; HITLINE_POOL_NAME adds a name. If the pool cannot be described,
the server is asked for the pool of that name, without one for its own. If the server's pool
differs, the engine does not start. With HITLINE_ON_MISMATCH=miss it starts, and lookups are
hits of 0; with own it starts, and vLLM's own client looks up. Hits are 0, too, while there is no server, while it does not serve the pool for another
reason, and if a pool without a description is of another release.

A lookup begins where the engine's own cache ends: what lies before that counts as present, since
the engine loads only what lies behind it. With HITLINE_LOOKUP=whole it begins at token 0, as
vLLM's own. A request of which the engine has at least as many tokens as a hit could have is not
looked up.

What is replaced must have the shape that it has in that release. If it has another one,
the import of that module fails with UnsupportedVLLM: an engine does not start with half
a replacement, nor quietly without it. So it is with a build of no known release. With
HITLINE_ON_MISMATCH=own vLLM then is as without the plug-in, and a warning says so.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import logging
import operator
import os
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from hitline import engine_keys, vllm_builds
from hitline.client import VLLM_RELEASES, LookupKeyClient, is_since
from hitline.client_info import MAX_TEXT
from hitline.connection import MAX_TIMEOUT, parse_address
from hitline.engine_client import EngineClient, Settings, logger
from hitline.own_server import find_program
from hitline.variables import warn_of_misspelt

__all__ = ["UnsupportedVLLM", "register"]

PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"
MODULES = (PACKAGE + ".worker", PACKAGE + ".scheduler")
DATA = PACKAGE + ".data"
CLASS = "LookupKeyClient"
SCHEDULER_CLASS = "MooncakeStoreScheduler"
WORKER_CLASS = "MooncakeStoreWorker"

# Of a method, the names of its parameters, self left out, and whether they have a default.
_Parameters = list[tuple[str, bool]]


# Classes of the module DATA from 0.29.0 on, which results are made of.
RESULTS: dict[str, _Parameters] = {
    "MooncakeLookupResult": [("hit_length", False), ("tail_key_boundaries", True)],
    "TailKeyBoundary": [("group_id", False), ("num_tokens", False)],
}

# The methods of the scheduler side that are wrapped, of the class SCHEDULER_CLASS.
SCHEDULER_METHODS: dict[str, _Parameters] = {
    "__init__": [("vllm_config", False), ("kv_cache_config", False)],
    "get_num_new_matched_tokens": [("request", False), ("num_computed_tokens", False)],
    "update_state_after_alloc": [("request", False), ("blocks", False), ("num_external_tokens", False)],
}

# The value of HITLINE_ADDRESS for a server of the engine's own.
AUTO = "auto"

ON_MISMATCH = ("fail", "miss", "own")

# Where lookups begin: where the engine's own cache ends, or at token 0.
LOOKUPS = ("local", "whole")

# The workers in this process. Each has the kv_transfer_config it was built with as
# _hitline_transfer.
_workers: weakref.WeakSet[Any] = weakref.WeakSet()


def _shape(release: str) -> dict[str, _Parameters]:
    """The methods of the class in a release."""
    tokens = "num_tokens" if is_since(release, "0.27.0") else "token_len"
    return {
        "__init__": [("vllm_config", False)],
        "lookup": [("req_id", False), (tokens, False), ("block_hashes", False), ("non_block", True)],
        "discard": [("req_id", False)],
        "reset": [],
        "close": [],
    }


def _result(release: str) -> str:
    """What lookup returns in a release, or None."""
    return "MooncakeLookupResult" if is_since(release, "0.29.0") else "int"


def _modules(release: str) -> list[str]:
    """The modules that a release must have."""
    return [*MODULES, DATA] if _result(release) in RESULTS else [*MODULES]


def _expected(release: str) -> str:
    tokens = _shape(release)["lookup"][1][0]
    text = (
        f"that of vLLM {release}, {CLASS}(vllm_config) in {MODULES[0]}, imported by name into {MODULES[1]}, with "
        f"lookup(req_id, {tokens}, block_hashes, non_block=False) -> {_result(release)} | None, "
        "discard(req_id), reset() and close(), and no other public methods, and there "
        f"{SCHEDULER_CLASS}(vllm_config, kv_cache_config) with "
        "get_num_new_matched_tokens(request, num_computed_tokens) and update_state_after_alloc(request, blocks, num_external_tokens)"
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
    if any(isinstance(f, _Finder) for f in sys.meta_path):
        return
    if address != AUTO:  # the engine's own server refuses them
        warn_of_misspelt(os.environ, logger)
    if not address:
        return
    timeout, on_mismatch, pool_name, lookup = _timeout(), _on_mismatch(), _pool_name(), _lookup()
    instance_id = _instance_id()
    program = ""
    if address == AUTO:
        program = find_program()
    else:
        _check_address(address)
    try:
        release = _release()
        for name in _modules(release):
            if not _exists(name):
                _refuse(f"there is no module {name}", _expected(release))
        replacement = _replacement(Settings(address, program, timeout, release, on_mismatch, pool_name, lookup, instance_id))
        present = [sys.modules[name] for name in MODULES if name in sys.modules]
        for module in present:
            _check(module, replacement)
            _check_scheduler(module, replacement)
    except UnsupportedVLLM:
        if on_mismatch == "own":
            return
        raise
    for module in present:
        _replace(module, replacement)
    sys.meta_path.insert(0, _Finder(replacement))


def _check_address(address: str) -> None:
    """Raises ValueError for what is no address or list of them, and for files of TLS that cannot be used."""
    if AUTO in (entry.strip() for entry in address.split(",")):
        raise ValueError(f"HITLINE_ADDRESS is {address!r}: {AUTO} is no address of a list")
    try:
        for entry in address.split(","):
            parse_address(entry.strip())
    except ValueError as error:
        raise ValueError(f"HITLINE_ADDRESS is {address!r}, must be {AUTO} or an address: {error}") from None
    LookupKeyClient(address).close()  # connects to nothing


def _release() -> str:
    """The release of vLLM that runs here."""
    named = os.environ.get("HITLINE_VLLM", "")
    if named:
        if named not in VLLM_RELEASES:
            raise ValueError(f"HITLINE_VLLM is {named!r}, must be one of {', '.join(VLLM_RELEASES)}")
        return named
    if not _exists("vllm"):
        _refuse("there is no module vllm", f"vLLM, one of {', '.join(VLLM_RELEASES)}")
    package = importlib.import_module("vllm")
    version = getattr(package, "__version__", None)
    # What follows + names the build: 0.28.0+cpu.
    release = version.partition("+")[0] if isinstance(version, str) else ""
    return release if release in VLLM_RELEASES else _release_of_build(package)


def _release_of_build(package: ModuleType) -> str:
    """The known release whose files a vLLM has that is of another version."""
    version, files, unread = getattr(package, "__version__", None), {}, ""
    try:
        for folder in list(getattr(package, "__path__", ()))[:1]:
            files = vllm_builds.files_of(Path(folder))
    except OSError as error:
        unread = f" ({error})"
    release = vllm_builds.find_release(files)
    if release:
        logger.info("vLLM %s has the files of vLLM %s: hitline serves it as that release", version, release)
        return release
    found = f"vLLM is {version}, and has the files of no release that is known{unread}"
    if announced := vllm_builds.find_announced(files):
        found += f", but {' and '.join(announced)}, which needs a newer hitline"
    advice = "install a newer hitline, set HITLINE_VLLM to the release whose connector this vLLM has, or "
    _refuse(found, f"one of {', '.join(VLLM_RELEASES)}", advice)


def _timeout() -> float | None:
    text = os.environ.get("HITLINE_TIMEOUT")
    if text is None:
        return None
    try:
        timeout = float(text)
    except ValueError:
        timeout = 0.0
    if not 0 < timeout <= MAX_TIMEOUT:
        raise ValueError(
            f"HITLINE_TIMEOUT is {text!r}, must be a number of seconds, more than 0 and at most {MAX_TIMEOUT:.0f}"
        )
    return timeout


def _on_mismatch() -> str:
    text = os.environ.get("HITLINE_ON_MISMATCH", "") or ON_MISMATCH[0]
    if text not in ON_MISMATCH:
        raise ValueError(
            f"HITLINE_ON_MISMATCH is {text!r}, must be fail (the engine does not start), miss (lookups are hits of 0) "
            "or own (vLLM's own client looks up)"
        )
    return text


def _lookup() -> str:
    text = os.environ.get("HITLINE_LOOKUP", "") or LOOKUPS[0]
    if text not in LOOKUPS:
        raise ValueError(
            f"HITLINE_LOOKUP is {text!r}, must be local (lookups begin where the engine's own cache ends) or whole"
        )
    return text


def _pool_name() -> str:
    name = os.environ.get("HITLINE_POOL_NAME", "")
    if len(name) > 255 or any(not "!" <= letter <= "~" or letter == '"' for letter in name):
        raise ValueError(
            f"HITLINE_POOL_NAME is {name!r}, must be 1 to 255 printable ASCII characters without spaces and quotes"
        )
    return name


def _instance_id() -> str:
    instance_id = os.environ.get("HITLINE_INSTANCE_ID", "")
    if len(instance_id.encode("utf-8", "surrogateescape")) > MAX_TEXT:
        raise ValueError(f"HITLINE_INSTANCE_ID is {instance_id!r:.80}, must have at most {MAX_TEXT} bytes")
    return instance_id


def _replacement(made_settings: Settings) -> type[EngineClient]:
    class HitlineLookupKeyClient(EngineClient):
        settings = made_settings

    if is_since(made_settings.release, "0.27.0"):
        return HitlineLookupKeyClient

    class TokenLenLookupKeyClient(HitlineLookupKeyClient):
        def lookup(  # type: ignore[override]
            self, req_id: str, token_len: int, block_hashes: Sequence[bytes], non_block: bool = False
        ) -> Any:
            return super().lookup(req_id, token_len, block_hashes, non_block)

    return TokenLenLookupKeyClient


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
            if module.__name__ == spec.name:
                self._replace_in(module)

        loader.exec_module = exec_module

    def _replace_in(self, module: ModuleType) -> None:
        try:
            if getattr(module, CLASS, None) is not self.replacement:
                _check(module, self.replacement)
            _check_scheduler(module, self.replacement)
        except UnsupportedVLLM:
            if self.replacement.settings.on_mismatch != "own":
                raise
            if getattr(module, CLASS, None) is self.replacement:  # imported by name
                setattr(module, CLASS, self.replacement.original)
            _restore()
            sys.meta_path.remove(self)
        else:
            _replace(module, self.replacement)


# What _set has replaced: objects, with the names and former values of attributes.
_replaced: list[tuple[Any, str, Any]] = []


def _set(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, getattr(owner, name)))
    setattr(owner, name, value)


def _restore() -> None:
    """Undoes what _set has done."""
    while _replaced:
        setattr(*_replaced.pop())


def _replace(module: ModuleType, replacement: type[Any]) -> None:
    found = getattr(module, CLASS)
    if found is not replacement:
        replacement.original = found
    _set(module, CLASS, replacement)
    if module.__name__ == MODULES[1]:
        _wrap_scheduler(getattr(module, SCHEDULER_CLASS), replacement)
    else:
        _wrap_worker(getattr(module, WORKER_CLASS, None))


def _wrap_scheduler(cls: Any, replacement: type[Any]) -> None:
    """Has the engine's pool described when the scheduler side has been built, and lookups told what
    the engine has itself. Requests that no hit can help are not looked up."""
    build, match, alloc = cls.__init__, cls.get_num_new_matched_tokens, cls.update_state_after_alloc

    @functools.wraps(build)
    def __init__(self: Any, vllm_config: Any, kv_cache_config: Any) -> None:
        build(self, vllm_config, kv_cache_config)
        client = getattr(self, "client", None)
        if isinstance(client, replacement):
            if not client.start(vllm_config, kv_cache_config, _worker_prefixes(vllm_config)):
                self.client = replacement.original(vllm_config)

    @functools.wraps(match)
    def get_num_new_matched_tokens(self: Any, request: Any, num_computed_tokens: int) -> Any:
        client = self.client
        if not isinstance(client, replacement) or not getattr(self, "enable_lookup", True):
            return match(self, request, num_computed_tokens)
        client.num_computed = num_computed_tokens
        try:
            if client.skip_lookup(request, num_computed_tokens):
                return 0, False  # as of a hit of 0
            return match(self, request, num_computed_tokens)
        finally:
            client.num_computed = 0

    @functools.wraps(alloc)
    def update_state_after_alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> Any:
        result = alloc(self, request, blocks, num_external_tokens)
        if num_external_tokens == 0:
            self.load_specs.pop(request.request_id, None)
        return result

    _set(cls, "__init__", __init__)
    _set(cls, "get_num_new_matched_tokens", get_num_new_matched_tokens)
    # In a MultiConnector another child may load the request. These releases then save the hit, for which
    # they were given no blocks.
    if not is_since(replacement.settings.release, "0.30.0"):
        _set(cls, "update_state_after_alloc", update_state_after_alloc)


def _wrap_worker(cls: Any) -> None:
    """Has workers remembered."""
    build = getattr(cls, "__init__", None)
    if not inspect.isfunction(build):
        return

    @functools.wraps(build)
    def __init__(self: Any, vllm_config: Any, *more: Any, **named: Any) -> None:
        build(self, vllm_config, *more, **named)
        self._hitline_transfer = vllm_config.kv_transfer_config
        _workers.add(self)

    _set(cls, "__init__", __init__)


def _worker_prefixes(vllm_config: Any) -> list[list[str]] | None:
    """The key prefixes of the engine's worker, if it is in this process."""
    transfer = getattr(vllm_config, "kv_transfer_config", None)
    # vLLM's MultiConnector makes the scheduler's side and the worker's an equal configuration each,
    # with the identifier of the engine.
    for is_engines in (operator.is_, operator.eq):
        for worker in list(_workers):
            if is_engines(worker._hitline_transfer, transfer):
                return engine_keys.key_prefixes(worker)
    return None


def _check_scheduler(module: ModuleType, replacement: Any) -> None:
    """Refuses a module whose scheduler side cannot be wrapped."""
    if module.__name__ != MODULES[1]:
        return
    found = getattr(module, SCHEDULER_CLASS, None)
    for name, want in SCHEDULER_METHODS.items():
        method = getattr(found, name, None)
        if not inspect.isfunction(method):
            _refuse(f"in {module.__name__}, {SCHEDULER_CLASS} has no method {name}", _expected(replacement.settings.release))
        if (_parameters(method) or [])[1:] != want:
            signature = inspect.signature(method)
            _refuse(f"in {module.__name__}, {SCHEDULER_CLASS} has {name}{signature}", _expected(replacement.settings.release))


def _check(module: ModuleType, replacement: Any) -> None:
    """Refuses a module whose class cannot be replaced. Has replacement return the
    engine's own results."""
    release = replacement.settings.release
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
    text = f"hitline cannot take the place of vLLM's lookup client: {found}; expected is {expected}; "
    if _on_mismatch() == "own":
        level, text = logging.WARNING, f"{text}vLLM is as without hitline; {advice}unset HITLINE_ADDRESS."
    else:
        level, text = logging.ERROR, f"{text}{advice}unset HITLINE_ADDRESS, or set HITLINE_ON_MISMATCH=own, to go without hitline."
    if text not in _refused:
        _refused.add(text)
        logger.log(level, "%s", text)
    raise UnsupportedVLLM(text)
