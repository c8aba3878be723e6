"""Block hashes of random token lists by the unmodified modules of an engine's release.

    blockhash.py ENGINE RELEASE CASES SEED OUT

ENGINE is vllm or sglang. One process holds one release. The cases with the engine's answers go
to OUT, gzipped if its name ends so; see blockhash/conformance_test.go for their form.
"""

import array
import gzip
import hashlib
import importlib
import importlib.util
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import modules
import packages
import wheel

REAL = ("msgspec", "cbor2", "xxhash", "pybind11", "zmq")
ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
SGLANG, SGLANG_PYTHON = "0.5.23", "0.5.10"
# The first release of each class of vLLM's releases with equal hashes, oldest first.
CLASSES = ("0.24.0", "0.29.0", "0.31.0", "0.33.0")
# Texts that pickle writes in each of its ways. Those of one character are one object in CPython.
TEXTS = ("", "a", "a", "é", "é", "ÿ", "€", "mm", "lora", "x" * 255, "x" * 256, "naïve/путь", "\U0001f600")
INCLUDE = sysconfig.get_paths()["include"]  # before other modules are stubbed
MAX_LISTED = 20  # hashes in a case; of more the case has the first, the last and a digest of all


def say(text):
    print(text, file=sys.stderr, flush=True)


def version(release):
    return tuple(int(part) for part in release.split("."))


def class_of(release):
    """Returns the first release of the class; a newer release is one of the newest."""
    return [c for c in CLASSES if version(c) <= version(release)][-1]


def load(release, folder):
    packages.ensure()
    for name in ("msgspec", "cbor2", "xxhash"):
        importlib.import_module(name)
    directory = wheel.fetch(release, say, folder)
    sys.meta_path.insert(0, modules.Finder(directory, REAL))
    sys.dont_write_bytecode = True
    return directory


class Draw(random.Random):
    """Draws the parts of cases."""

    def tokens(self, number, widest, lowest=0):
        """Returns token ids, compactly: a seed for expand() and the kinds of values in it."""
        kind = self.choice(("small", "vocabulary", "vocabulary", "edges", "large"))
        top = {"small": 256, "vocabulary": 150_000, "edges": 0, "large": widest}[kind]
        return {"n": number, "seed": self.getrandbits(32), "top": top, "widest": widest, "lowest": lowest}

    def text(self):
        return self.choice((*TEXTS, hashlib.sha256(self.randbytes(4)).hexdigest(), f"adapter-{self.randrange(9)}"))

    def length(self, block):
        return self.choice((0, 1, block - 1, block, 2 * block + 1, 3 * block, *(self.randrange(7 * block + 2) for _ in range(3))))


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


def answer(hashes):
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


def draw_items(draw, tokens):
    items, position = [], 0
    overlap = draw.random() < 0.3  # sound in a film lies among its pictures
    for _ in range(draw.choice((1, 1, 2, 5, 40))):
        offset = position + draw.choice((0, 0, 1, draw.randrange(20)))
        length = draw.choice((0, 1, 2, draw.randrange(1, 40), draw.randrange(1, tokens + 2)))
        items.append([draw.text(), offset, length])
        position = offset + (draw.randrange(length + 1) if overlap else length)
    return items


def draw_vllm(draw, release, number):
    """Returns a case of one of the configurations of an engine."""
    block = draw.choice((1, 2, 3, 4, 15, 16, 16, 16, 32, 64, 256))
    if number % 50 == 49:
        block = draw.choice((6_553, 6_554, 7_000, 13_107, 21_800, 22_000, 30_000, 70_000))  # around 64 KiB of pickle
    case = {"block_size": block, "algorithm": ALGORITHMS[number % 4], "keys": {}}
    length = draw.choice((0, block, 2 * block, 2 * block + 5)) if block > 1000 else draw.length(block)
    widest, lowest = draw.choice(((2**31 - 1, 0), (2**31 - 1, 0), (2**32 + 5, 0), (2**63 - 1, -(2**63))))
    case["tokens"] = draw.tokens(length, widest, lowest)
    seeded = version(release) < (0, 29) or case["algorithm"].startswith("xx") or draw.random() < 0.5
    if seeded:
        case["seed"] = draw.choice(("0", "42", "random", "", "é", "s" * 300))
    if version(release) >= (0, 33) and draw.random() < 0.5:
        case["lookahead"] = draw.choice((1, 1, 2, 3, 7, 20))
    keys = case["keys"]
    if draw.random() < 0.3:
        keys["lora"] = [draw.text(), draw.text()]
    if draw.random() < 0.4:
        keys["items"] = draw_items(draw, length)
    if draw.random() < 0.3:
        keys["salt"] = draw.text()
        if draw.random() < 0.1:
            keys["salt"] = "s" * draw.choice((65_000, 65_535, 65_536, 70_000))
    if draw.random() < 0.15:
        keys["embeds"] = draw.tokens(draw.randrange(length + 1), 2**32 - 1)
        if not keys["embeds"]["top"]:
            keys["embeds"]["top"] = 1000
    return case


def answer_vllm(utils, hashing, case):
    """Returns what the release's own hasher says."""
    if "seed" in case:
        os.environ["PYTHONHASHSEED"] = case["seed"]
    else:
        os.environ.pop("PYTHONHASHSEED", None)
    function = hashing.get_hash_fn_by_name(case["algorithm"])
    utils.init_none_hash(function)
    more = (case["lookahead"],) if case.get("lookahead") else ()
    hasher = utils.get_request_block_hasher(case["block_size"], function, *more)
    return answer([h.hex() for h in hasher(Request(case))])


def run_vllm(release, number, draw):
    load(release, "vllm-events")
    hashing = importlib.import_module("vllm.utils.hashing")
    utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
    utils.tensor_data = lambda rows: rows  # without torch: the rows are bytes already
    cases = []
    for i in range(number):
        case = draw_vllm(draw, release, i)
        cases.append(case | {"expect": answer_vllm(utils, hashing, case)})
    return class_of(release), cases


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
        command = [*shlex.split(command), f"-I{INCLUDE}", f"-I{pybind11.get_include()}", source, "-o", target, "-lcrypto"]
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300).returncode:
            return None
        spec = importlib.util.spec_from_file_location(name, target)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class PythonHashes:
    """get_hash by the Python function of an older release, for tokens of 32 bits.

    It needs no compiler. Pages are cut here.
    """

    def __init__(self):
        path = os.path.join(wheel.fetch(SGLANG_PYTHON, say, "sglang-events"), "sglang/srt/mem_cache/hicache_storage.py")
        spec = importlib.util.spec_from_file_location("hicache_storage_" + SGLANG_PYTHON.replace(".", "_"), path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        self.get_hash_str = module.get_hash_str

    def get_hash(self, raw, logical_len, unit_width, is_bigram, prior_digest, page_size=None):
        units = [(raw[i], raw[i + 1]) for i in range(logical_len)] if is_bigram else list(raw[:logical_len])
        prior, hashes = prior_digest.hex() if prior_digest else None, []
        for start in range(0, logical_len, page_size):
            prior = self.get_hash_str(units[start : start + page_size], prior)
            hashes.append(prior)
        return hashes


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


def draw_sglang(draw, narrow):
    page = draw.choice((1, 1, 2, 16, 16, 64, 128, 1000))
    widest = 2**32 - 1 if narrow else draw.choice((2**32 - 1, 2**32 + 5, 2**63 - 1))
    case = {"page_size": page, "bigrams": draw.random() < 0.4, "dynamo": draw.random() < 0.5}
    # Keys of a radix tree have whole pages.
    case["tokens"] = draw.tokens(page * draw.choice((0, 1, 2, 3, draw.randrange(30))) + case["bigrams"], widest)
    if draw.random() < 0.4:
        case["extra_key"] = draw.text() + "0123456789abcdef" * draw.choice((0, 2))
        case["lora"] = draw.random() < 0.5
    if draw.random() < 0.4:
        case["salt"] = draw.text()
    return case


def answer_sglang(utils, events, case, cut):
    """Returns the digests in the storage, those of events, and the hashes of events."""
    tokens, page, bigrams = expand(case["tokens"]), case["page_size"], case["bigrams"]
    names = events.KvEventLoraNames()
    if case.get("lora"):
        names._names[case["extra_key"]] = "adapter"
    recorder = events.KVCacheEventRecorder(
        enabled=True, page_size=page, dynamo_format=case["dynamo"], lora_names=names
    )
    root = Node(Key([], False, None, None), None)
    root.hash_value = []
    node, storage, chain, published = root, [], [], []
    pages = max(len(tokens) - bigrams, 0) // page
    cut = cut % pages if pages else 0
    for start, end in ((0, cut), (cut, pages)):  # a path of two nodes
        if start == end:
            continue
        part = tokens[start * page : end * page + bigrams]
        node = Node(Key(part, bigrams, case.get("extra_key"), case.get("salt")), node)
        node.hash_value = utils.compute_node_hash_values(node, page)
        storage += node.hash_value
        recorder.record_store(node)
        chain += node.event_hash_value or node.hash_value
    for event in recorder.take():
        published += [format(h % 2**64, "016x") for h in event.block_hashes]
    return {"storage": answer(storage), "events": answer(chain), "short": answer(published)}


def run_sglang(release, number, draw):
    directory = load(release, "sglang-events")
    native = importlib.import_module("sglang.srt.mem_cache.cpp_utils.native_hash")
    extension = build_extension(directory)
    if not extension:
        say(f"SGLang {release}: no compiler, Python headers or OpenSSL headers: only tokens of 32 bits, by {SGLANG_PYTHON}")
    get_hash = extension or PythonHashes()
    native._load_native_hash_module = lambda: get_hash
    utils = importlib.import_module("sglang.srt.mem_cache.utils")
    events = importlib.import_module("sglang.srt.mem_cache.events")
    cases = []
    for _ in range(number):
        case = draw_sglang(draw, narrow=not extension)
        cases.append(case | {"expect": answer_sglang(utils, events, case, draw.randrange(100))})
    return "sglang-" + SGLANG, cases


def main(engine, release, number, seed, out):
    try:
        name, cases = {"vllm": run_vllm, "sglang": run_sglang}[engine](release, number, Draw(f"{seed} {release}"))
    except wheel.UnknownRelease as error:
        return say(f"reference: {error}") or 2
    except wheel.Unavailable as error:
        return say(f"reference: no network: {error}") or 3
    except ImportError as error:
        return say(f"reference: the modules of {engine} {release} do not import: {error!r}") or 1
    content = {"class": name, "release": release, "cases": cases}
    text = json.dumps(content, separators=(",", ":")).encode()
    with open(out, "wb") as file:
        file.write(gzip.compress(text, mtime=0) if out.endswith(".gz") else text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]))
