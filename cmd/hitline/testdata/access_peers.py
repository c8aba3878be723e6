"""Makes the requests of the access table by the Python client and by libzmq.

Reads a job in JSON from standard input, see pythonJob, and writes for each peer a list with what
has become of each request: a character for the Python client, the frames in hex for libzmq.
"""

from __future__ import annotations

import json
import ssl
import sys
from typing import Any

import zmq
from hitline import client as hitline
from zmq.utils import monitor

TIMEOUT = 20.0  # seconds


def main() -> None:
    job = json.load(sys.stdin)
    job["hashes"] = [bytes.fromhex(h) for h in job["hashes"]]
    results = []
    for peer in job["peers"]:
        fill(job)
        results.append((of_python if peer["kind"] == "python" else of_zmq)(job, peer))
    json.dump(results, sys.stdout)


def fill(job: dict[str, Any]) -> None:
    """Stores the hits of the pools."""
    for name, hit in job["pools"].items():
        if name not in fillers:
            pool = {"name": name} if name else None
            fillers[name] = hitline.Client(job["unix"], timeout=TIMEOUT, raise_errors=True, pool=pool, token="")
        fillers[name].store(job["hashes"][: hit // 16], group=0)


fillers: dict[str, hitline.Client] = {}


def of_python(job: dict[str, Any], peer: dict[str, Any]) -> list[str]:
    options: dict[str, Any] = {"timeout": TIMEOUT, "raise_errors": True, "token": peer["token"]}
    if peer["tls"]:
        options["tls"] = tls = ssl.create_default_context(cafile=peer["ca"])
        if peer["certificate"]:
            tls.load_cert_chain(peer["certificate"] + ".crt", peer["certificate"] + ".key")
    hashes, tokens = job["hashes"], job["tokens"]
    with hitline.Client(peer["address"], **options) as c:
        calls = {
            "lookup": lambda: c.lookup(tokens, hashes),
            "explain": None,
            "plan": lambda: c.plan(tokens, hashes),
            "load_mask": lambda: c.load_mask(64, 4),
            "store_mask": lambda: c.store_mask(64),
            "lookup_mask": lambda: c.lookup_mask(64),
            "store": lambda: c.store(hashes, group=0),
            "store_prompt": lambda: c.store_prompt(64, hashes),
            "evict": lambda: c.evict(hashes, group=0),
            "reset_rank": lambda: c.reset_rank(group=0, tp_rank=0, pp_rank=0, pcp_rank=0),
            "reset": c.reset,
            "ping": c.ping,
            "stat": c.stat,
            "holders": lambda: c.holders(hashes),
            "pool": lambda: enter_pool(peer["address"], options),
        }
        result: list[str] = []
        for request in job["requests"]:
            result.append(character(calls[request]))
            if result == ["x"]:
                return result
            if result == ["n"]:  # the client is not asked again: each request would be one more failure
                return ["n"] * len(job["requests"])
    return result


def enter_pool(address: str, options: dict[str, Any]) -> None:
    with hitline.Client(address, pool={"name": "llama"}, **options) as c:
        c.check_pool()


def character(call: Any) -> str:
    if call is None:
        return " "
    try:
        if call() == 0:
            return "0"  # a lookup without a hit
    except hitline.NotAllowed:
        return "-"
    except hitline.NotAuthenticated:
        return "n"
    except (hitline.Refused, hitline.PoolRefused):
        return "r"
    except hitline.ConnectionFailed:
        return "x"
    return "+"


context = zmq.Context()


def of_zmq(job: dict[str, Any], peer: dict[str, Any]) -> list[Any]:
    with context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.reconnect_ivl = -1  # never: a second attempt would count twice
        socket.rcvtimeo = int(TIMEOUT * 1000)
        if peer["token"]:
            socket.plain_password = peer["token"].encode()
        if not handshake(socket, peer["address"]):
            return ["n"] * len(job["requests"])
        result = []
        for frames in job["frames"]:
            socket.send_multipart([bytes.fromhex(f) for f in frames])
            result.append([f.hex() for f in socket.recv_multipart()])
        return result


FAILED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


def handshake(socket: zmq.Socket, address: str) -> bool:
    """Connects, waits for the end of the handshake, and tells whether it succeeded."""
    events = socket.get_monitor_socket(FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    try:
        socket.connect(address)
        if not events.poll(TIMEOUT * 1000):
            raise TimeoutError(f"no handshake with {address}")
        return monitor.recv_monitor_message(events)["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
    finally:
        socket.disable_monitor()


main()
