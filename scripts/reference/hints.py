"""The KvHintsEnvelope that a request carries, see kinds.py.

A case is a holder, its endpoint and its blocks, and the JSON of the envelope as the engine's class writes it. Only an
envelope that the engine's decoder accepts is one, and that KVCR, to which engines pass it on, reads as these blocks.
"""

import importlib
import json
import logging
import sys

import wheel
from modules import Finder

NAME = "hints"
PACKAGE = "./router/httpapi"
RECORDED = 10  # 1 KiB, compressed
FOLDERS = {"vllm": "vllm-hints", "sglang": "sglang-hints"}
SINCE = {"vllm": "0.31.0"}
MODULES = {"vllm": "vllm.v1.kv_hints.protocol", "sglang": "sglang.srt.managers.kv_hints"}
KVCR = "0.1.1"


def load(engine, release, directory):
    sys.meta_path.insert(0, Finder(wheel.fetch(KVCR, folder="kvcr"), ["vllm", "sglang", "msgspec"]))
    parser = importlib.import_module("kvcr.hint_parser")
    sys.meta_path[0] = Finder(directory, ["msgspec"])
    sys.dont_write_bytecode = True
    try:
        return Reference(importlib.import_module(MODULES[engine]), parser)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"the modules of {engine} {release} do not import: {error!r}") from error


def signature(reference):
    return reference.envelope({"engine": "e", "rank": 0, "endpoint": "tcp://a:1", "hashes": [1]})


def draw(reference, random, name):
    case = {
        "engine": random.choice(("engine-0", "http://10.0.0.10:8000", "é <&> \"1\"")), "rank": random.choice((0, 3)),
        "endpoint": random.choice(("tcp://10.0.0.10:5580", "tcp://[2001:db8::1]:5580", "tcp://engine-0.engine:1")),
        "hashes": [random.choice((random.getrandbits(64), random.getrandbits(8), 2**64 - 1)) for _ in range(random.randrange(1, 6))],
    }  # fmt: skip
    return {"id": name} | case | {"envelope": reference.envelope(case)}


def differs(reference, case):
    envelope = reference.envelope(case)
    return None if envelope == case["envelope"] else f"the release writes {envelope}, recorded is {case['envelope']}"


class Reference:
    """The classes of one release, and KVCR's parser."""

    def __init__(self, hints, parser):
        self.hints, self.parser = hints, parser
        self.msgspec = importlib.import_module("msgspec")
        logging.getLogger(parser.__name__).addHandler(Refuse())

    def envelope(self, case):
        """Returns the JSON of the envelope of a case."""
        payload = {"source_control_endpoint": case["endpoint"], "block_hashes": case["hashes"]}
        message = f"{case['engine']}/{case['rank']}/{case['hashes'][-1]:016x}"
        action = self.hints.KvHintAction(action_id="fetch", action_type="kv.fetch", action_version="1.0", payload=payload)
        made = self.hints.KvHintsEnvelope(protocol_version="0.1", message_id=message, actions=[action])
        text = self.msgspec.json.encode(made).decode()
        read = self.msgspec.convert(json.loads(text), self.hints.KvHintsEnvelope)
        fetch = self.parser._KVFetchHint.from_hint(self.msgspec.to_builtins(read))
        if (read, fetch.source_endpoint, fetch.block_hashes) != (made, case["endpoint"], frozenset(case["hashes"])):
            raise ValueError(f"{text} is read as {read}, and by KVCR as {fetch}")
        return text


class Refuse(logging.Handler):
    """Fails for what KVCR warns of: another version."""

    def emit(self, record):
        raise ValueError(record.getMessage())
