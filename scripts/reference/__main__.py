"""Compares hitline with the modules of released vLLM and SGLang versions, see docs/releases.md."""

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile

import digests
import gotests
import kinds
import sources
import table
import wheel

HERE = os.path.dirname(os.path.abspath(__file__))
LOOKUP = "lookup"  # the lookups and masks of vLLM's store, beside the kinds of kinds.py
TESTS = "^TestConformanceReleases(|FindHit|Masks)$"
COLUMNS = "{:15}{:15}{:15}{:>9}{:>9}{:>8}{:>8}{:>8}"


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    kind_names = [kind.NAME for kind in kinds.KINDS]
    parser = argparse.ArgumentParser(prog="reference", description=__doc__)
    parser.add_argument("--vllm", default="", help="release, for example 0.33.0; all known if empty")
    parser.add_argument("--sglang", default="", help="release, or newest; all known if empty, none with --vllm alone")
    parser.add_argument("--kind", default="", choices=["", LOOKUP, *kind_names], help="compare only this; all if empty")
    parser.add_argument("--cases", type=int, default=2000, help="fresh cases of each kind (2000)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="seed of the fresh cases (random)")
    parser.add_argument("--digests", action="store_true", help="write the digests of vLLM's files anew and exit")
    parser.add_argument("--modules", action="store_true", help="fetch what tests of the plug-in run, print where it is")
    parser.add_argument("--record", default="", choices=["", *kind_names], help="record this kind anew and exit")
    options = parser.parse_args()
    if options.sglang == "newest":
        options.sglang = kinds.RELEASES["sglang"][-1]
    for release in options.vllm, options.sglang:
        if release and not re.fullmatch(r"\d+\.\d+\.\d+", release):
            parser.error(f"no release: {release}")
    if options.cases < 0:
        parser.error("the number of cases is negative")
    return options


def call(release, options, out, folders):
    """Runs a release in a process of its own: modules of two releases do not fit into one."""
    command = [sys.executable, os.path.join(HERE, "one.py"), release, str(options.cases), options.seed, out, *folders]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def fill(out, folders):
    """Adds one recorded case for each other folder: the tests read all folders."""
    for folder in set(table.folders()).difference(folders):
        for topic in table.TOPICS:
            path = os.path.join(out, "releases", folder, topic + ".json")
            table.write_vectors(path, topic, folder, folder, table.vectors(folder, topic)[:1])


def check(release, options):
    """Returns the rows of a release for the table, the agreeing folders, and lines about differences.

    An unknown release is compared with all folders.
    """
    folder = table.folder_of(release)
    folders = [folder] if folder else table.folders()
    out = tempfile.mkdtemp(prefix=f"hitline-reference-{release}-")
    result = call(release, options, out, folders)
    judged = {}
    if options.cases:
        say(f"{release}: go test")
        fill(out, folders)
        judged = gotests.run(out, TESTS, "./coordinator", "./lookup")
    rows, bad, notes = [], {}, {}
    for name in folders:
        bad[name], notes[name] = 0, []
        for topic in table.TOPICS:
            replayed = result["replay"][name][topic]
            drawn = judged[f"releases/{name}/{topic}"] if options.cases else {"cases": 0, "differ": 0, "shown": []}
            failures = result["fresh"].get(topic, {"failures": []})["failures"]
            cases, differ = drawn["cases"] + len(failures), drawn["differ"] + len(failures)
            recorded = replayed["cases"], replayed["skipped"], replayed["differ"]
            rows.append((f"vllm-{release}", name, topic, *recorded, cases, differ))
            bad[name] += replayed["differ"] + differ
            first = [f"recorded {replayed['first']}"] if replayed["first"] else []
            notes[name] += [f"{name}/{topic}: {line}" for line in first + failures[:3] + drawn["shown"][:3]]
    agreeing = [name for name in folders if not bad[name]]
    if agreeing:
        shutil.rmtree(out)
        return rows, agreeing, []
    nearest = min(folders, key=bad.get)
    return rows, [], [*notes[nearest], f"the fresh vectors are in {out}"]


def compare_sources(release, newest, names):
    """Returns lines about what differs in the sources from the newest known release."""
    total, lines = sources.compare(wheel.fetch(release), wheel.fetch(newest, say))
    head = f"{release}: {len(lines)} differences to the sources of {newest} in {total} reproduced functions and specs"
    return [head, *("  " + line for line in lines if names)]


def chosen(options, engine, known):
    """Returns the releases of an engine that are to be compared: all known ones if no option names any."""
    named = getattr(options, engine)
    if named:
        return [named]
    return [] if options.vllm or options.sglang else known


def check_lookups(options):
    """Compares vLLM's lookups. Returns rows of the table, lines to print, and whether a release failed."""
    known = table.known()
    newest = kinds.RELEASES["vllm"][-1]
    releases = chosen(options, "vllm", kinds.RELEASES["vllm"])
    rows, notes, verdicts, failed = [], [], [], False
    for release in releases:
        more, agreeing, lines = check(release, options)
        rows += more
        notes += [f"vllm-{release}: {line}" for line in lines]
        failed |= not agreeing
        if release not in known:
            rules = f"it agrees with the rules of {', '.join(agreeing)}" if agreeing else "it agrees with none"
            verdicts.append(f"{release} is not in the table of coordinator/rules.go; {rules}")
    differences = [line for r in releases for line in compare_sources(r, newest, names=bool(options.vllm))]
    return rows, verdicts + notes + differences, failed


def check_kind(kind, options):
    """Compares one of kinds.py. Returns as check_lookups."""
    pairs = [(e, r) for e in kind.FOLDERS for r in chosen(options, e, kinds.releases(kind, e))]
    pairs = [(e, r) for e, r in pairs if r in kinds.releases(kind, e) or r not in kinds.RELEASES[e]]  # see SINCE
    out = tempfile.mkdtemp(prefix=f"hitline-reference-{kind.NAME}-")
    rows, lines = kinds.check(kind, pairs, options, out)
    failed = any(row[5] or row[7] for row in rows)
    if failed:
        lines.append(f"the fresh vectors are in {out}")
    else:
        shutil.rmtree(out)
    return rows, lines, failed


def record(options):
    out = tempfile.mkdtemp(prefix="hitline-reference-")
    try:
        kinds.record(next(kind for kind in kinds.KINDS if kind.NAME == options.record), out)
    finally:
        shutil.rmtree(out)
    return 0


def main():
    options = parse()
    if options.record:
        return record(options)
    if options.digests:
        digests.write(say)
        return 0
    if options.modules:
        print(digests.modules(say))
        return 0
    say(f"seed {options.seed}")
    results = []
    if options.kind in ("", LOOKUP) and (options.vllm or not options.sglang):
        results.append(check_lookups(options))
    for kind in kinds.KINDS:
        if options.kind in ("", kind.NAME):
            results.append(check_kind(kind, options))
    print(COLUMNS.format("release", "rules of", "kind", "recorded", "skipped", "differ", "fresh", "differ"))
    for rows, _, _ in results:
        for row in rows:
            print(COLUMNS.format(*row))
    for _, lines, _ in results:
        for line in lines:
            print(line)
    return 1 if any(failed for _, _, failed in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (wheel.UnknownRelease, wheel.Unavailable, RuntimeError) as error:
        sys.exit(wheel.exit_status(error, say))
