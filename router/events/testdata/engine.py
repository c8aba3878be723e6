"""The KV cache of an engine: the cache manager and the event publisher of a release of vLLM.

    engine.py SETTINGS

SETTINGS is the JSON object of engineConfig in engine_process_linux_test.go. The modules come out of the release's wheel and run as
they are; only the model is missing. Each line of standard input is a JSON array of a command and
its arguments; each is answered by one line of JSON. It ends with its input.
"""

import importlib
import json
import logging
import os
import random
import sys
import time
from types import SimpleNamespace

import calls
import modules
import packages
import recorder
import specs
import wheel

REAL = ("msgspec", "zmq", "cbor2", "xxhash")  # packages that are not stubbed
BLOCK = 4  # tokens of a block
PROMPT = 48  # tokens of the longest prompt
RUNNING = 4  # requests at a time


class Engine:
    """A KV cache that computes random requests and publishes its events."""

    def __init__(self, settings):
        self.settings = settings
        self.random = random.Random(settings["seed"])
        self.load(settings["release"])
        utils = self.module("vllm.v1.core.kv_cache_utils")
        hashing = self.module("vllm.utils.hashing")
        envs = self.module("vllm.envs")
        envs.VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES = settings["integers"]
        envs.VLLM_PREFIX_CACHE_RETENTION_INTERVAL = None
        utils.init_none_hash(hashing.sha256_cbor)
        self.utils = utils
        self.hasher = utils.get_request_block_hasher(BLOCK, hashing.sha256_cbor)
        self.events = self.module("vllm.distributed.kv_events")
        self.status = self.module("vllm.v1.request").RequestStatus
        self.manager = self.build_manager()
        self.publisher = self.events.ZmqEventPublisher(
            0, settings["endpoint"], settings["replay"], buffer_steps=settings["buffer"]
        )
        self.recorder = recorder.Recorder(self.publisher, self.manager.block_pool, utils)
        self.requests = 0
        self.running, self.prompts = [], []

    def module(self, name):
        return importlib.import_module(name)

    def load(self, release):
        directory = wheel.fetch(release, lambda text: print(text, file=sys.stderr, flush=True), "vllm-events")
        packages.ensure()
        sys.dont_write_bytecode = True
        sys.meta_path.insert(0, modules.Finder(directory, REAL))
        self.release = release

    def build_manager(self):
        """Returns a cache manager with a group of full attention and, if wanted, one of a sliding window."""
        interface = self.module("vllm.v1.kv_cache_interface")
        groups = [{"kind": "full_attention", "block_size": BLOCK}]
        if self.settings["window"]:
            window = {"kind": "sliding_window", "block_size": BLOCK, "sliding_window": self.settings["window"]}
            groups.append(window)
        reference = SimpleNamespace(specs=interface, kv_cache_utils=self.utils, release=self.release)
        config = interface.KVCacheConfig(
            num_blocks=self.settings["blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=specs.build_groups(reference, groups),
        )
        manager = self.module("vllm.v1.core.kv_cache_manager").KVCacheManager
        return manager(
            **calls.accepted(
                manager,
                kv_cache_config=config,
                max_model_len=4 * PROMPT,
                scheduler_block_size=BLOCK,
                hash_block_size=BLOCK,
                enable_caching=True,
                enable_kv_cache_events=True,
            )
        )

    # What a scheduler does in a step.

    def run(self, steps, lost=False):
        """Runs steps and returns what they have published; lost fails their sends."""
        self.recorder.lose(lost)
        for _ in range(steps):
            self.step()
        return self.recorder.take()

    def step(self):
        """Starts, continues, ends or evicts at random, and publishes the events."""
        chance = self.random.random()
        if chance < 0.02:
            self.manager.block_pool.evict_blocks({self.random.randrange(1, self.settings["blocks"])})
        elif chance < 0.7 or not self.running:
            self.start()
        else:
            self.decode(self.random.choice(self.running))
        while len(self.running) > RUNNING or (self.running and self.random.random() < 0.3):
            self.finish(self.random.choice(self.running))
        self.publish()

    def start(self):
        request = self.new_request()
        blocks, computed = self.manager.get_computed_blocks(request)[:2]
        part = self.random.randint(1, request.num_tokens - computed)  # a chunk of the prompt
        if self.manager.allocate_slots(request, part, computed, blocks) is None:
            return  # the pool has no room
        request.num_computed_tokens = computed + part
        self.running.append(request)
        if part < request.num_tokens - computed:
            self.compute(request, request.num_tokens - request.num_computed_tokens)

    def decode(self, request):
        """Generates tokens, which fill blocks too."""
        request.all_token_ids.append(self.random.randrange(1000))
        request.num_tokens += 1
        request.block_hashes.extend(self.hasher(request))
        self.compute(request, 1)

    def compute(self, request, tokens):
        if self.manager.allocate_slots(request, tokens) is None:
            self.finish(request)
        else:
            request.num_computed_tokens += tokens

    def finish(self, request):
        self.running.remove(request)
        self.manager.free(request)

    def new_request(self):
        """Returns a request whose prompt is new, or an earlier one, or shares a prefix with one."""
        chance = self.random.random()
        if self.prompts and chance < 0.7:
            tokens, lora, salt = self.random.choice(self.prompts[-40:])
            if chance < 0.4:
                cut = self.random.randint(1, len(tokens))
                tokens = tokens[:cut] + self.tokens(self.random.randint(1, BLOCK * 3))
        else:
            least = self.settings["least"]
            tokens = self.tokens(self.random.randint(least, PROMPT))
            if self.random.random() < 0.5:
                tokens = tokens[: max(least, len(tokens) // BLOCK * BLOCK)]  # repeated, it is copied
            lora = self.random.choice([None, None, "a", "b"])
            salt = self.random.choice(["", "", "salt"])
        tokens = tokens[:PROMPT]
        self.prompts.append((tokens, lora, salt))
        self.requests += 1
        request = SimpleNamespace(
            request_id=str(self.requests), all_token_ids=list(tokens), num_tokens=len(tokens),
            num_prompt_tokens=len(tokens), num_computed_tokens=0, num_in_flight_tokens=0, num_preemptions=0,
            block_hashes=[], mm_features=[], cache_salt=salt, prompt_embeds=None, session_id=None,
            skip_reading_prefix_cache=False, shared_prefix_boundary=0, replay_start=0,
            lora_request=lora and SimpleNamespace(
                name=lora, lora_name=lora, lora_path="/" + lora, adapter_id=ord(lora), lora_int_id=ord(lora)
            ),
            kv_cache_report_mode="full" if self.random.random() < self.settings["full"] else "incremental",
            status=self.status.WAITING,
        )  # fmt: skip
        request.block_hashes.extend(self.hasher(request))
        return request

    def tokens(self, count):
        return [self.random.randrange(1000) for _ in range(count)]

    def reset(self):
        """Ends all requests and clears the cache."""
        while self.running:
            self.finish(self.running[0])
        if not self.manager.reset_prefix_cache():
            raise RuntimeError("the prefix cache was not reset")
        self.publish()
        return self.recorder.take()

    def publish(self):
        events = self.manager.take_events()
        if events:
            self.publisher.publish(self.events.KVEventBatch(ts=time.time(), events=events))


def main():
    logging.disable()  # of sends that fail
    engine = Engine(json.loads(sys.argv[1]))
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(engine, command)(*arguments)), flush=True)
    os._exit(0)  # as an engine that is killed


if __name__ == "__main__":
    try:
        main()
    except (wheel.Unavailable, wheel.UnknownRelease) as error:
        print(json.dumps({"unavailable": str(error)}), flush=True)
