"""Compares hitline with the modules of released vLLM versions, see docs/releases.md."""

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile

import gotests
import sources
import table
import wheel

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = "{:9}{:9}{:15}{:>9}{:>9}{:>8}{:>8}{:>8}"


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="reference", description=__doc__)
    parser.add_argument("--vllm", default="", help="release, for example 0.33.0; all known if empty")
    parser.add_argument("--cases", type=int, default=2000, help="fresh cases of each kind (2000)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="seed of the fresh cases (random)")
    options = parser.parse_args()
    if options.vllm and not re.fullmatch(r"\d+\.\d+\.\d+", options.vllm):
        parser.error(f"no release: {options.vllm}")
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


def check(release, options):
    """Returns the rows of a release for the table, the agreeing classes, and lines about differences.

    An unknown release is compared with all classes.
    """
    folder = table.class_of(release)
    folders = [folder] if folder else table.classes()
    out = tempfile.mkdtemp(prefix=f"hitline-reference-{release}-")
    result = call(release, options, out, folders)
    judged = {}
    if options.cases:
        say(f"{release}: go test")
        judged = gotests.run(out, folders)
    rows, bad, notes = [], {}, {}
    for name in folders:
        bad[name], notes[name] = 0, []
        for topic in table.TOPICS:
            replayed = result["replay"][name][topic]
            drawn = judged.get((name, topic), {"cases": 0, "differ": 0, "shown": []})
            failures = result["fresh"].get(topic, {"failures": []})["failures"]
            cases, differ = drawn["cases"] + len(failures), drawn["differ"] + len(failures)
            recorded = replayed["cases"], replayed["skipped"], replayed["differ"]
            rows.append((release, name, topic, *recorded, cases, differ))
            bad[name] += replayed["differ"] + differ
            first = [f"recorded {replayed['first']}"] if replayed["first"] else []
            notes[name] += [f"{name}/{topic}: {line}" for line in first + failures[:3] + drawn["shown"][:3]]
    agreeing = [name for name in folders if not bad[name]]
    if agreeing:
        shutil.rmtree(out)
        return rows, agreeing, []
    nearest = min(folders, key=bad.get)
    return rows, [], [*notes[nearest], f"the fresh vectors are in {out}"]


def show_sources(release, newest, names):
    """Prints what differs in the sources from the newest known release."""
    total, lines = sources.compare(wheel.fetch(release), wheel.fetch(newest, say))
    print(f"{release}: {len(lines)} differences to the sources of {newest} in {total} reproduced functions and specs")
    for line in lines if names else ():
        print("  " + line)


def main():
    options = parse()
    revisions = table.known()
    newest = max(revisions, key=table.version)
    releases = [options.vllm] if options.vllm else sorted(revisions, key=table.version)
    say(f"seed {options.seed}")
    rows, notes, verdicts, failed = [], [], [], False
    for release in releases:
        more, agreeing, lines = check(release, options)
        rows += more
        notes += [f"{release}: {line}" for line in lines]
        failed |= not agreeing
        if release not in revisions:
            classes = f"it agrees with class {', '.join(agreeing)}" if agreeing else "it agrees with none"
            verdicts.append(f"{release} is not in the table of coordinator/revision.go; {classes}")
    print(COLUMNS.format("vLLM", "class", "kind", "recorded", "skipped", "differ", "fresh", "differ"))
    for row in rows:
        print(COLUMNS.format(*row))
    for line in verdicts + notes:
        print(line)
    for release in releases:
        show_sources(release, newest, names=bool(options.vllm))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except wheel.UnknownRelease as error:
        sys.exit(say(f"reference: {error}") or 2)
    except wheel.Unavailable as error:
        sys.exit(say(f"reference: no network: {error}") or 3)
    except RuntimeError as error:
        sys.exit(say(f"reference: {error}") or 1)
