"""Block hashes of random token lists by the engines' own modules, see kinds.py.

A case describes a prompt and has the hashes that the release gave. Token ids are described by a
seed, see expand.
"""

import array
import hashlib
import importlib
import importlib.util
import inspect
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import wheel
from modules import Finder

NAME = "blockhash"
PACKAGE = "./blockhash"
RECORDED = 204  # 20 to 30 KiB, compressed; blocks of over 64 KiB with each algorithm are among them
FOLDERS = {"vllm": "vllm-events", "sglang": "sglang-events"}
OLDER = {"sglang": ["0.5.10", "0.5.19"]}
REAL = ("msgspec", "cbor2", "xxhash", "pybind11", "zmq")
ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
# Texts that pickle writes in each of its ways. Those of one character are one object in CPython.
TEXTS = ("", "a", "a", "é", "é", "ÿ", "€", "mm", "lora", "x" * 255, "x" * 256, "naïve/путь", "\U0001f600")
INCLUDE = sysconfig.get_paths()["include"]  # before other modules are stubbed
MAX_LISTED = 6  # hashes in a case; of more the case has the first, the last and a digest of all


def say(text):
    print(text, file=sys.stderr, flush=True)


def load(engine, release, directory):
    for name in ("msgspec", "cbor2", "xxhash"):  # installed by packages.ensure
        importlib.import_module(name)
    sys.meta_path.insert(0, Finder(directory, REAL))
    sys.dont_write_bytecode = True
    try:
        if engine == "vllm":
            return VLLM(release)
        return load_sglang(release, directory)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"the modules of {engine} {release} do not import: {error!r}") from error


def signature(reference):
    """The hashes of prompts that differ between the releases."""
    return "\n".join(map(str, reference.probe()))


def draw(reference, random, name):
    case = {"id": name, "engine": reference.engine, "release": reference.release}
    case |= reference.draw(random, int(name.rpartition("-")[2]))
    return case | {"expect": reference.answer(case)}


def differs(reference, case):
    try:
        got = reference.answer(case)
    except Unable:
        return None
    return None if got == case["expect"] else f"the release gives {got}, recorded is {case['expect']}"


class Unable(Exception):
    """This machine cannot hash the case."""


def draw_tokens(random, number, widest, lowest=0):
    """Returns token ids as expand takes them."""
    kind = random.choice(("small", "vocabulary", "vocabulary", "edges", "large"))
    top = {"small": 256, "vocabulary": 150_000, "edges": 0, "large": widest}[kind]
    return {"n": number, "seed": random.getrandbits(32), "top": top, "widest": widest, "lowest": lowest}


def draw_text(random):
    return random.choice((*TEXTS, hashlib.sha256(random.randbytes(4)).hexdigest(), f"adapter-{random.randrange(9)}"))


def draw_length(random, block):
    some = (random.randrange(7 * block + 2) for _ in range(3))
    return random.choice((0, 1, block - 1, block, 2 * block + 1, 3 * block, *some))


EDGES = (0, 1, 255, 256, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**39 - 1, 2**39, 2**47, 2**55, 2**63 - 1)


def expand(tokens):
    """Returns the token ids of a case: numbers of splitmix64, as the Go test makes them."""
    state, out = tokens["seed"], []
    edges = [e for e in (*EDGES, *(-e for e in EDGES), -(2**63)) if tokens["lowest"] <= e <= tokens["widest"]]
    for _ in range(tokens["n"]):
        state = (state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        z ^= z >> 31
        out.append(z % tokens["top"] if tokens["top"] else edges[z % len(edges)])
    return out


def listed(hashes):
    """Returns hashes as a case has them."""
    if len(hashes) <= MAX_LISTED:
        return {"hashes": hashes}
    digest = hashlib.sha256("\n".join(hashes).encode()).hexdigest()
    return {"hashes": [hashes[0], hashes[-1]], "num": len(hashes), "digest": digest}


# vLLM


class Position:
    def __init__(self, offset, length):
        self.offset, self.length = offset, length


class Feature:
    def __init__(self, identifier, offset, length):
        self.identifier, self.mm_position = identifier, Position(offset, length)


class LoRA:
    def __init__(self, name, path):
        self.lora_name, self.lora_path = name, path


class Embeds:
    """Prompt embeddings: a row of 4 bytes a token."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, part):
        return b"".join(row.to_bytes(4, "little") for row in self.rows[part])


class Request:
    """What the hasher reads of a request."""

    def __init__(self, case):
        # A request reaches the engine's core as a message: its texts are new objects.
        import msgspec

        keys = msgspec.msgpack.decode(msgspec.msgpack.encode(case["keys"]))
        self.all_token_ids = expand(case["tokens"])
        self.num_tokens = len(self.all_token_ids)
        self.block_hashes = []
        self.mm_features = [Feature(*item) for item in keys.get("items", ())]
        self.lora_request = LoRA(*keys["lora"]) if "lora" in keys else None
        self.cache_salt = keys.get("salt")
        self.prompt_embeds = Embeds(expand(keys["embeds"])) if "embeds" in keys else None
        self._prompt_embeds_per_block_hashes = {}


def draw_items(random, tokens):
    items, position = [], 0
    overlap = random.random() < 0.3  # sound in a film lies among its pictures
    for _ in range(random.choice((1, 1, 2, 5, 40))):
        offset = position + random.choice((0, 0, 1, random.randrange(20)))
        length = random.choice((0, 1, 2, random.randrange(1, 40), random.randrange(1, tokens + 2)))
        items.append([draw_text(random), offset, length])
        position = offset + (random.randrange(length + 1) if overlap else length)
    return items


class VLLM:
    """The hashers of one release."""

    engine = "vllm"

    def __init__(self, release):
        self.release = release
        self.hashing = importlib.import_module("vllm.utils.hashing")
        self.utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        self.utils.tensor_data = lambda rows: rows  # without torch: the rows are bytes already
        self.lookahead = len(inspect.signature(self.utils.get_request_block_hasher).parameters) > 2
        self.seeded = {name: len({self.first_parent(name, None) for _ in range(3)}) == 1 for name in ALGORITHMS}

    def first_parent(self, algorithm, seed):
        """Initializes the release's chains of hashes, and returns what stands before the first block."""
        os.environ.pop("PYTHONHASHSEED", None)
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed
        self.utils.init_none_hash(self.hashing.get_hash_fn_by_name(algorithm))
        return self.utils.NONE_HASH

    def probe(self):
        keys = {"lora": ["name", "path"], "items": [["id", 1, 2]], "salt": "salt"}
        case = {"block_size": 4, "algorithm": "sha256", "seed": "0", "keys": keys}
        case["tokens"] = {"n": 9, "seed": 1, "top": 1000, "widest": 1000, "lowest": 0}
        yield from self.answer(case)["hashes"]
        for name in ALGORITHMS:
            yield self.first_parent(name, None).hex() if self.seeded[name] else "random"
        if self.lookahead:
            yield from self.answer(case | {"lookahead": 2})["hashes"]

    def draw(self, random, number):
        block = random.choice((1, 2, 3, 4, 15, 16, 16, 16, 32, 64, 256))
        if number % 51 == 50:  # each algorithm comes
            block = random.choice((6_553, 6_554, 7_000, 13_107, 21_800, 22_000, 30_000, 70_000))  # 64 KiB of pickle
        case = {"block_size": block, "algorithm": ALGORITHMS[number % 4], "keys": {}}
        length = random.choice((block, 2 * block, 2 * block + 5)) if block > 1000 else draw_length(random, block)
        widest, lowest = random.choice(((2**31 - 1, 0), (2**31 - 1, 0), (2**32 + 5, 0), (2**63 - 1, -(2**63))))
        case["tokens"] = draw_tokens(random, length, widest, lowest)
        if not self.seeded[case["algorithm"]] or random.random() < 0.5:
            case["seed"] = random.choice(("0", "42", "random", "", "é", "s" * 300))
        if self.lookahead and random.random() < 0.5:
            case["lookahead"] = random.choice((1, 1, 2, 3, 7, 20))
        self.draw_keys(random, case["keys"], length)
        return case

    def draw_keys(self, random, keys, length):
        if random.random() < 0.3:
            keys["lora"] = [draw_text(random), draw_text(random)]
        if random.random() < 0.4:
            keys["items"] = draw_items(random, length)
        if random.random() < 0.3:
            keys["salt"] = draw_text(random)
            if random.random() < 0.1:
                keys["salt"] = "s" * random.choice((65_000, 65_535, 65_536, 70_000))
        if random.random() < 0.15:
            keys["embeds"] = draw_tokens(random, random.randrange(length + 1), 2**32 - 1) | {"top": 2**32}

    def answer(self, case):
        self.first_parent(case["algorithm"], case.get("seed"))
        more = (case["lookahead"],) if case.get("lookahead") else ()
        function = self.hashing.get_hash_fn_by_name(case["algorithm"])
        hasher = self.utils.get_request_block_hasher(case["block_size"], function, *more)
        return listed([h.hex() for h in hasher(Request(case))])


# SGLang


def build_extension(directory):
    """Compiles the release's own extension. Returns None if the machine cannot."""
    if not shutil.which("g++") or not os.path.exists(os.path.join(INCLUDE, "Python.h")):
        return None
    source = os.path.join(directory, "sglang", "srt", "mem_cache", "cpp_utils", "hash_binding.cpp")
    name = "hicache_hash_cpp"
    folder = tempfile.mkdtemp(prefix="hitline-reference-")
    try:
        import pybind11

        target = os.path.join(folder, name + ".so")
        command = f"g++ -O2 -std=c++17 -shared -fPIC -w -DTORCH_EXTENSION_NAME={name}"
        include = [f"-I{INCLUDE}", f"-I{pybind11.get_include()}"]
        command = [*shlex.split(command), *include, source, "-o", target, "-lcrypto"]
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode:
            return None
        spec = importlib.util.spec_from_file_location(name, target)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class SmallTokens:
    """Stands for the extension where it cannot be compiled: the Python of 0.5.10, for tokens of 32 bits.

    Pages with others are not compared there.
    """

    RELEASE = "0.5.10"

    def __init__(self):
        directory = wheel.fetch(self.RELEASE, say, FOLDERS["sglang"])
        path = os.path.join(directory, "sglang/srt/mem_cache/hicache_storage.py")
        spec = importlib.util.spec_from_file_location("old_hicache_storage", path)
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.get_hash_str = module.get_hash_str

    def get_hash(self, raw, logical_len, unit_width, is_bigram, prior_digest, page_size=None):
        if max(raw, default=0) >= 2**32:
            raise Unable
        units = pairs(raw) if is_bigram else list(zip(*[iter(raw)] * unit_width, strict=True))
        prior, hashes = prior_digest and prior_digest.hex(), []
        for start in range(0, logical_len, page_size or logical_len):
            prior = self.get_hash_str(units[start : start + (page_size or logical_len)], prior)
            hashes.append(prior)
        return hashes if page_size else prior


def pairs(tokens):
    return list(zip(tokens, tokens[1:], strict=False))


class Key:
    """A radix tree's key: with bigrams it is one token longer than its length."""

    def __init__(self, tokens, bigrams, extra_key, salt):
        self.token_ids, self.is_bigram = array.array("q", tokens), bigrams
        self.extra_key, self.cache_salt = extra_key, salt or None

    def __len__(self):
        return max(len(self.token_ids) - self.is_bigram, 0)


class Node:
    def __init__(self, key, parent):
        self.key, self.parent = key, parent
        self.hash_value = self.event_hash_value = None


def load_sglang(release, directory):
    if not os.path.exists(os.path.join(directory, "sglang/srt/mem_cache/cpp_utils")):
        return OldSGLang(release, importlib.import_module("sglang.srt.mem_cache.hicache_storage"))
    native = importlib.import_module("sglang.srt.mem_cache.cpp_utils.native_hash")
    extension = build_extension(directory)
    if not extension:
        say(f"sglang {release}: its extension cannot be compiled here: only tokens of 32 bits are hashed")
    get_hash = extension or SmallTokens()
    native._load_native_hash_module = lambda: get_hash
    utils = importlib.import_module("sglang.srt.mem_cache.utils")
    events = importlib.import_module("sglang.srt.mem_cache.events")
    if hasattr(utils, "storage_namespace_seed") and hasattr(events, "KvEventLoraNames"):
        return SGLang(release, utils, events, wide=bool(extension))
    return OldSGLang(release, utils)


class OldSGLang:
    """The page hashes before the rules of 0.5.23: tokens of 32 bits without namespaces, which have the same since."""

    engine, widest, namespaces = "sglang", (2**32 - 1,), False

    def __init__(self, release, utils):
        self.release, self.utils = release, utils

    def probe(self):
        yield from self.answer(self.probe_case())["short"]["hashes"]

    def probe_case(self):
        tokens = {"n": 9, "seed": 1, "top": 1000, "widest": 1000, "lowest": 0}
        return {"page_size": 4, "bigrams": True, "dynamo": False, "tokens": tokens}

    def draw(self, random, number):
        page = random.choice((1, 1, 2, 16, 16, 64, 128, 1000))
        case = {"page_size": page, "bigrams": random.random() < 0.4, "dynamo": False}
        # Keys of a radix tree have whole pages.
        length = page * random.choice((0, 1, 2, 3, random.randrange(30))) + case["bigrams"]
        case["tokens"] = draw_tokens(random, length, random.choice(self.widest))
        case["cut"] = random.randrange(100)  # pages in the first node of the tree's path
        if self.namespaces:
            self.draw_namespace(random, case)
        return case

    def answer(self, case):
        tokens, page = expand(case["tokens"]), case["page_size"]
        units, prior, hashes = pairs(tokens) if case["bigrams"] else tokens, None, []
        for start in range(0, len(units), page):
            prior = self.utils.get_hash_str(units[start : start + page], prior)
            hashes.append(prior)
        short = [format(self.utils.hash_str_to_int64(h) % 2**64, "016x") for h in hashes]
        return {"storage": listed(hashes), "events": listed(hashes), "short": listed(short)}


class SGLang(OldSGLang):
    """The page hashes and the recorder of events of a release with a C++ extension."""

    namespaces = True

    def __init__(self, release, utils, events, wide):
        super().__init__(release, utils)
        self.events = events
        self.widest = (2**32 - 1, 2**32 + 5, 2**63 - 1) if wide else (2**32 - 1,)

    def probe(self):
        case = self.probe_case() | {"extra_key": "key", "salt": "salt", "lora": True}
        for dynamo in (False, True):
            yield self.answer(case | {"dynamo": dynamo})

    def draw_namespace(self, random, case):
        case["dynamo"] = random.random() < 0.5
        if random.random() < 0.4:
            case["extra_key"] = draw_text(random) + "0123456789abcdef" * random.choice((0, 2))
            case["lora"] = random.random() < 0.5
        if random.random() < 0.4:
            case["salt"] = draw_text(random)

    def answer(self, case):
        """Returns the digests in the storage, those of events, and the hashes of events."""
        tokens, page, bigrams = expand(case["tokens"]), case["page_size"], case["bigrams"]
        names = self.events.KvEventLoraNames()
        if case.get("lora"):
            names._names[case["extra_key"]] = "adapter"
        recorder = self.events.KVCacheEventRecorder(
            enabled=True, page_size=page, dynamo_format=case["dynamo"], lora_names=names
        )
        node = Node(Key([], False, None, None), None)
        node.hash_value = []
        storage, chain = [], []
        pages = max(len(tokens) - bigrams, 0) // page
        cut = case.get("cut", 0) % max(pages, 1)
        for start, end in ((0, cut), (cut, pages)):  # a path of two nodes
            if start == end:
                continue
            part = tokens[start * page : end * page + bigrams]
            node = Node(Key(part, bigrams, case.get("extra_key"), case.get("salt")), node)
            node.hash_value = self.utils.compute_node_hash_values(node, page)
            storage += node.hash_value
            recorder.record_store(node)
            chain += node.event_hash_value or node.hash_value
        short = [format(h % 2**64, "016x") for event in recorder.take() for h in event.block_hashes]
        return {"storage": listed(storage), "events": listed(chain), "short": listed(short)}
