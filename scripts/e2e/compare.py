"""Compares what engines answered, and counts."""

SHOWN = 3  # problems of one kind that are shown


class Findings:
    """What a row counted, and what was wrong with it."""

    def __init__(self):
        self.prompts = self.lookups = self.hit_tokens = 0
        self.pending = 0  # lookups that were not ready when they were first asked for
        self.asked = self.asked_equal = 0
        self.outputs = self.outputs_equal = 0
        self.examined = self.agreed = 0
        self.longest_wait = 0.0
        self.problems = []
        self.rows = []  # what was measured, an object for each mode
        self.notes = []  # what was seen of faults
        self.chart = None  # of rows, for hitbench picture

    def problem(self, kind, text):
        """Adds a problem; of each kind the first few."""
        known = sum(1 for k, _ in self.problems if k == kind)
        if known < SHOWN:
            self.problems.append((kind, text))

    def ok(self):
        return not self.problems


def count(found, steps):
    """Counts prompts, lookups and how long they took."""
    for outputs in steps:
        found.prompts += len(outputs)
        for record in (r for output in outputs for r in output["lookups"]):
            found.lookups += 1
            found.hit_tokens += record["engine"][0]
            found.pending += len(record["waits"]) > 1
            found.longest_wait = max(found.longest_wait, *record["waits"])


def ways(found, steps):
    """Compares the answers to each lookup: the engine's, vLLM's own server's and hitline's.

    The server was asked before and after: the store did not change in between.
    """
    for number, outputs in enumerate(steps):
        for record in (r for output in outputs for r in output["lookups"]):
            if "server" not in record:
                continue
            found.asked += 1
            answers = {name: record[name] for name in ("engine", "hitline", "before", "server")}
            if all(value == record["server"] for value in answers.values()):
                found.asked_equal += 1
            else:
                found.problem("lookup", f"step {number}, {record['tokens']} tokens: {answers}")
    if not found.asked:
        found.problem("asked", "no lookup was asked of all")


def outputs(found, reference, steps):
    """Compares outputs with those of the same steps without the plug-in."""
    if len(reference) != len(steps):
        found.problem("steps", f"{len(steps)} steps, {len(reference)} without the plug-in")
    for number, (theirs, ours) in enumerate(zip(reference, steps)):
        if len(theirs) != len(ours):
            found.problem("prompts", f"step {number}: {len(ours)} outputs, without the plug-in {len(theirs)}")
        for place, (want, got) in enumerate(zip(theirs, ours)):
            tokens(found, f"step {number}, prompt {place}", want, got, "cached")


def tokens(found, name, want, got, *more):
    """Compares an output with that without the plug-in: its tokens, and more fields."""
    found.outputs += 1
    differ = [field for field in ("tokens", "finish", *more) if want[field] != got[field]]
    for field in differ:
        found.problem(field, f"{name}: {field} {got[field]}, without the plug-in {want[field]}")
    if got["finish"] != "length" and "finish" not in differ:
        found.problem("finish", f"{name}: finish {got['finish']}, without the plug-in too")
    elif not differ:
        found.outputs_equal += 1


def keys(found, reference, ours):
    """Compares what was in the store, before keys were removed."""
    if len(reference) != len(ours):
        found.problem("keys", f"{len(ours)} rounds, {len(reference)} without the plug-in")
    for number, (want, got) in enumerate(zip(reference, ours)):
        if want != got:
            differ = len(set(want) ^ set(got))
            found.problem("keys", f"round {number}: {len(got)} keys, without the plug-in {len(want)}, {differ} differ")


def doctor(found, examined):
    """Compares what doctor says with what the engine then hit."""
    for report in examined:
        found.examined += 1
        if report["exit"] == 0 and not report["problems"] and report["hit"] == report["engine"]:
            found.agreed += 1
        else:
            found.problem("doctor", str(report))


def varied(found, run):
    """Compares the number of outputs with that of prompts: outputs that hardly depended on
    the prompt would be equal with a wrong KV cache, too."""
    distinct = {tuple(output["tokens"]) for outputs in run.steps for output in outputs}
    if len(distinct) != len(run.texts):
        found.problem("vary", f"{len(run.texts)} different prompts have {len(distinct)} different outputs")
