"""KV events as the engines' own classes encode them, see kinds.py.

A case holds the fields of a batch's events and the payload. Bytes are {"hex": "..."}; a field
that is absent was left out.
"""

import importlib
import string
import sys

from modules import Finder

NAME = "events"
PACKAGE = "./router/events"
RECORDED = 50  # 15 to 25 KiB, compressed
FOLDERS = {"vllm": "vllm-events", "sglang": "sglang-events"}
# Those that send events as arrays. SGLang 0.5.18 and 0.5.19 may have metadata in them.
OLDER = {"vllm": ["0.23.0"], "sglang": ["0.5.10", "0.5.19"]}
MODULES = {"vllm": "vllm.distributed.kv_events", "sglang": "sglang.srt.disaggregation.kv_events"}
RANKS = {"vllm": "data_parallel_rank", "sglang": "attn_dp_rank"}
TYPES = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
MEDIA = {
    "vllm": [None, "GPU", "CPU", "STORAGE", "FS", "OBJ", "cpu"],
    "sglang": [None, "GPU", "CPU_PINNED", "DISK", "EXTERNAL"],
}


class Reference:
    """The classes of one release."""

    def __init__(self, engine, release, directory):
        import msgspec  # installed by packages.ensure

        sys.meta_path.insert(0, Finder(directory, real=("msgspec",)))
        sys.dont_write_bytecode = True
        try:
            module = importlib.import_module(MODULES[engine])
            self.batch = module.KVEventBatch
            self.events = {name: getattr(module, name) for name in TYPES}
        except Exception as error:
            raise ImportError(f"the events of {engine} {release} do not import: {error!r}") from error
        # SGLang 0.5.19 has a class of its own for blocks with a salt.
        self.salted = getattr(module, "BlockStoredWithMetadata", None)
        self.metadata = getattr(module, "BlockStoredMetadata", None)
        self.engine, self.medium = engine, getattr(module, "StorageMedium", str)
        self.encoder = msgspec.msgpack.Encoder()  # as the publishers have it


load = Reference


def signature(reference):
    """The fields in their order and how they are encoded."""
    lines = []
    classes = [("batch", reference.batch), *reference.events.items(), ("salted", reference.salted)]
    for name, cls in classes if reference.salted else classes[:-1]:
        config = cls.__struct_config__
        shape = "array" if config.array_like else "map"
        optional = len(cls.__struct_defaults__) if config.omit_defaults else 0
        lines.append(f"{name}: {shape}, {optional} may be left out: {' '.join(cls.__struct_fields__)}")
    return "\n".join(lines)


def plain(value):
    """Returns a value as the engine's class takes it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return [plain(v) for v in value] if isinstance(value, list) else value


def encode(reference, case):
    """Returns the payload of a case."""
    events = []
    for fields in case["events"]:
        values = {name: plain(value) for name, value in fields.items() if name != "type"}
        for name in ("token_ids", "extra_keys"):  # the engine's inner sequences are tuples
            if values.get(name):
                values[name] = [tuple(v) if isinstance(v, list) else v for v in values[name]]
        if values.get("medium") in MEDIA["sglang"][1:]:
            values["medium"] = reference.medium(values["medium"])
        cls = reference.events[fields["type"]]
        if "cache_salt" in values and reference.salted:
            values["metadata"] = reference.metadata(cache_salt=values.pop("cache_salt"))
            cls = reference.salted
        events.append(cls(**values))
    return reference.encoder.encode(
        reference.batch(ts=case["time"], events=events, **{RANKS[reference.engine]: case["rank"]})
    )


def differs(reference, case):
    try:
        payload = encode(reference, case).hex()
    except TypeError as error:  # it has no such field
        return str(error)
    return None if payload == case["payload"] else f"the release encodes {payload}, recorded is {case['payload']}"


def draw(reference, random, name):
    drawer = Drawer(reference, random)
    case = {
        "id": name,
        "time": random.choice([random.uniform(0, 4e9), 0.0, 1.5]),
        "rank": random.choice([None, 0, 1, random.randrange(1 << 31)]),
        "events": [drawer.event() for _ in range(random.choice([0, 1, 1, 1, 1, 1, 2, 2, 3, 10]))],
    }
    return case | {"payload": encode(reference, case).hex()}


class Drawer:
    """Draws the events of one batch."""

    def __init__(self, reference, random):
        self.reference, self.engine, self.random = reference, reference.engine, random
        # vLLM sends whole digests if it is told so; SGLang has signed integers.
        self.hash_bytes = random.choice([0, 0, 0, 8, 16, 32]) if self.engine == "vllm" else 0

    def event(self):
        kind = self.random.choices(TYPES, [8, 4, 1])[0]
        fields = {"type": kind}
        cls = self.reference.events[kind]
        required = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
        for i, name in enumerate(cls.__struct_fields__):
            if i < required or self.random.random() < 0.5:
                fields[name] = getattr(self, name)(fields)
        if kind == "BlockStored" and self.reference.salted and self.random.random() < 0.5:
            fields["cache_salt"] = self.text()
        return fields

    def hash(self):
        if self.hash_bytes:
            return {"hex": self.random.randbytes(self.hash_bytes).hex()}
        low, high = (0, 1 << 64) if self.engine == "vllm" else (-1 << 63, 1 << 63)
        some = [low, high - 1, 0, 1, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1]
        if self.engine == "sglang":
            some += [-1, -32, -33, -128, -129, -32768, -32769, -1 << 31, (-1 << 31) - 1]
        return self.random.choice(some) if self.random.random() < 0.2 else self.random.randrange(low, high)

    def text(self):
        letters = string.ascii_letters + "é漢🙂\x00 "
        length = self.random.choice([0, 1, 5, 31, 32]) if self.random.random() < 0.99 else 300
        return "".join(self.random.choice(letters) for _ in range(length))

    def token(self):
        return self.random.randrange(self.random.choice([128, 256, 1 << 16, 200_000, 1 << 32]))

    def maybe(self, *values):
        return self.random.choice([None, *values])

    # The fields of events; each takes the fields drawn before it.

    def block_hashes(self, fields):
        count = self.random.choice([1, 1, 1, 2, 3, 0 if self.random.random() < 0.2 else 1, 8])
        return [self.hash() for _ in range(count)]

    def parent_block_hash(self, fields):
        return self.maybe(self.hash(), self.hash())

    def token_ids(self, fields):
        # Masked blocks have tokens and no hash, so the number does not follow from the hashes.
        count = len(fields["block_hashes"]) * self.random.choice([1, 4, 4, 7]) + self.random.choice([0, 0, 3])
        tokens = [self.token() for _ in range(count)]
        if tokens and self.random.random() < 0.02:
            tokens[0] = self.random.choice([1 << 32, 1 << 40, (1 << 63) - 1])
        if self.engine == "sglang" and self.random.random() < 0.2:
            return [[a, b] for a, b in zip(tokens, tokens[1:])]  # bigrams, of EAGLE
        return tokens

    def block_size(self, fields):
        return self.random.choice([1, 4, 16, 64, 128, 1056, 1 << 20])

    def lora_id(self, fields):
        return self.maybe(0, 1, 77, 1 << 40)

    def medium(self, fields):
        return self.random.choice(MEDIA[self.engine])

    def lora_name(self, fields):
        return self.maybe(self.text(), self.text())

    def extra_keys(self, fields):
        keys = [self.text, lambda: [self.text(), self.random.randrange(-99, 99999)],
                lambda: {"hex": self.random.randbytes(32).hex()}, lambda: self.random.randrange(1 << 40)]  # fmt: skip
        return self.maybe([
            self.maybe([self.random.choice(keys)() for _ in range(self.random.choice([0, 1, 1, 2]))])
            for _ in fields["block_hashes"]
        ])  # fmt: skip

    def group_idx(self, fields):
        return self.maybe(0, 1, 7, 200)

    def kv_cache_spec_kind(self, fields):
        return self.maybe("full_attention", "sliding_window", "mamba")

    def kv_cache_spec_sliding_window(self, fields):
        return self.maybe(128, 4096, 1 << 17)

    def locality(self, fields):
        return self.maybe("LOCAL", "REMOTE")

    def ownership(self, fields):
        return self.maybe("", "fs", "tier-2")

    session_id = cache_salt = lora_name

    def lookahead_token_ids(self, fields):
        counts = [self.random.choice([0, 1, 2]) for _ in fields["block_hashes"]]
        return self.maybe([[self.token() for _ in range(count)] for count in counts])
