"""Makes the vectors of one kind with one release, in a process of its own.

    kind_of_release.py KIND ENGINE RELEASE CASES SEED OUT

It compares the release with the recorded vectors of its file and writes fresh ones to
OUT/KIND/ENGINE-RELEASE.json. The result is one JSON object on standard output; progress goes to
standard error.
"""

import importlib
import json
import os
import random
import sys

import kinds
import packages
import wheel


def say(text):
    print(text, file=sys.stderr, flush=True)


def file_of(files, engine, release, signature):
    """Returns the name of the recorded file of a release, or of the one that an unknown release fits."""
    for name, file in files.items():
        if file["engine"] == engine and release in file["releases"]:
            return name
    for name, file in files.items():
        if file["engine"] == engine and file["signature"] == signature:
            return name
    return None


def main(name, engine, release, number, seed, out):
    kind = importlib.import_module(name)
    try:
        directory = wheel.fetch(release, say, kind.FOLDERS[engine])
        packages.ensure()
        reference = kind.load(engine, release, directory)
    except (wheel.UnknownRelease, wheel.Unavailable, ImportError) as error:
        return wheel.exit_status(error, say)
    signature, files = kind.signature(reference), kinds.recorded(kind)
    found = file_of(files, engine, release, signature)
    recorded = files[found]["cases"] if found else []
    say(f"{engine} {release}: {len(recorded)} recorded and {number} fresh cases of {name}")
    differing = [f"recorded {c['id']}: {text}" for c in recorded if (text := kind.differs(reference, c))]
    drawer = random.Random(f"{seed} {name} {engine} {release}")
    cases = [kind.draw(reference, drawer, f"{name}-{i}") for i in range(number)]
    wheel.write(os.path.join(out, name, f"{engine}-{release}.json"), json.dumps({"cases": cases}).encode())
    result = {"file": found, "signature": signature, "recorded": len(recorded), "differ": len(differing)}
    json.dump(result | {"first": differing[:3]}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], int(sys.argv[4]), *sys.argv[5:7]))
