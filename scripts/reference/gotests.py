"""Runs the Go tests on a directory of vectors."""

import os
import re
import subprocess

import table

TESTS = "^(TestConformanceReleases(|FindHit|Masks)|TestReleaseWorkerLookup)$"


def fill(directory, folders):
    """Adds one recorded case for each other folder: the tests read all folders."""
    for folder in table.folders():
        for topic in table.TOPICS:
            path = os.path.join(directory, "releases", folder, topic + ".json")
            if folder not in folders:
                table.write_vectors(path, topic, folder, folder, table.vectors(folder, topic)[:1])


def run(directory, folders):
    """Returns, for each folder and topic, the counts of cases and differences, and what is shown of them."""
    fill(directory, folders)
    done = subprocess.run(
        ["go", "test", "-count=1", "-timeout=0", "-v", "-run", TESTS, "./coordinator", "./lookup"],
        cwd=table.ROOT, env=os.environ | {"HITLINE_CONFORMANCE": directory},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    results, key = {}, None
    for line in done.stdout.splitlines():
        if match := re.match(r"releases/([\d.]+)/(\w+)\.json: (\d+) cases, (\d+) skipped, (\d+) differ", line):
            key = match[1], match[2]
            cases, skipped, differ = map(int, match.groups()[2:])
            results[key] = {"cases": cases, "differ": differ + skipped, "shown": [], "direct": 0}
        elif match := re.match(r"=== RUN +TestReleaseWorkerLookup/([\d.]+)", line):
            key = match[1], "direct"
            results[key] = {"differ": 0, "shown": []}
        elif line.startswith(("=== RUN", "--- PASS")):
            key = None
        elif key and re.match(r"\s+(\w+\.go:\d+: )?(find_hit|masks|worker_lookup)-\d+: ", line):
            results[key]["shown"].append(line.strip())
            if key[1] == "direct":
                results[key]["differ"] += 1
    for folder in folders:
        merge(results, folder)
    missing = [f"{f}/{t}" for f in folders for t in table.TOPICS if (f, t) not in results]
    if missing or (done.returncode and not any(r["differ"] for r in results.values())):
        raise RuntimeError(f"go test gave no result for {', '.join(missing) or 'its failure'}:\n{done.stdout[-3000:]}")
    return results


def merge(results, folder):
    """Counts the worker lookups of the package coordinator with those of the package lookup."""
    direct = results.pop((folder, "direct"), None)
    lookup = results.get((folder, "worker_lookup"))
    if direct and lookup:
        lookup["differ"] = max(lookup["differ"], direct["differ"])
        lookup["shown"] += direct["shown"]
