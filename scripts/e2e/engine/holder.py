"""A vLLM engine with a store that also publishes KV events: like main.py, of which it has all commands.

Runs in vLLM's environment: holder.py SETTINGS, a JSON object. It answers what it has of a prompt
itself, and what it then loads from the store.
"""

import os

import main


class Engine(main.Engine):
    def __init__(self, settings):
        llm, events = settings["llm"], settings["events"]
        if events:
            os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(int(settings["integers"]))
            from vllm.config import KVEventsConfig

            llm["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", **events)
        super().__init__(settings)
        self.scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        self.manager = self.scheduler.kv_cache_manager
        self.batches = 0  # of events, published
        if events:
            self.count_batches(self.scheduler.kv_event_publisher)
        self.loads = Loads(self.scheduler.connector)

    def count_batches(self, publisher):
        publish = publisher.publish

        def counted(batch):
            publish(batch)
            self.batches += 1

        publisher.publish = counted

    def describe(self):
        """Returns the engine's groups: the classes of their specs and their block sizes."""
        groups = self.manager.kv_cache_config.kv_cache_groups
        return [[type(g.kv_cache_spec).__name__, g.kv_cache_spec.block_size] for g in groups]

    def compute(self, prompts, max_tokens):
        """Computes prompts, all at a time. Returns for each what it had, loaded and used of it in tokens, and
        the hashes of its whole blocks."""
        self.loads.begin()
        outputs = self.generate(prompts, max_tokens, False)
        return [
            {**load, "cached": output["cached"], "finish": output["finish"]}
            for output, load in zip(outputs, self.loads.of(prompts))
        ]

    def clear(self):
        """Drops all blocks of the engine's cache. An engine says so with the batch of its next step."""
        self.reset()
        self.generate([[3]], 1, False)

    def published(self):
        """Returns the sequence number of the next batch of events."""
        return self.batches

    def longest(self, prompts):
        """Returns for the hashes of each prompt how many tokens of its whole blocks the engine has, by its own
        search."""
        size = self.llm.llm_engine.vllm_config.cache_config.block_size
        found = []
        for names in prompts:
            hashes = [bytes.fromhex(name) for name in names]
            hits = self.manager.coordinator.find_longest_cache_hit(hashes, len(hashes) * size)
            found.append(hits[1])
        return found


class Loads:
    """Wraps the connector's method that says what can be loaded for a request."""

    def __init__(self, connector):
        self.original = connector.get_num_new_matched_tokens
        connector.get_num_new_matched_tokens = self.matched
        self.found = {}

    def begin(self):
        self.found = {}

    def of(self, prompts):
        """Returns the latest answers for these prompts."""
        return [self.found[tuple(prompt)] for prompt in prompts]

    def matched(self, request, local):
        result = self.original(request, local)
        self.found[tuple(request.prompt_token_ids)] = {
            "local": local,
            "external": result[0],
            "hashes": [bytes(h).hex() for h in request.block_hashes],
        }
        return result


if __name__ == "__main__":  # vLLM's workers import this module
    main.run(Engine)
