"""Kinds of vectors that are made by one program for each engine and judged by one Go test.

A kind is a module here with:

    NAME                          also the folder of its vectors in HITLINE_CONFORMANCE
    PACKAGE                       the Go package: its TestConformance judges vectors, its testdata holds recorded ones
    RECORDED                      how many cases each file has, 0 if --record makes none
    FOLDERS                       by engine, what wheel.fetch gets
    OLDER                         by engine, releases that this kind compares beside RELEASES; may be missing
    SINCE                         by engine, the first release that has what is compared; may be missing
    load(engine, release, directory)    imports the modules of a release, in a process that has no other
    signature(reference)          text; releases that make equal vectors have equal ones
    recorded()                    the recorded files by name, if they are not in PACKAGE
    draw(reference, random, name) a case: a dict with "id": name, ready for JSON
    differs(reference, case)      how the release contradicts a recorded case, None if it does not

Recorded vectors are in files NAME.json.gz, one for releases with equal signatures. NAME is that of the oldest.
"""

import gzip
import json
import os
import subprocess
import sys

import agreement
import blockhash
import events
import gotests
import hicache
import hints
import lookup
import table

KINDS = [lookup, events, blockhash, agreement, hicache, hints]

# The releases of each engine, oldest first.
RELEASES = {"vllm": sorted(table.known(), key=table.version), "sglang": ["0.5.23"]}

HERE = os.path.dirname(os.path.abspath(__file__))
RECORDED_SEED = "recorded"


def releases(kind, engine):
    """Returns the releases that a kind compares, oldest first."""
    if engine not in kind.FOLDERS:
        return []
    since = getattr(kind, "SINCE", {}).get(engine, "0")
    known = [r for r in RELEASES[engine] if table.version(r) >= table.version(since)]
    return getattr(kind, "OLDER", {}).get(engine, []) + known


def recorded(kind):
    """Returns the recorded files of a kind by name."""
    if hasattr(kind, "recorded"):
        return kind.recorded()
    folder, files = os.path.join(table.ROOT, kind.PACKAGE, "testdata"), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".json.gz"):
            with gzip.open(os.path.join(folder, name)) as file:
                files[name.removesuffix(".json.gz")] = json.load(file)
    return files


def make(kind, engine, release, cases, seed, out):
    """Runs kind_of_release.py. It writes fresh vectors to out; returns its result."""
    command = [sys.executable, "-B", os.path.join(HERE, "kind_of_release.py"), kind.NAME, engine, release]
    done = subprocess.run([*command, str(cases), seed, out], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def check(kind, chosen, options, out):
    """Compares pairs of engine and release. Returns rows of the table and lines about differences."""
    made = {(e, r): make(kind, e, r, options.cases, options.seed, out) for e, r in chosen}
    judged = gotests.run(out, kind.PACKAGE) if options.cases and made else {}
    rows, notes = [], []
    for (engine, release), result in made.items():
        name = f"{engine}-{release}"
        fresh = judged.get(f"{kind.NAME}/{name}", {"cases": 0, "differ": 0, "shown": []})
        if options.cases and fresh["cases"] != options.cases:
            raise RuntimeError(f"go test {kind.PACKAGE} judged {fresh['cases']} of {options.cases} cases of {name}")
        counts = result["recorded"], result["differ"], fresh["cases"], fresh["differ"]
        rows.append((name, result["file"] or "-", kind.NAME, *counts))
        notes += [f"{name}: {kind.NAME}: {line}" for line in result["first"] + fresh["shown"][:3]]
        if not result["file"]:
            notes.append(f"{name}: {kind.NAME}: no file is recorded that it fits; --record {kind.NAME} adds one")
    return rows, notes


def record(kind, out):
    """Replaces the recorded vectors of a kind by those that all known releases make."""
    equal = {}
    for engine in RELEASES:
        for release in releases(kind, engine):
            result = make(kind, engine, release, kind.RECORDED, RECORDED_SEED, out)
            equal.setdefault((engine, result["signature"]), []).append(release)
    folder = os.path.join(table.ROOT, kind.PACKAGE, "testdata")
    os.makedirs(folder, exist_ok=True)
    for name in recorded(kind):
        os.remove(os.path.join(folder, name + ".json.gz"))
    for (engine, signature), members in equal.items():
        name = f"{engine}-{members[0]}"
        with open(os.path.join(out, kind.NAME, name + ".json")) as file:
            cases = json.load(file)["cases"]
        content = {"engine": engine, "releases": members, "signature": signature, "cases": cases}
        packed = gzip.compress(json.dumps(content, separators=(",", ":")).encode(), mtime=0)
        with open(os.path.join(folder, name + ".json.gz"), "wb") as file:
            file.write(packed)
        print(f"{kind.NAME}/{name}: {', '.join(members)}: {len(cases)} cases, {len(packed)} bytes")
