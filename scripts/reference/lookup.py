"""The lookups and masks of vLLM's store, see kinds.py.

A case is of a topic: a search for a hit, a mask, or a worker's lookup. The recorded ones are those of
internal/conformance, in a folder for releases with equal answers.
"""

import calls
import drawer
import table
from modules import Reference

NAME = "lookup"
PACKAGE = "./coordinator"
RECORDED = 0  # --record does not make them
FOLDERS = {"vllm": "vllm"}

# Recorded for reading only, or worded by Python.
NOT_COMPARED = {"key_prefixes", "present_keys", "store_namespace", "layout", "message"}


def load(engine, release, directory):
    return Reference(release, directory)


def recorded():
    """Returns the recorded cases by folder. A folder's signature is its name."""
    releases = {name: [r for r in table.known() if table.folder_of(r) == name] for name in table.folders()}
    return {
        name: {"engine": "vllm", "releases": releases[name], "signature": name, "cases": cases_of(name)}
        for name in table.folders()
    }


def cases_of(folder):
    return [case | {"topic": topic} for topic in table.TOPICS for case in table.vectors(folder, topic)]


def signature(reference):
    """The folder with equal answers: of an unknown release the one that fewest recorded cases contradict."""
    reference.drawer = drawer.Drawer(reference)
    reference.rules = table.folder_of(reference.release) or min(
        reversed(table.folders()), key=lambda name: sum(bool(differs(reference, c)) for c in cases_of(name))
    )
    return reference.rules


def draw(reference, random, name):
    topic = table.TOPICS[int(name.rpartition("-")[2]) % len(table.TOPICS)]
    case = reference.drawer.draw(random, topic, name) | {"topic": topic, "rules": reference.rules}
    return case | {"expect": answer(reference, case)}


def answer(reference, case):
    try:
        return calls.ANSWERS[case["topic"]](reference, case)
    except Exception as error:  # the cases are such that only known errors may come
        return {"error": repr(error)}


def differs(reference, case):
    if is_resized(reference.drawer.features, case):
        return None
    got, want = answer(reference, case), case["expect"]
    for name in sorted((got.keys() | want.keys()) - NOT_COMPARED):
        if got.get(name) != want.get(name):
            return f"{name} is {got.get(name)}, recorded {want.get(name)}"
    return None


def is_resized(features, case):
    """Until 0.28 the worker gives a lone group the scheduler's block size.

    The recorded cases keep the group's own size, which no engine has.
    """
    groups = case["groups"]
    return (
        case["topic"] == "worker_lookup" and features.lone_group_resized
        and len(groups) == 1 and groups[0]["block_size"] != case["scheduler_block_size"]
    )  # fmt: skip
