"""Measures what the users of an engine feel of lookups: the pauses of running streams and the time to the first token
of prompts whose blocks are in the store, and what a request costs that waits for room. All modes are measured in turn
in one engine: see engine/modes.py."""

import contextlib
import statistics

import prompts
import stage

ROUNDS = 3

# Of the arrivals: the streams, the tokens of a prompt, and the steps between one's first token and the next.
STREAMS, ARRIVING, GAP = 8, 30_000, 50
MODES = "none", "own", "own-async", "instant", "hitline", "hitline-async"
ARRIVALS = 11  # of a mode and round
COMPUTED = 2  # likewise, without hits: each takes seconds
TEXTS = 3  # that arrive one after the other: the engine's cache has room for one

# Of a request that waits for room: the prompt that decodes; the one that waits is one of those that arrive.
RUNNING, STEPS = 20_000, 200
HEAD_MODES = "own", "own-async", "hitline", "hitline-async"
NOBODY = "nobody waits"
# Tokens for which the engine has blocks: the streams and an arrival fit; the two prompts of the head fit alone.
CACHE = 46_080

TIMEOUT = 600  # seconds of a mode in a round
# What the least of the rounds may be of that with instant, or with nobody waiting. What is reached is far below; a
# busy machine must not fail.
MOST = 1.5


def one_row(row, found, context):
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(stage.Stage(context.folder, row, context.plugin, row.engines))
        own.started()
        latency = Latency(row, found, own)
        latency.arrivals()
        latency.head()
        found.chart = chart(row.release, found.rows)


class Latency:
    def __init__(self, row, found, own):
        self.row, self.found, self.engine = row, found, own.engines["a"]
        self.streams = [prompts.tokens(f"stream {i}", 64) for i in range(STREAMS)]
        self.texts = [prompts.tokens(f"arrival {i}", ARRIVING) for i in range(TEXTS)]
        self.running = prompts.tokens("running", RUNNING)
        size = stage.block_size(row.release)
        self.hit = (ARRIVING - 1) // size * size
        for text in (*self.texts, self.running):
            self.call("generate", [text], 1, False)
            self.engine.settle()
        self.arrived = 0

    def call(self, *command):
        return self.engine.call(*command, seconds=TIMEOUT)

    def arrivals(self):
        measured = {mode: [] for mode in MODES}
        self.stream("instant", TEXTS)  # fills its table
        for _ in range(ROUNDS):
            for mode in MODES:
                measured[mode].append(self.stream(mode, COMPUTED if mode == "none" else ARRIVALS))
        for mode, rounds in measured.items():
            self.found.rows.append({"measured": "arrivals", "mode": mode, **summary(rounds)})
        self.judge("arrivals", "p99_ms", "instant", ("hitline", "hitline-async"))

    def stream(self, mode, count):
        """Has prompts arrive beside the streams, and returns what was measured."""
        arriving = [self.texts[(self.arrived + i) % TEXTS] for i in range(count)]
        self.arrived += count
        self.call("use", mode)
        measured = self.call("stream", self.streams, arriving, GAP)
        hit = 0 if mode == "none" else self.hit
        self.found.prompts += count
        wrong = [cached for cached in measured["cached"] if cached != hit]
        if wrong:
            self.found.problem("hits", f"{mode}: {len(wrong)} of {count} arrivals, expected are {hit} tokens: {wrong}")
        self.found.hit_tokens += sum(measured["cached"])
        return measured

    def head(self):
        """Measures the steps of a request, with none and with one that waits for room behind it."""
        measured = {mode: [] for mode in (NOBODY, *HEAD_MODES)}
        for _ in range(ROUNDS):
            for mode, steps in measured.items():
                self.call("use", "instant" if mode == NOBODY else mode)
                waiting = [] if mode == NOBODY else self.texts[0]
                steps.append(self.call("decode", self.running, waiting, STEPS))
        for mode, rounds in measured.items():
            row = {f"{name}_ms": whole_and_rounds(rounds, share)[0] for name, share in SHARES.items()}
            row["p50_ms_rounds"] = whole_and_rounds(rounds, 0.5)[1]
            self.found.rows.append({"measured": "blocked head", "mode": mode, **row})
        self.judge("blocked head", "p50_ms", NOBODY, ("hitline", "hitline-async"))

    def judge(self, measured, field, base, modes):
        """Compares modes with what cannot be beaten, by the least of the rounds."""
        rows = {row["mode"]: row for row in self.found.rows if row["measured"] == measured}
        least = min(rows[base][f"{field}_rounds"])
        for mode in modes:
            times = min(rows[mode][f"{field}_rounds"]) / least
            self.found.notes.append(f"{measured}, {mode}: {field} is {times:.2f} x that of {base}, least of the rounds")
            if times > MOST:
                self.found.problem("latency", f"{measured}, {mode}: {field} is {times:.2f} x that of {base}")


# The panels of the picture: a title, the rows that have a bar, and the field that it shows.
PANELS = (
    ("between two tokens of a stream, p99", "arrivals", "p99_ms"),
    ("what an arriving prompt costs each stream", "arrivals", "paused_ms"),
    ("a step while a prompt waits for room, p50", "blocked head", "p50_ms"),
)
NAMES = {
    "none": "no store", "instant": "answers from a table", "own": "vLLM's own lookup",
    "own-async": "vLLM's own, lookup_async", "hitline-async": "hitline, lookup_async",
}  # fmt: skip


def chart(release, rows):
    """Returns what hitbench picture draws."""

    def bar(row, field):
        mode = row["mode"]
        ours = mode.startswith("hitline")
        return {"name": NAMES.get(mode, mode), "value": row[field], "rounds": row[f"{field}_rounds"], "ours": ours}

    return {
        "title": f"What running streams notice of other prompts, vLLM {release}, in milliseconds",
        "panels": [
            {"title": title, "bars": [bar(row, field) for row in rows if row["measured"] == measured]}
            for title, measured, field in PANELS
        ],
    }


SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def summary(rounds):
    """Returns what a mode's row has, in milliseconds: of the streams' tokens, and of the arrivals."""
    gaps = [measured["gaps"] for measured in rounds]
    firsts = [measured["firsts"] for measured in rounds]
    # Of each round, what an arrival costs each stream above the usual time between its tokens.
    paused = [[paused_by(measured)] for measured in rounds]
    ttft, ttft_rounds = whole_and_rounds(firsts, 0.5)
    return {
        "arrivals": sum(map(len, firsts)),
        "tokens": sum(map(len, gaps)),
        **{f"{name}_ms": whole_and_rounds(gaps, share)[0] for name, share in SHARES.items()},
        "p99_ms_rounds": whole_and_rounds(gaps, 0.99)[1],
        "paused_ms": whole_and_rounds(paused, 0.5)[0],
        "paused_ms_rounds": whole_and_rounds(paused, 0.5)[1],
        "ttft_ms": ttft,
        "ttft_ms_rounds": ttft_rounds,
    }


def paused_by(measured):
    usual = statistics.median(measured["gaps"])
    return sum(gap - usual for gap in measured["gaps"]) / STREAMS / len(measured["firsts"])


def whole_and_rounds(rounds, share):
    """Returns a percentile in milliseconds: of all rounds together, and of each."""
    whole = [seconds for each in rounds for seconds in each]
    return percentile(whole, share), [percentile(each, share) for each in rounds]


def percentile(seconds, share):
    if share == 0.5:
        return round(1e3 * statistics.median(seconds), 3)
    ranked = sorted(seconds)
    return round(1e3 * ranked[min(int(share * len(ranked)), len(ranked) - 1)], 3)
