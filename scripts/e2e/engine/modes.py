"""Exchanges the client that answers an engine's lookups, so that all are measured in one process.

Runs in vLLM's environment, with the plug-in. The modes:

    none             every lookup is a hit of 0, so that prompts are computed
    own, own-async   vLLM's own client, without and with lookup_async
    hitline, hitline-async
    instant          the plug-in, answered from a table in the process
    whole, local     hitline, with lookups that begin at token 0, or where the engine's own cache ends
"""

import importlib.machinery
import importlib.util
import sys


class Modes:
    def __init__(self, connector, lookups):
        self.scheduler, self.vllm_config = connector.connector_scheduler, connector._vllm_config
        self.hitline, self.recorded, self.original = lookups.client, lookups.lookup, lookups.original
        self._own = None
        self.hits = {}  # by length and last hash

    def use(self, mode):
        """Has lookups answered in a mode; recorded is as the engine started."""
        mode, _, waits = mode.partition("-")
        self.scheduler.lookup_async = waits == "async"
        self.scheduler.client = self.own() if mode == "own" else self.hitline
        answers = {"recorded": self.recorded, "none": self.miss, "instant": self.from_table}
        self.hitline.lookup = answers.get(mode, self.original)
        if mode in ("whole", "local"):
            self.hitline.settings = self.hitline.settings._replace(lookup=mode)
            self.hitline.pool.is_local = mode == "local"

    def own(self):
        """Returns vLLM's own client. The plug-in has taken its place in the module, so the module is read again."""
        if self._own is None:
            from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store import worker

            loader = importlib.machinery.SourceFileLoader(f"{worker.__package__}.unchanged", worker.__file__)
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
            sys.modules[loader.name] = module
            loader.exec_module(module)
            self._own = module.LookupKeyClient(self.vllm_config)
        return self._own

    def miss(self, req_id, num_tokens, block_hashes, non_block=False):
        hit = self.original(req_id, num_tokens, [bytes(len(h)) for h in block_hashes[:1]])
        self.hitline.discard(req_id)
        return hit

    def from_table(self, req_id, num_tokens, block_hashes, non_block=False):
        """Answers from the table what hitline has answered once."""
        key = num_tokens, bytes(block_hashes[-1]) if block_hashes else b""
        if key not in self.hits:
            self.hits[key] = self.original(req_id, num_tokens, block_hashes)
        return self.hits[key]
