"""Prints what the clients read of the servers at two addresses, that of lookups and that of router.listen. The Go test
runs it for servers of this release and for ones whose replies have more fields. It needs the package hitline alone,
which may be an older one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from hitline import Client, HoldersClient, Instance, PrefixScorer, RefusedError

# Of the document that stat returns as the server sends it.
STAT = ("version", "instance", "pool", "lookups", "tokens", "closed", "requests")


def show(name: str, value: Any) -> None:
    print(name, json.dumps(value, sort_keys=True, default=vars))


def refused(ask: Callable[[], Any]) -> list[str]:
    try:
        return ["answered", str(ask())]
    except RefusedError as error:
        return [type(error).__name__, str(error)]


def main(lookup: str, router: str) -> None:
    instances: list[Instance] = []
    with Client(lookup, pool={"name": "p"}, on_instance=instances.append, raise_errors=True) as client:
        stat = client.stat()
        show("stat", {name: stat[name] for name in STAT})
        show("store", refused(lambda: client.store([b"a" * 32])))
        show("reset", refused(lambda: client.reset()))
        show("instance", instances)
    with HoldersClient(router) as holders:
        show("holders", holders.holders([b"a" * 32]))
        show("predict", refused(lambda: holders.predict("engine-0", [b"a" * 32])))
    with PrefixScorer(router, timeout=10, store_weight=0.5) as scorer:
        show("scores", scorer.choose([1] * 64, {"a": "engine-0", "b": ("engine-1", 1), "c": "engine-2"}))


if __name__ == "__main__":
    main(*sys.argv[1:])
