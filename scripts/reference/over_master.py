"""Runs the lookup of a release over a real Mooncake master, for hitbench compare.

    over_master.py ROLE RELEASE FOLDER MASTER

The lookup servers' sockets are in FOLDER, and MASTER is the master's host:port. A process
has one ROLE:

  store    puts the keys that the lookups of a chain ask for, and keeps them
  worker   an engine's worker of rank 0, with vLLM's own lookup server
  engine   an engine's scheduler, with vLLM's own lookup client and with hitline's

It reads one JSON object a line from standard input and answers each with one line. The first
line that it writes says that it is ready. It ends with its input.
"""

import hashlib
import json
import logging
import os
import sys
import time
from types import SimpleNamespace

from mooncake.store import MooncakeDistributedStore

import calls
import wheel
from modules import Reference

for name in ("mooncake", "mooncake.store"):  # vLLM's modules are given a stub
    del sys.modules[name]

SEGMENT = 4 << 30  # bytes of the store: more than all keys take, so that none is evicted
BUFFERS = 16 << 20  # bytes of a store client
REAL = ("hitline", "xxhash", "zmq")  # packages that are not stubbed
PUT_AT_ONCE = 2000  # keys

# The fields of a case, as the vectors have them, that a pool need not have.
DEFAULTS = {"cache_prefix": "", "use_eagle": False, "tp_size": 1, "pp_size": 1, "num_kv_head": 1}


def chain(seed, number, hashes):
    """Returns the hashes of a chain, equal in every process."""
    return [hashlib.sha256(f"{seed}:{number}:{i}".encode()).digest() for i in range(hashes)]


def new_store(master, segment):
    """Returns a client of the store that holds segment bytes of it."""
    store = MooncakeDistributedStore()
    code = store.setup("127.0.0.1", "P2PHANDSHAKE", segment, BUFFERS, "tcp", "", master)
    if code:
        raise SystemExit(f"over_master: the Mooncake master at {master} cannot be used: setup returned {code}")
    return store


class Connected:
    """A store client that is set up already: the setup that the worker's constructor calls does nothing."""

    def __init__(self, store):
        self.batch_is_exist = store.batch_is_exist

    def setup(self, *args, **kwargs):
        return 0


def new_zmq_socket(context, path, kind, bind):
    """What vLLM's make_zmq_socket does for REQ and REP."""
    socket = context.socket(kind)
    (socket.bind if bind else socket.connect)(path)
    return socket


class Role:
    def __init__(self, release, folder, master):
        directory = wheel.fetch(release, lambda text: print(text, file=sys.stderr, flush=True))
        self.reference = Reference(release, directory, real=REAL)
        self.release, self.master = release, master
        module = self.reference.worker
        module.make_zmq_socket = new_zmq_socket
        module.get_mooncake_dp_engine_index = lambda parallel: parallel.data_parallel_index  # up to 0.27
        module.envs.VLLM_RPC_BASE_PATH = folder
        module.logger = logging.getLogger("vllm")

    def build_worker(self, request, store, server=None):
        case = {**DEFAULTS, **request["pool"], "dp_rank": request["rank"]}
        return calls.build_worker(self.reference, case, store, server)


class Store(Role):
    """Puts keys."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.store = new_store(self.master, SEGMENT)
        self.recorder = calls.Store("normal", set())

    def start(self, request):
        self.worker = self.build_worker(request, self.recorder)
        return {}

    def put(self, request):
        """Stores what a lookup of the first `stored` hashes of a chain asks for, without the
        keys of the first `skipped` ones."""
        hashes = chain(request["seed"], request["chain"], request["hashes"])
        tokens = request["tokens"] * request["stored"] // request["hashes"]
        self.worker.lookup(tokens, hashes[: request["stored"]])
        absent = {h.hex() for h in hashes[: request["skipped"]]}
        keys = [key for key in self.recorder.keys if key.rsplit("@", 1)[1] not in absent]
        for start in range(0, len(keys), PUT_AT_ONCE):
            part = keys[start : start + PUT_AT_ONCE]
            code = self.store.put_batch(part, [b"x"] * len(part))
            if code:
                raise RuntimeError(f"put_batch of {len(part)} keys returned {code}")
        self.worker.lookup(request["tokens"], hashes)
        return {"stored": len(keys), "asked": len(self.recorder.keys)}


class Worker(Role):
    """Serves lookups at its socket, by a thread of vLLM's own."""

    def start(self, request):
        self.worker = self.build_worker(
            request, Connected(new_store(self.master, 0)), self.reference.worker.LookupKeyServer
        )
        return {}


class Engine(Role):
    """Asks for hits and times each answer."""

    def start(self, request):
        from hitline import LookupKeyClient

        config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=request["rank"]),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config={}),
        )
        self.clients = {
            "vllm": self.reference.worker.LookupKeyClient(config),
            "hitline": LookupKeyClient(
                request["hitline"],
                timeout=60,
                raise_errors=True,
                vllm=self.release,
                pool={**request["pool"], "vllm": self.release},
            ),
        }
        self.chains = {}
        return {}

    def prepare(self, request):
        """Makes the chains of the lookups that follow."""
        self.chains = {n: chain(request["seed"], n, request["hashes"]) for n in request["chains"]}
        self.tokens = request["tokens"]
        return {}

    def stat(self, request):
        return self.clients["hitline"].stat()

    def ask(self, request):
        """Asks for each of the chains in turn until the time is over."""
        client = self.clients[request["rival"]]
        micros, hits, changed, number = [], {}, [], request["first"]
        names = list(self.chains)
        deadline = time.perf_counter() + request["seconds"]
        while not micros or time.perf_counter() < deadline:
            name = names[number % len(names)]
            number += 1
            hashes = self.chains[name]
            began = time.perf_counter()
            result = client.lookup("request", self.tokens, hashes)
            micros.append((time.perf_counter() - began) * 1e6)
            found = answer(result)
            if hits.setdefault(name, found) != found:
                changed.append([name, hits[name], found])
        return {"micros": micros, "hits": hits, "changed": changed}


def answer(result):
    """Returns a hit and its tail boundaries as JSON."""
    boundaries = getattr(result, "tail_key_boundaries", ())
    return [getattr(result, "hit_length", result), [[b.group_id, b.num_tokens] for b in boundaries]]


def main(role, release, folder, master):
    try:
        served = {"store": Store, "worker": Worker, "engine": Engine}[role](release, folder, master)
    except (wheel.Unavailable, wheel.UnknownRelease, ImportError) as error:
        raise SystemExit(f"over_master: {error}")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(served, request.pop("do"))(request)), flush=True)
    os._exit(0)  # vLLM's thread of the lookup server waits for ever


if __name__ == "__main__":
    main(*sys.argv[1:])
