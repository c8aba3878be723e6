"""The known releases, their folders of vectors, and the recorded vectors."""

import gzip
import json
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMBEDDED = os.path.join(ROOT, "internal", "conformance", "testdata")
TOPICS = ("find_hit", "masks", "worker_lookup")


def version(release):
    return tuple(int(part) for part in release.split("."))


def known():
    """Returns, for each known release, the first one with equal answers, oldest first, as coordinator/rules.go has
    them. There a release with the answers of the one before is a row without a change."""
    with open(os.path.join(ROOT, "coordinator", "rules.go")) as file:
        rows = re.findall(r'^\t\{"(\d+\.\d+\.\d+)", (nil|func)', file.read(), re.MULTILINE)
    first, releases = None, {}
    for name, change in rows:
        first = first if change == "nil" else name
        releases[name] = first
    return releases


def folders():
    """Returns the folders with vectors, oldest first."""
    return sorted(os.listdir(os.path.join(EMBEDDED, "releases")), key=version)


def folder_of(release):
    """Returns the folder whose release has equal answers; None for an unknown release."""
    releases = known()
    for folder in folders():
        if release in releases and releases.get(folder) == releases[release]:
            return folder
    return None


def vectors(folder, topic):
    """Returns the recorded cases, from HITLINE_CONFORMANCE if it is set."""
    name = os.path.join("releases", folder, topic + ".json")
    if directory := os.environ.get("HITLINE_CONFORMANCE"):
        with open(os.path.join(ROOT, directory, name)) as file:
            return json.load(file)["cases"]
    with gzip.open(os.path.join(EMBEDDED, name + ".gz")) as file:
        return json.load(file)["cases"]

