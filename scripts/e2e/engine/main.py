"""A vLLM engine that does what it is told, with its scheduler in this process.

Runs in vLLM's environment: main.py SETTINGS, a JSON object. Each line of standard
input is a command, a JSON array of its name and arguments; each is answered by a line on
standard output. What vLLM prints goes to standard error. An engine without a store only generates.
"""

import json
import os
import sys
import time
import traceback

import asked
import load
import modes

NOT_FOUND = -704  # the store's error for a key that it does not have
RESET_DEADLINE = 20  # seconds; blocks that are being stored cannot be forgotten


class Engine:
    def __init__(self, settings):
        from vllm import LLM

        self.master = settings["master"]
        self.llm = LLM(**settings["llm"], worker_extension_cls="worker_extension.Extension")
        self.load = load.Load(self.llm)
        self.client = self.lookups = self._store = None
        self.loaded = []  # keys with the store's results
        self.empty_saves = []  # requests that were to be saved without blocks
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        if scheduler.connector:
            self.watch(scheduler.connector)

    def watch(self, connector):
        """Records what is looked up, loaded and saved."""
        # Of a MultiConnector the last one, which is asked after the others.
        connector = getattr(connector, "_connectors", [connector])[-1]
        self.client = connector.connector_scheduler.client
        self.lookups = asked.Lookups(self.client, connector._vllm_config)
        self.modes = modes.Modes(connector, self.lookups)
        self.llm.collective_rpc("record_loads", args=(self.loaded,))
        build = connector.build_connector_meta

        def build_meta(scheduler_output):
            meta = build(scheduler_output)
            self.empty_saves += [r.req_id for r in meta.requests if r.can_save and not any(r.block_ids)]
            return meta

        connector.build_connector_meta = build_meta

    def describe(self):
        """Returns what the engine's client and its pool are."""
        client = type(self.client)
        return {
            "client": f"{client.__module__}.{client.__name__}",
            "address": getattr(self.client, "address", None),
            "pool": getattr(self.client, "pool_reply", None),
        }

    def generate(self, prompts, max_tokens, ask, salt=None, adapter=None, lost=()):
        """Computes prompts, all at a time, and returns an object for each. salt keeps their blocks apart from others';
        adapter has the name, the number and the folder of a LoRA. Keys that are lost are removed as soon as a lookup
        is answered."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        self.loaded.clear()
        if self.lookups:
            self.lookups.begin(ask, (lambda: self.remove(lost)) if lost else None)
        parameters = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, detokenize=False)
        salted = {"cache_salt": salt} if salt else {}
        outputs = self.llm.generate(
            [{"prompt_token_ids": p, **salted} for p in prompts],
            parameters,
            use_tqdm=False,
            lora_request=LoRARequest(*adapter) if adapter else None,
        )
        return [
            {
                **load.described(output),
                "lookups": self.lookups.of(output.request_id) if self.lookups else [],
                "loads": list(self.loaded),
                "empty_saves": self.empty_saves,
            }
            for output in outputs
        ]

    def settle(self, seconds):
        """Waits until the workers have stored what they are to store. Returns whether they have."""
        deadline = time.monotonic() + seconds
        while any(self.llm.collective_rpc("stores_pending")):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def reset(self):
        """Forgets the blocks that the engine has itself."""
        deadline = time.monotonic() + RESET_DEADLINE
        while not self.llm.reset_prefix_cache():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the engine's own blocks were still in use after {RESET_DEADLINE} s")
            self.llm.llm_engine.step()  # frees blocks that have been stored
            time.sleep(0.02)

    def reset_store(self):
        """Forgets the engine's own blocks and empties the store. Returns whether it was done."""
        return self.llm.reset_prefix_cache(reset_connector=True)

    def fill(self):
        """Computes all prompts of a flood."""
        self.lookups.begin(ask=False)
        self.load.fill()

    def flood(self, seconds, seed):
        """Returns what load.flood does, and what is said of its lookups."""
        self.lookups.begin(ask=False)
        return {**self.load.flood(seconds, seed), **self.lookups.summary()}

    def abort(self, prompts, seed):
        """Returns the outputs of the requests that are not aborted, and what is left of all."""
        self.lookups.begin(ask=False)
        outputs = self.load.abort(prompts, seed)
        if hasattr(self.client, "remembered"):
            kept = self.client.remembered.hits, self.client.asking.sent, self.client._pending
        else:
            kept = (self.client.futures,)  # vLLM's own client
        return {"outputs": outputs, "left": sum(map(len, kept))}

    def use(self, mode):
        """Has lookups answered by another client: see modes.py."""
        self.modes.use(mode)

    def stream(self, streams, arrivals, gap):
        """Returns how long the streams waited for their tokens, and the arrivals for their first."""
        return self.load.stream(streams, arrivals, gap)

    def decode(self, running, waiting, steps):
        """Returns the steps in which a request decodes while another one waits."""
        self.reset()
        return self.load.decode(running, waiting, steps)

    def remove(self, keys):
        """Removes keys from the store."""
        for key, status in zip(keys, self.store().batch_remove(keys, force=True)):
            if status not in (0, NOT_FOUND):  # a store that evicts may be faster
                raise KeyError(f"{key} cannot be removed: error {status}")

    def store(self):
        """Returns a client of the store that has no memory for blocks."""
        if self._store is None:
            from mooncake.store import MooncakeDistributedStore

            store = MooncakeDistributedStore()
            error = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "", self.master)
            if error:
                raise ConnectionError(f"the store's client cannot be set up: error {error}")
            self._store = store
        return self._store


def serve(engine, replies):
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        named = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
        try:
            reply = {"result": getattr(engine, command)(*arguments, **named)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{command}: {type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


def run(engine_type):
    settings = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = engine_type(settings)
    print(json.dumps({"result": engine.describe()}), file=replies, flush=True)
    serve(engine, replies)


if __name__ == "__main__":  # vLLM's workers import this module
    run(Engine)
