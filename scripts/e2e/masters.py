"""What a release of Mooncake's master does, as TestReleases of backend/mooncake finds it. No engine runs."""

import os
import re

import processes

TIMEOUT = 600  # seconds, with the download of a wheel


def one_row(row, found, context):
    """Compares the facts of the release row.name with those that are pinned, or with the newest of them."""
    os.makedirs(context.folder)
    log = os.path.join(context.folder, "test.log")
    command = ["go", "-C", processes.ROOT, "test", "-count=1", "-v", "-run", "^TestReleases$", "./backend/mooncake"]
    # With CI=true what is missing fails the test and does not skip it.
    environ = {**os.environ, "CI": "true", "HITLINE_TEST_MOONCAKE_RELEASES": row.name}
    test = processes.Process("TestReleases", command, log, environ)
    try:
        processes.timed(lambda: test.ended() is not None, TIMEOUT, f"the test did not end (its log is {log})")
    finally:
        status = test.ended()
        test.stop()
    with open(log) as file:
        text = file.read()
    facts = re.findall(r"_test\.go:\d+: ([\w ]+) = (.*)", text)
    differences = re.findall(r"_test\.go:\d+: ([\w ]+): (\".*\", but .*)", text)
    found.asked, found.asked_equal = len(facts), len(facts) - len(differences)
    if facts:
        found.rows.append(dict(facts))
    for subject, difference in differences:
        found.problem(subject, difference)
    if not facts or status and not differences:
        found.problem("failed", f"the test ended with {status}; its log is {log}")
