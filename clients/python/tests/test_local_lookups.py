"""Lookups that begin where the engine's own cache ends, in the unmodified connector of vLLM's releases."""

from __future__ import annotations

import os
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hitline import VLLM_RELEASES, Client, vllm_plugin
from tests.support import Server, chained, needs_server
from tests.test_client import eventually
from tests.test_load_failures import Engine, blocks_of
from tests.test_wheels import InWheels
from tests.wheels import finished

BLOCKS = chained("starts", 8)
TOKENS = 140  # of a prompt with these blocks


def request_of(req_id: str) -> Any:
    return SimpleNamespace(request_id=req_id, num_tokens=TOKENS, num_prompt_tokens=TOKENS, block_hashes=BLOCKS)


@needs_server
class InReleases(InWheels):
    def engine(self, release: str, server: Server, lookup: str = "local", **extra: Any) -> Engine:
        self.load(release, engine=True)
        with mock.patch.dict(os.environ, HITLINE_LOOKUP=lookup):
            self.register(server.address)
        engine = Engine(**extra)
        self.addCleanup(engine.client.close)
        return engine

    def load_spec(self, engine: Engine, computed: int) -> Any:
        """What the engine is told of a request of which it has some tokens, and asks its workers to load."""
        connector, request = engine.connector, request_of(f"r{computed}")
        matched, is_async = connector.get_num_new_matched_tokens(request, computed)
        if not matched:
            self.assertEqual(connector.connector_scheduler.load_specs, {})
            return matched, is_async
        connector.update_state_after_alloc(request, blocks_of(list(range(1, 9))), matched)
        (loaded,) = connector.build_connector_meta(finished()).requests
        self.assertFalse(loaded.can_save)
        connector.build_connector_meta(finished(request.request_id))
        return matched, is_async, str(loaded.load_spec)

    def test_what_is_loaded_is_what_a_whole_lookup_would_load(self) -> None:
        """Where the store has what the engine has, the two find the same."""
        for release in VLLM_RELEASES:
            with Server(POOL_VLLM=release) as server, Client(server.address) as plain:
                plain.store(BLOCKS[:6])
                found = {}
                for lookup in vllm_plugin.LOOKUPS:
                    engine = self.engine(release, server, lookup)
                    found[lookup] = [self.load_spec(engine, computed) for computed in (0, 8, 16, 40, 80, 96, 112, 128)]
                with self.subTest(release):
                    self.assertEqual(found["local"], found["whole"])
                    self.assertEqual([matched for matched, *_ in found["local"]], [96, 88, 80, 56, 16, 0, 0, 0])

    def test_a_block_before_the_start_may_be_missing(self) -> None:
        for release in VLLM_RELEASES:
            with self.subTest(release), Server(POOL_VLLM=release) as server, Client(server.address) as plain:
                plain.store([*BLOCKS[1:4], *BLOCKS[5:8]])
                engine = self.engine(release, server)
                for computed, want in ((0, 0), (15, 0), (16, 48), (63, 1), (64, 0), (80, 48)):
                    matched, _, *spec = self.load_spec(engine, computed)
                    self.assertEqual(matched, want)
                    if spec:
                        hit = computed + want
                        self.assertIn(f"vllm_cached_tokens={computed}, kvpool_cached_tokens={hit}, can_load=True", spec[0])

    def test_an_answer_that_is_waited_for(self) -> None:
        for release in VLLM_RELEASES:
            with self.subTest(release), Server(POOL_VLLM=release) as server, Client(server.address) as plain:
                plain.store(BLOCKS[2:8])
                connector = self.engine(release, server, lookup_async=True).connector
                for computed, later, want in ((32, 32, 96), (32, 64, 64), (32, 16, 0)):
                    request = request_of(f"{computed} {later}")
                    with connector.connector_scheduler.client._retry.lock:
                        self.assertEqual(connector.get_num_new_matched_tokens(request, computed), (None, False))
                    ready = lambda: connector.get_num_new_matched_tokens(request, later)  # noqa: B023, E731
                    self.assertEqual(eventually(ready, (None, False)), (want, bool(want)))
                    connector.build_connector_meta(finished(request.request_id))

    def test_another_connector_loads_the_request(self) -> None:
        """As MultiConnector does it: each of its connectors is asked, the first that has something is told
        that it loads, and the others that nothing comes of them. The request is not scheduled before
        it is loaded."""
        for release in VLLM_RELEASES:
            with self.subTest(release), Server(POOL_VLLM=release) as server, Client(server.address) as plain:
                plain.store(BLOCKS[2:8])
                connector = self.engine(release, server).connector
                request = request_of("r")
                self.assertEqual(connector.get_num_new_matched_tokens(request, 32), (96, True))
                connector.update_state_after_alloc(request, blocks_of(list(range(1, 9))), 0)
                self.assertEqual(connector.build_connector_meta(finished()).requests, [])
                self.assertEqual(connector.connector_scheduler.load_specs, {})


if __name__ == "__main__":
    unittest.main()
