"""Runs the Go tests on a directory of vectors."""

import os
import re
import subprocess

import table


def run(directory, package):
    """Returns, by file such as events/vllm-0.33.0, the counts of cases and differences, and what is shown of them."""
    done = subprocess.run(
        ["go", "test", "-count=1", "-timeout=0", "-v", "-run", "^TestConformance$", package],
        cwd=table.ROOT, env=os.environ | {"HITLINE_CONFORMANCE": directory},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    results, shown = {}, None
    for line in done.stdout.splitlines():
        if match := re.match(r"([\w./-]+)\.json: (\d+) cases, (\d+) skipped, (\d+) differ", line):
            cases, skipped, differ = map(int, match.groups()[1:])
            shown = results[match[1]] = {"cases": cases, "differ": differ + skipped, "shown": []}
        elif line.startswith(("=== RUN", "---")):
            shown = None
        elif shown is not None and re.match(r"\s+(\w+\.go:\d+: )?\S+-\d+: ", line):
            shown["shown"].append(line.strip())
    if done.returncode and not any(r["differ"] for r in results.values()):
        raise RuntimeError(f"go test {package} failed:\n{done.stdout[-3000:]}")
    return results
