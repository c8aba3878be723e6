"""Compares hitline with the modules of released vLLM and SGLang versions, see docs/releases.md."""

import argparse
import re
import secrets
import shutil
import sys
import tempfile

import digests
import kinds
import lookup
import sources
import table
import wheel

COLUMNS = "{:15}{:15}{:15}{:>9}{:>8}{:>8}{:>8}"


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    kind_names = [kind.NAME for kind in kinds.KINDS]
    recorded = [kind.NAME for kind in kinds.KINDS if kind.RECORDED]
    parser = argparse.ArgumentParser(prog="reference", description=__doc__)
    parser.add_argument("--vllm", default="", help="release, for example 0.33.0; all known if empty")
    parser.add_argument("--sglang", default="", help="release, or newest; all known if empty, none with --vllm alone")
    parser.add_argument("--kind", default="", choices=["", *kind_names], help="compare only this; all if empty")
    parser.add_argument("--cases", type=int, default=2000, help="fresh cases of each kind (2000)")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="seed of the fresh cases (random)")
    parser.add_argument("--digests", action="store_true", help="write the digests of vLLM's files anew and exit")
    parser.add_argument("--modules", action="store_true", help="fetch what tests of the plug-in run, print where it is")
    parser.add_argument("--record", default="", choices=["", *recorded], help="record this kind anew and exit")
    options = parser.parse_args()
    if options.sglang == "newest":
        options.sglang = kinds.RELEASES["sglang"][-1]
    for release in options.vllm, options.sglang:
        if release and not re.fullmatch(r"\d+\.\d+\.\d+", release):
            parser.error(f"no release: {release}")
    if options.cases < 0:
        parser.error("the number of cases is negative")
    return options


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


def check_kind(kind, options):
    """Compares one of kinds.py. Returns rows of the table, lines to print, and whether a release failed."""
    pairs = [(e, r) for e in kind.FOLDERS for r in chosen(options, e, kinds.releases(kind, e))]
    pairs = [(e, r) for e, r in pairs if r in kinds.releases(kind, e) or r not in kinds.RELEASES[e]]  # see SINCE
    out = tempfile.mkdtemp(prefix=f"hitline-reference-{kind.NAME}-")
    rows, lines = kinds.check(kind, pairs, options, out)
    failed = any(row[4] or row[6] for row in rows)
    if failed:
        lines.append(f"the fresh vectors are in {out}")
    else:
        shutil.rmtree(out)
    if kind is lookup:
        newest = kinds.RELEASES["vllm"][-1]
        lines += [line for _, r in pairs for line in compare_sources(r, newest, names=bool(options.vllm))]
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
    for kind in kinds.KINDS:
        if options.kind in ("", kind.NAME):
            results.append(check_kind(kind, options))
    print(COLUMNS.format("release", "rules of", "kind", "recorded", "differ", "fresh", "differ"))
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
