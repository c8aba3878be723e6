"""The rows: which engine, and what it is asked to do."""

import dataclasses
import fnmatch
import typing

import faults
import holders
import latency
import masters
import places
import run
import scenarios
import turns
from stage import ALONE

RELEASES = ("0.28.0", "0.30.0", "0.31.0", "0.32.0")
MASTERS = "masters"  # the release of rows without engines, whose names are Mooncake's releases
MOONCAKE = ("0.3.12.post1", "0.3.13.post1", "0.3.14")
DEFAULT = "0.32.0"  # the release whose rows are named without it
CHOSEN = f"{DEFAULT},{MASTERS}"  # what is run if nothing is chosen


@dataclasses.dataclass(frozen=True)
class Row:
    release: str
    name: str
    scenario: typing.Callable | None = None  # scenario(run) asks engines; all of them can do without the plug-in
    model: str = "llama"
    tp: int = 1
    mode: str = ""  # what is special about it, for the table
    play: typing.Callable = run.beside_reference  # play(row, found, context) runs it
    engines: tuple = ("a",)
    roles: dict = dataclasses.field(default_factory=dict)  # of engines by their names, if not kv_both
    extra: dict = dataclasses.field(default_factory=dict)  # the connector's options
    transfer: dict = dataclasses.field(default_factory=dict)  # the options of kv_transfer_config
    llm: dict = dataclasses.field(default_factory=dict)  # the engine's
    eagle: bool = False  # speculation by a head of one layer
    multi: bool = False  # a MultiConnector has two connectors, of which the first loads
    own_server: bool = False  # the engine starts hitline itself, HITLINE_ADDRESS=auto
    timeout: float | None = 10  # seconds that the engine waits for a lookup, HITLINE_TIMEOUT; None: not set
    store_timeout: float = 5  # seconds that hitline waits for the store
    store: str = "256MB"  # its size
    # Of a key that was looked up: longer than a load takes on a slow machine. Keys are removed in spite of it.
    lease: str = "60s"
    evicts: bool = False  # the store does
    integers: bool = False  # VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES
    cache: int = 0  # tokens for which the engine has blocks; 0: more than it needs
    lookup: str = "whole"  # HITLINE_LOOKUP: hits are vLLM's own
    faults: typing.Callable | None = None  # goes on after the scenario

    @property
    def title(self):
        return f"{self.release}/{self.name}"


ASYNC = {"lookup_async": True}
# Timeouts under faults, which requests wait for.
SHORT = {"timeout": 2, "store_timeout": 1}
# Those that an engine and hitline have without any setting.
DEFAULTS = {"timeout": None, "store_timeout": 0.1}
# An engine with few blocks, which asks for prompts again that it has computed.
LOAD = {"mode": "load", "cache": 3072, **DEFAULTS}
# Lookups begin where the engine's own cache ends, and loads may fail. Only outputs are compared, with an engine
# without a store.
TURNS = {
    "play": turns.one_row, "engines": ("a", ALONE), "lookup": "local", "lease": "300ms",
    "transfer": {"kv_load_failure_policy": "recompute"},
}  # fmt: skip
# An engine with few blocks, which computes prompts in parts.
CASES = {
    "scenario": scenarios.cases, "cache": 3072,
    "llm": {"max_num_batched_tokens": 256, "enable_lora": True, "max_lora_rank": 8},
}  # fmt: skip
# Speculation of three tokens that have followed before.
NGRAM = {
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
}  # fmt: skip
# Two pipeline stages. An eager engine on CPU has no memory for what passes between them.
STAGES = {"pipeline_parallel_size": 2, "enforce_eager": False}


# What each row proves, beside answers, outputs and keys that equal those of an engine without the plug-in.
PROVES = {
    "llama": "prompts of 15 to 1,300 tokens that hit nothing, fully, partly; then keys are lost",
    "gemma3": "the same with two groups of a sliding window and one of full attention",
    "auto": "the engine runs hitline, which is killed; then the engine is",
    "llama-tp2": "two ranks",
    "gemma3-tp2": "two ranks",
    "async": "the connector's lookup_async",
    "two": "each engine hits what the other has stored",
    "roles": "a kv_consumer hits what a kv_producer has stored, and stores nothing",
    "llama-pp2": "two pipeline stages",
    "cases": "cache_salt, LoRA, computing in parts, preemption, aborted requests",
    "cases-async": "the same with lookup_async",
    "ngram": "n-gram speculation",
    "eagle": "EAGLE: the last block of a hit is given up",
    "faults": "a refused reset; hitline killed and stopped; the master killed",
    "reset": "the engine's reset empties the store",
    "no-lookup": "with enable_lookup false vLLM's own client resets the store",
    "hang": "hitline stopped for 5 s, then killed, under load",
    "replaced": "hitline replaced five times under load, lookup_async: no hit is missed",
    "master": "the master stopped for 5 s, then killed, under load, default timeouts",
    "turns": "conversations: lookups begin at the engine's own cache, while keys are lost",
    "turns-gemma3": "the same with sliding windows",
    "turns-async": "the same with lookup_async",
    "turns-multi": "the same with two connectors",
    "turns-evict": "tokens loaded and computed over a store that evicts",
    "holders": "who holds what, asked as routers do, against the engines' own search",
    "holders-gemma3": "the same with sliding windows",
    "places": "where tokens go that a fault keeps from being hit",
    "latency": "what users feel: gaps of running streams, time to the first token",
    **dict.fromkeys(MOONCAKE, "what this master's wheel does: calls, leases, evictions, events"),
}


def basic(release):
    return [
        Row(release, "llama", scenarios.mixed),
        Row(release, "gemma3", scenarios.mixed, model="gemma3"),
        Row(release, "auto", scenarios.few, mode="own server", **SHORT, faults=faults.of_own_server, own_server=True),
    ]


def more(release):
    return [
        Row(release, "llama-tp2", scenarios.mixed, tp=2),
        Row(release, "async", scenarios.mixed, mode="lookup_async", extra=ASYNC),
        Row(release, "two", scenarios.two_engines, mode="two engines", engines=("a", "b")),
        Row(
            release, "roles", scenarios.producer_and_consumer, mode="two engines", engines=("a", "b"),
            roles={"a": "kv_producer", "b": "kv_consumer"},
        ),  # fmt: skip
        Row(release, "gemma3-tp2", scenarios.mixed, model="gemma3", tp=2),
        Row(release, "cases", **CASES),
        Row(release, "cases-async", mode="lookup_async", extra=ASYNC, **CASES),
        Row(release, "ngram", scenarios.few, mode="speculation", llm=NGRAM),
        Row(release, "eagle", scenarios.mixed, mode="speculation", eagle=True),
        Row(release, "faults", scenarios.few, mode="faults", **SHORT, faults=faults.of_services),
        Row(release, "reset", scenarios.few, mode="own server", **SHORT, faults=faults.of_resets, own_server=True),
        Row(
            release, "no-lookup", mode="own server", play=faults.without_lookups, own_server=True,
            extra={"enable_lookup": False},
        ),  # fmt: skip
        Row(release, "hang", scenarios.under_load, faults=faults.of_hitline_under_load, **LOAD),
        Row(
            release, "replaced", scenarios.stored_load, mode="load, async", extra=ASYNC, cache=LOAD["cache"],
            faults=faults.of_replacements,
        ),  # fmt: skip
        Row(release, "master", scenarios.broken_master, faults=faults.of_master_under_load, **LOAD),
        Row(release, "turns", mode="local", **TURNS),
        Row(release, "turns-gemma3", mode="local", model="gemma3", **TURNS),
        Row(release, "turns-async", mode="local, async", extra=ASYNC, **TURNS),
        Row(release, "turns-multi", mode="local, multi", multi=True, **TURNS),
        Row(release, "turns-evict", mode="evicting", evicts=True, store="16MB", **TURNS),
        Row(release, "holders", mode="who has what", play=holders.one_row, integers=True),
        Row(release, "holders-gemma3", mode="who has what", play=holders.one_row, model="gemma3"),
        Row(release, "places", mode="where tokens go", play=places.one_row, store="1GB", store_timeout=0.3, timeout=2),
        Row(
            release, "latency", mode="load", play=latency.one_row, cache=latency.CACHE, store="1GB", **DEFAULTS,
            lookup="local",
        ),  # fmt: skip
    ]


def master(release):
    return Row(MASTERS, release, mode="no engine", model="-", tp=0, engines=(), play=masters.one_row)


ROWS = (
    [
        row
        for release in RELEASES
        for row in basic(release) + (more(release) if release in (RELEASES[0], RELEASES[-1]) else [])
    ]
    + [Row(RELEASES[-1], "llama-pp2", scenarios.mixed, mode="PP 2", llm=STAGES)]
    + [master(release) for release in MOONCAKE]
)


def chosen(patterns):
    """Returns the rows of comma-separated patterns. A pattern is all, a release, one of titles, or one of names, which
    are then those of the release DEFAULT."""
    wanted = [p.strip() for p in patterns.split(",") if p.strip()]
    unknown = [p for p in wanted if not any(matches(row, p) for row in ROWS)]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}; --only all --list shows them")
    if not wanted:
        raise ValueError("no row is named; --only all --list shows them")
    return [row for row in ROWS if any(matches(row, p) for p in wanted)]


def matches(row, pattern):
    if pattern in ("all", row.release):
        return True
    return fnmatch.fnmatchcase(row.title, pattern if "/" in pattern else f"{DEFAULT}/{pattern}")
