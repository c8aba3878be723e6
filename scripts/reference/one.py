"""Runs one release in a process of its own: replays vectors and writes fresh ones.

    one.py RELEASE CASES SEED OUT FOLDER...

Vectors go to OUT/releases/FOLDER for each folder. The result is one JSON object on standard
output; progress goes to standard error.
"""

import json
import os
import sys

import calls
import draw
import replay
import table
import wheel
from modules import Reference


def say(text):
    print(text, file=sys.stderr, flush=True)


def size_of(case):
    return len(case["groups"]), case.get("num_hashes", 0), case["scheduler_block_size"]


def fresh(reference, drawer, topic, number):
    """Returns fresh cases with the reference's answers, small ones first, and what it failed at."""
    cases, failures = [], []
    for i in range(number):
        case = drawer.draw(topic, f"{topic}-{i}")
        try:
            cases.append(case | {"expect": calls.ANSWERS[topic](reference, case)})
        except Exception as error:  # the cases are such that only known errors may come
            failures.append(f"{case['id']}: the reference raised {error!r}: {json.dumps(case)}")
    return sorted(cases, key=size_of), failures


def main(release, number, seed, out, folders):
    try:
        reference = Reference(release, wheel.fetch(release, say))
    except (wheel.UnknownRelease, wheel.Unavailable, ImportError) as error:
        return wheel.exit_status(error, say)
    drawer = draw.Drawer(reference, seed)
    result = {"replay": {}, "fresh": {}}
    for folder in folders:
        say(f"{release}: replaying the vectors of {folder}")
        result["replay"][folder] = {t: replay.replay(reference, drawer.features, folder, t) for t in table.TOPICS}
    for topic in table.TOPICS if number else ():
        say(f"{release}: drawing {number} cases of {topic}")
        cases, failures = fresh(reference, drawer, topic, number)
        result["fresh"][topic] = {"cases": len(cases), "failures": failures}
        for folder in folders:
            path = os.path.join(out, "releases", folder, topic + ".json")
            table.write_vectors(path, topic, folder, release, cases)
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]))
