"""Runs real vLLM engines over a real Mooncake store, with the plug-in and without it, and with KV
events for routers, and compares: see docs/releases.md."""

import argparse
import shutil
import sys
import tempfile
import time

import install
import interrupts
import processes
import rows
import run
import table


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse():
    parser = argparse.ArgumentParser(prog="scripts/e2e", description=__doc__)
    parser.add_argument(
        "--only",
        default=rows.CHOSEN,
        metavar="ROWS",
        help=f"comma-separated rows, or patterns: two, '*/gemma3*', 0.28.0, masters, all; by default {rows.CHOSEN}",
    )
    parser.add_argument(
        "--mooncake", metavar="RELEASE", help="compare another release of Mooncake's master with the newest row alone"
    )
    parser.add_argument("--list", action="store_true", help="list the rows that would be run")
    parser.add_argument("--json", metavar="FILE", help="write what the table has to a file, too: a line for each row")
    parser.add_argument("--keep", action="store_true", help="keep the logs, which stay after a failure in any case")
    options = parser.parse_args()
    try:
        options.rows = [rows.master(options.mooncake)] if options.mooncake else rows.chosen(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def main():
    options = parse()
    if options.list:
        for row in options.rows:
            print(f"{row.title:22}{rows.PROVES.get(row.name, '')}")
        return 0
    interrupts.handle()
    started = time.monotonic()
    releases = {row.release for row in options.rows} - {rows.MASTERS}
    if releases:
        install.prepare(releases, say)
    work = tempfile.mkdtemp(prefix="hitline-e2e-")
    keep = True
    try:
        results = run.all_rows(options.rows, work, say)
        passed = all(found.ok() for _, found, _ in results)
        keep = options.keep or not passed
    except KeyboardInterrupt:
        keep = options.keep
        raise
    finally:
        if keep:
            say(f"the logs are in {work}")
        else:
            shutil.rmtree(work)
    table.show(results)
    say(f"{len(results)} rows in {time.monotonic() - started:.0f} s")
    if options.json:
        table.write_json(options.json, results)
    return 0 if passed else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(say("e2e: interrupted") or 130)
    except install.Unfit as error:
        sys.exit(say(f"e2e: {error}") or 3)
    except processes.Failed as error:
        sys.exit(say(f"e2e: {error}") or 1)
