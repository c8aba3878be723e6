"""Runs the lookup of a release over a real Mooncake master, for hitbench compare.

    over_master.py ROLE RELEASE FOLDER MASTER

The lookup servers' sockets are in FOLDER, and MASTER is the master's host:port. A process
has one ROLE:

  store    puts keys, and removes them
  worker   an engine's worker of rank 0, with vLLM's own lookup server
  engine   an engine's scheduler, which asks vLLM's own lookup client, hitline's client, and the
           master itself by bytes made before

Each side is asked for keys of its own: equal, but for the letter in PREFIXES in front.

It reads one JSON object a line from standard input and answers each with one line. The first
line that it writes says that it is ready. It ends with its input.
"""

import gc
import hashlib
import json
import logging
import os
import socket
import sys
import time
from types import SimpleNamespace

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

import calls
import wheel
from modules import Reference

for name in ("mooncake", "mooncake.store"):  # vLLM's modules are given a stub
    del sys.modules[name]

SEGMENT = 4 << 30  # bytes of the store: more than all keys take, so that none is evicted
BUFFERS = 16 << 20  # bytes of a store client
REAL = ("hitline", "xxhash", "zmq")  # packages that are not stubbed
PUT_AT_ONCE = 2000  # keys
TIMEOUT = 60  # seconds for one lookup

# The cache prefix of each side's keys. All but "vllm" and "bytes" are hitlines.
PREFIXES = {"vllm": "v", "hitline": "h", "knowing": "h", "outdated": "h", "remembering": "h", "bytes": "b"}

# The wire of the master, see backend/mooncake.
EXIST = bytes.fromhex("15000000 01000000 b0a69fb8")  # of a request: magic, number, function BatchExistKey
EXIST_KEYS = 0x00F78D62  # what BatchExistKey takes: keys and a tenant
REPLY = 16  # bytes of the header of a reply
TWO_CONNECTIONS = 128  # keys; a request of more is split over two connections

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

    def tokens_asked(self, tokens, pool):
        """Returns of how many tokens a scheduler asks: up to 0.26 of whole blocks."""
        block = pool["scheduler_block_size"] if self.release < "0.27" else 1
        return tokens // block * block

    def build_worker(self, request, store, server=None):
        case = {**DEFAULTS, **request["pool"], "dp_rank": request["rank"]}
        return calls.build_worker(self.reference, case, store, server)


class Store(Role):
    """Puts keys."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.store = new_store(self.master, SEGMENT)
        self.recorder = calls.Store("normal", set())
        self.keys = []  # that remove removes

    def start(self, request):
        self.worker = self.build_worker(request, self.recorder)
        self.pool = request["pool"]
        return {}

    def put(self, request):
        """Stores, for each of the sides, what a lookup of the first `stored` hashes of a chain asks
        for, without the keys of the first `skipped` ones."""
        hashes = chain(request["seed"], request["chain"], request["hashes"])
        tokens = self.tokens_asked(request["tokens"] * request["stored"] // request["hashes"], self.pool)
        self.recorder.keys = []  # a lookup without hashes asks for none
        self.worker.lookup(tokens, hashes[: request["stored"]])
        absent = {h.hex() for h in hashes[: request["skipped"]]}
        keys = [key for key in self.recorder.keys if key.rsplit("@", 1)[1] not in absent]
        for prefix in sorted({PREFIXES[side] for side in request["sides"]}):
            own = [f"{prefix}@{key}" for key in keys]
            self.put_all(own)
            self.keys += own
        self.worker.lookup(self.tokens_asked(request["tokens"], self.pool), hashes)
        return {"asked": len(self.recorder.keys)}

    def put_all(self, keys):
        for start in range(0, len(keys), PUT_AT_ONCE):
            part = keys[start : start + PUT_AT_ONCE]
            code = self.store.put_batch(part, [b"x"] * len(part), ReplicateConfig())
            if code:
                raise RuntimeError(f"put_batch of {len(part)} keys returned {code}")

    def remove(self, request):
        """Removes what put has put."""
        for start in range(0, len(self.keys), PUT_AT_ONCE):
            self.store.batch_remove(self.keys[start : start + PUT_AT_ONCE], True)
        self.keys = []
        return {}


class Worker(Role):
    """Serves lookups at its socket, by a thread of vLLM's own."""

    def start(self, request):
        request["pool"]["cache_prefix"] = PREFIXES["vllm"]
        self.worker = self.build_worker(
            request, Connected(new_store(self.master, 0)), self.reference.worker.LookupKeyServer
        )
        return {}


class Prepared:
    """Asks the master which keys exist, by requests made before."""

    def __init__(self, master):
        host, port = master.rsplit(":", 1)
        # The master gives each new connection to the next of its threads.
        self.sockets = [socket.create_connection((host, int(port)), TIMEOUT) for _ in range(2)]
        for s in self.sockets:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.requests = {}

    def prepare(self, number, keys):
        """Makes the requests, and returns how many of the keys there are."""
        parts = 2 if len(keys) > TWO_CONNECTIONS else 1
        size = -(-len(keys) // parts)
        split = [keys[i * size : (i + 1) * size] for i in range(parts)]
        self.requests[number] = [exist_request(part) for part in split]
        # Each answer is two bytes, "no error" and whether there is the key, at the end of the reply.
        return sum(sum(reply[1 - 2 * len(part) :: 2]) for part, reply in zip(split, self.ask(number)))

    def ask(self, number):
        asked = list(zip(self.sockets, self.requests[number]))
        for s, request in asked:
            s.sendall(request)
        replies = []
        for s, _ in asked:
            head = receive(s, REPLY)
            replies.append(receive(s, int.from_bytes(head[8:12], "little")))
            if head[2]:
                raise RuntimeError(f"the master answers BatchExistKey with error {head[2]}")
        return replies


def exist_request(keys, tenant=b"default"):
    """Returns a request whether keys exist."""
    greatest = max(len(keys), *map(len, keys), len(tenant))
    width, meta = (1, b"") if greatest < 1 << 8 else (2, b"\x08") if greatest < 1 << 16 else (4, b"\x10")

    def number(n, width=width):
        return n.to_bytes(width, "little")

    parts = [number(EXIST_KEYS | (width > 1), 4), meta, number(len(keys))]
    for key in keys:
        parts += [number(len(key)), key.encode()]
    body = b"".join([*parts, number(len(tenant)), tenant])
    return EXIST + number(len(body), 4) + number(0, 4) + body


def receive(s, size):
    """Returns size bytes of a socket."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        n = s.recv_into(view)
        if not n:
            raise RuntimeError("the master has closed the connection")
        view = view[n:]
    return data


class Engine(Role):
    """Asks for hits and times each answer."""

    def start(self, request):
        """Connects to vLLM's lookup server, to the master, and to each of `hitlines`, by side."""
        from hitline import LookupKeyClient

        config = SimpleNamespace(
            parallel_config=SimpleNamespace(data_parallel_index=request["rank"]),
            kv_transfer_config=SimpleNamespace(kv_connector_extra_config={}),
        )
        self.clients = {"vllm": self.reference.worker.LookupKeyClient(config)}
        for side, address in request["hitlines"].items():
            self.clients[side] = LookupKeyClient(
                address,
                timeout=TIMEOUT,
                raise_errors=True,
                vllm=self.release,
                pool={**request["pool"], "cache_prefix": PREFIXES[side], "vllm": self.release},
            )
        self.bytes = Prepared(self.master)
        self.recorder = calls.Store("normal", set())
        self.worker = self.build_worker(request, self.recorder)
        self.pool = request["pool"]
        absent = self.prompt("absent", {"chain": 0, "hashes": 128, "start": 0})
        for side in self.clients:
            for _ in range(3):
                self.lookup(side, absent)
        return {}

    def prompt(self, seed, p):
        """Returns a prompt: its tokens, hashes, and the hashes that the engine itself has. It ends
        inside a block, as most do."""
        block = self.pool["hash_block_size"]
        tokens = self.tokens_asked(p["hashes"] * block + block // 2, self.pool)
        return tokens, chain(seed, p["chain"], p["hashes"]), p["start"]

    def prepare(self, request):
        """Makes the prompts of the lookups that follow. By bytes are asked, of a prompt, the keys
        behind what the engine has, of the first `told` hashes. Returns how many of these there are."""
        gc.unfreeze()
        present = 0
        self.prompts, self.bytes.requests = [], {}
        for number, p in enumerate(request["prompts"]):
            tokens, hashes, start = prompt = self.prompt(request["seed"], p)
            self.prompts.append(prompt)
            if p["told"]:
                self.worker.lookup(tokens, hashes)
                told = {h.hex() for h in hashes[start : p["told"]]}
                keys = [f"{PREFIXES['bytes']}@{key}" for key in self.recorder.keys if key.rsplit("@", 1)[1] in told]
                present += self.bytes.prepare(number, keys)
        gc.collect()
        gc.freeze()  # what lives on is not searched while times are taken
        return {"present": present}

    def stat(self, request):
        return self.clients[request["side"]].stat()

    def lookup(self, side, prompt):
        """vLLM looks whole prompts up, hitline begins where the engine's own cache ends."""
        tokens, hashes, start = prompt
        if side == "vllm" or not start:
            return self.clients[side].lookup("request", tokens, hashes)
        return self.clients[side].lookup(
            "request", tokens, hashes, start_token=start * self.pool["hash_block_size"], hashes_before=start
        )

    def ask(self, request):
        """Asks the sides for each of the prompts in turn, from number `first` on, until `seconds`
        have passed or, if it is given, `count` prompts. If `twice`, each side asks twice, and the
        second answer counts. With a `period` in seconds a prompt is asked no sooner after the one
        before, and all are the first."""
        sides, count = request["sides"], request.get("count") or sys.maxsize
        micros, hits, changed = {side: [] for side in sides}, {side: {} for side in sides}, []
        deadline, step = time.perf_counter() + request.get("seconds", TIMEOUT), 0
        while step < count and (not step or time.perf_counter() < deadline):
            number = request.get("first", 0) + (0 if request.get("period") else step)
            number %= len(self.prompts)
            turned = step % len(sides)
            order = sides[turned:] + sides[:turned]
            began = time.perf_counter()
            for side in reversed(order) if step // len(sides) % 2 else order:
                if request.get("twice"):
                    self.timed(side, number)
                taken, found = self.timed(side, number)
                micros[side].append(taken)
                if found is not None and hits[side].setdefault(number, found) != found:
                    changed.append([f"{side}, prompt {number}", hits[side][number], found])
            step += 1
            time.sleep(max(0, began + request.get("period", 0) - time.perf_counter()))
        return {"micros": micros, "hits": hits, "changed": changed}

    def timed(self, side, number):
        """Asks one side for a prompt. Returns the microseconds and the answer, which bytes have none of."""
        prompt = self.prompts[number]
        began = time.perf_counter()
        if side == "bytes":
            self.bytes.ask(number)
            return (time.perf_counter() - began) * 1e6, None
        result = self.lookup(side, prompt)
        return (time.perf_counter() - began) * 1e6, answer(result)


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
