"""A vLLM engine whose lookups begin where its own cache ends: like main.py, of which it has all commands, it also
records what it loads, and can lose keys between a lookup and the load. Without a store it computes prompts only.

Runs in vLLM's environment: turns.py SETTINGS, a JSON object.
"""

import json
import os
import sys

import asked
import main


class Lookups(asked.Lookups):
    """Also records at which token lookups begin."""

    answered = None  # is called once, after the first answer

    def lookup(self, req_id, num_tokens, block_hashes, non_block=False):
        start = self.client._num_computed
        result = super().lookup(req_id, num_tokens, block_hashes, non_block)
        if result is not None:
            self.records[req_id][-1]["start"] = start
            answered, self.answered = self.answered, None
            if answered:
                answered()
        return result


class Engine(main.Engine):
    lookups_type = Lookups

    def __init__(self, settings):
        super().__init__(settings)
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        self.loads = []  # keys with the store's results
        group = get_kv_transfer_group()
        for connector in getattr(group, "_connectors", [group]):
            for thread in connector.connector_worker.kv_recv_threads:
                thread.store = Loads(thread.store, self.loads)
        self.empty_saves = []  # requests that were to be saved without blocks
        self.build = self.connector.build_connector_meta
        self.connector.build_connector_meta = self.build_meta

    def build_meta(self, scheduler_output):
        meta = self.build(scheduler_output)
        self.empty_saves += [r.req_id for r in meta.requests if r.can_save and not any(r.block_ids)]
        return meta

    def turn(self, prompt, max_tokens, lost):
        """Computes a prompt, whose lookup is asked of all; the keys that are lost are removed as soon as it is
        answered. Returns the output, with what was loaded."""
        self.loads.clear()
        self.lookups.answered = lambda: self.remove(lost)
        try:
            output = self.generate([prompt], max_tokens, True)[0]
        finally:
            self.lookups.answered = None
        return {**output, "loads": list(self.loads), "empty_saves": self.empty_saves}


class Loads:
    """A store whose loads are recorded."""

    def __init__(self, store, loads):
        self.store, self.loads = store, loads

    def __getattr__(self, name):
        return getattr(self.store, name)

    def batch_get_into_multi_buffers(self, keys, *buffers):
        results = self.store.batch_get_into_multi_buffers(keys, *buffers)
        self.loads.extend(zip(keys, results))
        return results


class Alone:
    """An engine without a store."""

    def __init__(self, settings):
        from vllm import LLM

        self.llm = LLM(**settings["llm"])

    def describe(self):
        return {}

    def turn(self, prompt, max_tokens):
        """Returns the tokens that follow a prompt."""
        from vllm import SamplingParams

        parameters = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, detokenize=False)
        (output,) = self.llm.generate([{"prompt_token_ids": prompt}], parameters, use_tqdm=False)
        return list(output.outputs[0].token_ids)


def run():
    settings = json.loads(sys.argv[1])
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = (Engine if "kv_transfer_config" in settings["llm"] else Alone)(settings)
    print(json.dumps({"result": engine.describe()}), file=replies, flush=True)
    main.serve(engine, replies)


if __name__ == "__main__":  # vLLM's workers import this module
    run()
