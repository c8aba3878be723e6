"""A vLLM engine that does what it is told, with its scheduler in this process.

Runs in vLLM's environment: main.py SETTINGS, a JSON object. Each line of standard
input is a command, a JSON array of its name and arguments; each is answered by a line on
standard output. What vLLM prints goes to standard error.
"""

import json
import os
import sys
import time
import traceback

import asked
import load

RESET_DEADLINE = 20  # seconds; blocks that are being stored cannot be forgotten


class Engine:
    lookups_type = asked.Lookups

    def __init__(self, settings):
        from vllm import LLM

        self.master = settings["master"]
        self.llm = LLM(**settings["llm"], worker_extension_cls="worker_extension.Extension")
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        # Of a MultiConnector the last one, which is asked after the others.
        self.connector = getattr(scheduler.connector, "_connectors", [scheduler.connector])[-1]
        self.client = self.connector.connector_scheduler.client
        self.lookups = self.lookups_type(self.client, self.connector._vllm_config)
        self.load = load.Load(self.llm)
        self._store = None

    def describe(self):
        """Returns what the engine's client and its pool are."""
        client = type(self.client)
        return {
            "client": f"{client.__module__}.{client.__name__}",
            "address": getattr(self.client, "address", None),
            "pool": getattr(self.client, "pool_reply", None),
        }

    def generate(self, prompts, max_tokens, ask):
        """Computes prompts, all at a time, and returns an object for each."""
        from vllm import SamplingParams

        self.lookups.begin(ask)
        parameters = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, detokenize=False)
        outputs = self.llm.generate([{"prompt_token_ids": p} for p in prompts], parameters, use_tqdm=False)
        return [
            {
                "cached": output.num_cached_tokens,
                "finish": output.outputs[0].finish_reason,
                "tokens": list(output.outputs[0].token_ids),
                "lookups": self.lookups.of(output.request_id),
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

    def flood(self, seconds, seed):
        """Returns how many requests finish in so many seconds, the longest step and the longest lookup."""
        self.lookups.begin(ask=False)
        return {**self.load.flood(seconds, seed), "waited": self.lookups.longest()}

    def decode(self, running, waiting, steps):
        """Returns the median of the steps in which a request decodes while another one waits."""
        self.lookups.begin(ask=False)
        self.reset()
        return self.load.decode(running, waiting, steps)

    def remove(self, keys):
        """Removes keys from the store."""
        for key, status in zip(keys, self.store().batch_remove(keys, force=True)):
            if status:
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
        try:
            reply = {"result": getattr(engine, command)(*arguments)}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{command}: {type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


def main():
    settings = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = Engine(settings)
    print(json.dumps({"result": engine.describe()}), file=replies, flush=True)
    serve(engine, replies)


if __name__ == "__main__":  # vLLM's workers import this module
    main()
