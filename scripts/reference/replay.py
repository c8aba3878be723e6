"""Replays recorded vectors against a release's modules."""

import calls
import table

# Recorded for reading only, or worded by Python.
NOT_COMPARED = {"key_prefixes", "present_keys", "store_namespace", "layout", "message"}


def compare(got, want):
    """Returns what differs, as text; None if nothing does."""
    for name in sorted((got.keys() | want.keys()) - NOT_COMPARED):
        if got.get(name) != want.get(name):
            return f"{name} is {got.get(name)}, recorded {want.get(name)}"
    return None


def is_resized(features, topic, case):
    """Until 0.28 the worker gives a lone group the scheduler's block size.

    The recorded cases keep the group's own size, which no engine has.
    """
    groups = case["groups"]
    return (
        topic == "worker_lookup" and features.lone_group_resized
        and len(groups) == 1 and groups[0]["block_size"] != case["scheduler_block_size"]
    )  # fmt: skip


def replay(reference, features, folder, topic):
    """Returns the counts of cases, skipped and differing ones, and the first difference."""
    counts = {"cases": 0, "skipped": 0, "differ": 0, "first": None}
    for case in table.vectors(folder, topic):
        counts["cases"] += 1
        if is_resized(features, topic, case):
            counts["skipped"] += 1
            continue
        try:
            difference = compare(calls.ANSWERS[topic](reference, case), case["expect"])
        except Exception as error:
            difference = repr(error)
        if difference:
            counts["differ"] += 1
            counts["first"] = counts["first"] or f"{case['id']}: {difference}"
    return counts
