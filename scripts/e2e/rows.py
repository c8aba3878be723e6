"""The rows: which engine, and what it is asked to do."""

import dataclasses
import fnmatch
import typing

import faults
import scenarios

RELEASES = ("0.28.0", "0.32.0")


@dataclasses.dataclass(frozen=True)
class Row:
    release: str
    name: str
    scenario: typing.Callable  # scenario(run) asks engines; all of them can do without the plug-in
    model: str = "llama"
    tp: int = 1
    mode: str = ""  # what is special about it, for the table
    engines: tuple = ("a",)
    extra: dict = dataclasses.field(default_factory=dict)  # the connector's options
    own_server: bool = False  # the engine starts hitline itself, HITLINE_ADDRESS=auto
    timeout: float | None = 10  # seconds that the engine waits for a lookup, HITLINE_TIMEOUT; None: not set
    store_timeout: float = 5  # seconds that hitline waits for the store
    cache: int = 0  # tokens for which the engine has blocks; 0: more than it needs
    lookup: str = "whole"  # HITLINE_LOOKUP: hits are vLLM's own
    faults: typing.Callable | None = None  # goes on after the scenario

    @property
    def title(self):
        return f"{self.release}/{self.name}"


@dataclasses.dataclass(frozen=True)
class HoldersRow:
    """Two engines that publish KV events and share a store; see holders.py."""

    release: str
    name: str
    integers: bool  # VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES
    mode: str = "who has what"
    model: str = "llama"
    tp: int = 1
    extra: dict = dataclasses.field(default_factory=dict)  # the connector's options
    own_server: bool = False
    store_timeout: float = 5  # seconds that hitline waits for the store
    cache: int = 0

    @property
    def title(self):
        return f"{self.release}/{self.name}"


@dataclasses.dataclass(frozen=True)
class TurnsRow:
    """An engine whose lookups begin where its own cache ends; see turns.py."""

    release: str
    name: str
    mode: str = "local"
    model: str = "llama"
    evicts: bool = False  # the store does; only outputs are compared
    multi: bool = False  # a MultiConnector has two of them, of which the first loads
    tp: int = 1
    extra: dict = dataclasses.field(default_factory=dict)  # the connector's options
    own_server: bool = False
    timeout: float | None = 10  # seconds that the engine waits for a lookup
    store_timeout: float = 5  # seconds that hitline waits for the store
    cache: int = 0
    lookup: str = "local"

    @property
    def title(self):
        return f"{self.release}/{self.name}"


# Timeouts under faults, which requests wait for.
SHORT = {"timeout": 2, "store_timeout": 1}
# Those that an engine and hitline have without any setting.
DEFAULTS = {"timeout": None, "store_timeout": 0.1}


def of(release):
    return [
        Row(release, "llama", scenarios.mixed),
        Row(release, "llama-tp2", scenarios.mixed, tp=2),
        Row(release, "async", scenarios.mixed, mode="lookup_async", extra={"lookup_async": True}),
        Row(release, "two", scenarios.two_engines, mode="two engines", engines=("a", "b")),
        Row(release, "gemma3", scenarios.mixed, model="gemma3"),
        Row(release, "gemma3-tp2", scenarios.mixed, model="gemma3", tp=2),
        Row(release, "faults", scenarios.few, mode="faults", **SHORT, faults=faults.of_services),
        Row(release, "auto", scenarios.few, mode="own server", **SHORT, faults=faults.of_own_server, own_server=True),
        Row(release, "reset", scenarios.few, mode="own server", **SHORT, faults=faults.of_resets, own_server=True),
        Row(release, "hang", scenarios.few, mode="load", timeout=None, faults=faults.of_hang),
        Row(release, "master", scenarios.hung_master, mode="load", **DEFAULTS, faults=faults.of_master),
        Row(release, "head", scenarios.few, mode="load", cache=faults.HEAD_CACHE, faults=faults.of_head),
        TurnsRow(release, "turns"),
        TurnsRow(release, "turns-gemma3", model="gemma3"),
        TurnsRow(release, "turns-async", mode="local, async", extra={"lookup_async": True}),
        TurnsRow(release, "turns-multi", mode="local, multi", multi=True),
        TurnsRow(release, "turns-evict", mode="local, evicting", evicts=True),
        HoldersRow(release, "holders", integers=True),
        HoldersRow(release, "holders-gemma3", integers=False, model="gemma3"),
    ]


ROWS = [row for release in RELEASES for row in of(release)]


def chosen(patterns):
    """Returns the rows of comma-separated patterns. A pattern is one of titles, of releases or
    of names."""
    wanted = [p.strip() for p in patterns.split(",") if p.strip()]
    unknown = [p for p in wanted if not any(matches(row, p) for row in ROWS)]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}; --list shows them")
    if not wanted:
        raise ValueError("no row is named; --list shows them")
    return [row for row in ROWS if any(matches(row, p) for p in wanted)]


def matches(row, pattern):
    return any(fnmatch.fnmatchcase(text, pattern) for text in (row.title, row.release, row.name))
