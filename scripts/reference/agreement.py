"""Events about the first blocks of prompts, hashed and encoded by the engines' own modules, see kinds.py.

A case says how the engine hashes, and has the payload of a batch that stores the first blocks of two prompts.
"""

import importlib

import blockhash
import events

NAME = "agreement"
PACKAGE = "./router"
RECORDED = 40  # 6 to 8 KiB, compressed
FOLDERS = blockhash.FOLDERS
PROMPTS = 2
SEEDS = ("0", "42")


def load(engine, release, directory):
    hasher = blockhash.load(engine, release, directory)
    codec = importlib.import_module(events.MODULES[engine])
    return (VLLM if engine == "vllm" else SGLang)(hasher, codec)


def signature(reference):
    """The payloads of some cases."""
    return "\n".join(reference.payload(case) for case in reference.probe())


def draw(reference, random, name):
    case = {"id": name, "release": reference.release} | reference.draw(random, int(name.rpartition("-")[2]))
    return case | {"payload": reference.payload(case)}


def differs(reference, case):
    got = reference.payload(case)
    return None if got == case["payload"] else f"the release sends {got}, recorded is {case['payload']}"


class Reference:
    """The modules of one release."""

    def __init__(self, hasher, codec):
        import msgspec

        self.hasher, self.codec, self.release = hasher, codec, hasher.release
        self.encoder = msgspec.msgpack.Encoder()  # as the publishers have it

    def prompts(self, case, tokens):
        """Returns the token ids of each prompt, which differ."""
        spec = {"top": 150_000, "widest": 150_000, "lowest": 0}
        return [blockhash.expand({"n": tokens, "seed": case["tokens"] + i, **spec}) for i in range(PROMPTS)]

    def encode(self, stored):
        rank = {events.RANKS[self.engine]: 0}
        return self.encoder.encode(self.codec.KVEventBatch(ts=1.5, events=stored, **rank)).hex()

    def drawn(self, random, **fields):
        return {
            "block_size": random.choice((1, 4, 16, 16)), "blocks": random.choice((1, 1, 2, 5)),
            "tokens": random.randrange(1 << 32), "salt": "tenant é" if random.random() < 0.3 else "", **fields,
        }  # fmt: skip


class VLLM(Reference):
    engine = "vllm"

    def __init__(self, hasher, codec):
        super().__init__(hasher, codec)
        self.blocks = importlib.import_module("vllm.v1.core.block_pool")

    def probe(self):
        case = {"block_size": 4, "blocks": 2, "tokens": 1, "salt": "", "bytes": False}
        case |= {"lookahead": 0, "algorithm": "sha256"}
        yield case | {"seed": "0"}
        yield case | {"seed": "0", "bytes": True, "salt": "salt"}
        if self.hasher.seeded["sha256"]:
            yield case
        if self.hasher.lookahead:
            yield case | {"lookahead": 2}

    def draw(self, random, number):
        algorithm = blockhash.ALGORITHMS[number % 4]
        case = self.drawn(random, algorithm=algorithm, bytes=random.random() < 0.3, lookahead=0)
        if not self.hasher.seeded[algorithm] or random.random() < 0.5:
            case["seed"] = random.choice(SEEDS)
        if self.hasher.lookahead and random.random() < 0.3:
            case["lookahead"] = random.choice((1, 3))
        return case

    def payload(self, case):
        block, blocks, lookahead = case["block_size"], case["blocks"], case["lookahead"]
        self.hasher.first_parent(case["algorithm"], case.get("seed"))
        function = self.hasher.hashing.get_hash_fn_by_name(case["algorithm"])
        more = (lookahead,) if lookahead else ()
        hasher = self.hasher.utils.get_request_block_hasher(block, function, *more)
        self.hasher.utils.envs.VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES = not case["bytes"]
        options = {"num_hash_lookahead_tokens": lookahead} if lookahead else {}
        pool = self.blocks.BlockPool(blocks * PROMPTS + 1, True, block, enable_kv_cache_events=True, **options)
        for tokens in self.prompts(case, block * blocks + lookahead):
            request = Request(tokens, case["salt"])
            request.block_hashes = hasher(request)
            pool.cache_full_blocks(request, pool.get_new_blocks(blocks), 0, blocks, block, 0)
        return self.encode(pool.take_events())


class Request(blockhash.Request):
    """What the hasher and the pool of blocks read of a request."""

    session_id = None

    def __init__(self, tokens, salt):
        self.all_token_ids, self.num_tokens, self.block_hashes = tokens, len(tokens), []
        self.mm_features, self.lora_request, self.prompt_embeds = [], None, None
        self.cache_salt = salt or None
        self._prompt_embeds_per_block_hashes = {}


class SGLang(Reference):
    engine = "sglang"

    def probe(self):
        case = {"block_size": 4, "blocks": 2, "tokens": 1, "salt": "salt"}
        for bigrams in (False, True):
            yield case | {"bigrams": bigrams, "dynamo": bigrams}

    def draw(self, random, number):
        return self.drawn(random, bigrams=bool(number & 1), dynamo=bool(number & 2))

    def payload(self, case):
        page, bigrams = case["block_size"], case["bigrams"]
        recorder = self.hasher.events.KVCacheEventRecorder(
            enabled=True, page_size=page, dynamo_format=case["dynamo"], lora_names=self.hasher.events.KvEventLoraNames()
        )
        root = blockhash.Node(blockhash.Key([], False, None, None), None)
        root.hash_value = []
        for tokens in self.prompts(case, page * case["blocks"] + bigrams):
            recorder.record_store(blockhash.Node(blockhash.Key(tokens, bigrams, None, case["salt"]), root))
        return self.encode(recorder.take())
