"""A vLLM engine over whose store faults are made: like main.py, of which it has all commands.

Runs in vLLM's environment: places.py SETTINGS, a JSON object.
"""

import itertools
import time

import main

FILLED = 1 << 20, 1 << 16  # bytes of what fills the store: large first, then less than a block
FULL = 1.0  # seconds for which nothing more can be put


class Engine(main.Engine):
    def __init__(self, settings):
        super().__init__(settings)
        self.hashes = {}  # of each prompt that was looked up
        connector = self.llm.llm_engine.engine_core.engine_core.scheduler.connector
        matched = connector.get_num_new_matched_tokens

        def record(request, local):
            self.hashes[tuple(request.prompt_token_ids)] = [bytes(h).hex() for h in request.block_hashes]
            return matched(request, local)

        connector.get_num_new_matched_tokens = record

    def describe(self):
        from hitline.client_info import process_id

        return {**super().describe(), "process": process_id()}

    def compute(self, prompts):
        """Computes prompts, all at a time, from what the store has of them. Returns the hashes of each."""
        self.reset()
        self.generate(prompts, 1, False)
        return [self.hashes[tuple(prompt)] for prompt in prompts]

    def fail_puts(self, rank):
        """Has all puts of a rank fail, or of none if it is None."""
        self.llm.collective_rpc("fail_puts", args=(rank,))

    def fill(self):
        """Puts objects until there is room for none, and leases them. Returns their keys."""
        store, numbers, keys = self.store(), itertools.count(), []
        for size in FILLED:
            last = time.monotonic()
            while time.monotonic() < last + FULL:
                key = f"filled-{next(numbers)}"
                if store.put(key, bytes(size)) == 0:
                    store.is_exist(key)
                    keys.append(key)
                    last = time.monotonic()
                else:
                    time.sleep(0.05)
        return keys


if __name__ == "__main__":  # vLLM's workers import this module
    main.run(Engine)
