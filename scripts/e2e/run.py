"""Runs rows, each beside engines without the plug-in that do the same."""

import contextlib
import dataclasses
import os
import time
import typing

import compare
import processes
import scenarios
import stage


def all_rows(rows, work, say):
    """Returns a list of row, findings and seconds. A row that fails does not end the others."""
    plugin = os.path.join(work, "plugin")
    if any(row.engines for row in rows):
        stage.install_plugin(plugin)
    references = References(rows, work)
    results = []
    for number, row in enumerate(rows, 1):
        say(f"[{number}/{len(rows)}] {row.title} …")
        started, found = time.monotonic(), compare.Findings()
        try:
            row.play(row, found, Context(plugin, references, references.folder(row)))
        except processes.Failed as error:
            found.problem("failed", str(error))
        results.append((row, found, time.monotonic() - started))
        say(f"[{number}/{len(rows)}] {row.title} {'ok' if found.ok() else 'DIFFERS'}, {results[-1][2]:.0f} s")
    return results


class Context(typing.NamedTuple):
    """What rows are run with."""

    plugin: str  # the folder of modules that has it
    references: "References"
    folder: str  # for the row's logs


def beside_reference(row, found, context):
    """Runs the row's scenario, and compares with engines without the plug-in."""
    references = context.references
    with contextlib.ExitStack() as stack:
        # Engines take half a minute to start: both at a time.
        own = stack.enter_context(stage.Stage(os.path.join(context.folder, "plugin"), row, context.plugin, row.engines))
        reference = references.of(row)
        for described in own.started().values():
            if not described["client"].startswith("hitline."):
                found.problem("plugin", f"the engine's client is {described['client']}")
        run = scenarios.Run(own, ask=True)
        row.scenario(run)
        compare.outputs(found, reference.steps, run.steps)
        compare.keys(found, reference.keys, run.keys)
        if row.faults:
            row.faults(run, found, reference)
        compare.count(found, run.steps)
        compare.ways(found, run.steps)
        compare.doctor(found, run.examined)
        compare.varied(found, run)
        for text in run.failed:
            found.problem("left", text)
        if row.extra.get("lookup_async") and not found.pending:
            found.problem("async", "every lookup was ready at once")


class References:
    """What engines without the plug-in answer. One engine runs all scenarios of its release,
    options. Engines with roles have the same without the plug-in."""

    def __init__(self, rows, work):
        self.rows = [row for row in rows if row.scenario]
        self.work = work
        self.runs = {}

    def folder(self, row):
        return os.path.join(self.work, row.title.replace("/", "-"))

    def of(self, row):
        """Returns the run of the row's scenario."""
        key = engine_of(row), row.scenario
        if key not in self.runs:
            self.record(row)
        return self.runs[key]

    def record(self, row):
        plain = dataclasses.replace(row, extra={})
        names = row.engines if row.roles else ("a",)
        with stage.Stage(os.path.join(self.folder(row), "without"), plain, None, names) as without:
            without.started()
            for scenario in dict.fromkeys(r.scenario for r in self.rows if engine_of(r) == engine_of(row)):
                run = scenarios.Run(without, ask=False)
                run.clear()
                scenario(run)
                self.runs[engine_of(row), scenario] = run


def engine_of(row):
    """What rows with the same engine without the plug-in have in common."""
    return row.release, row.model, row.tp, row.cache, row.eagle, str(row.llm), str(row.roles)
