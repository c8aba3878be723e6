"""Requests whose loads fail, in the unmodified connector of vLLM's releases."""

from __future__ import annotations

import functools
import importlib
import sys
import types
import unittest
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hitline import VLLM_RELEASES, Client, vllm_plugin
from hitline.client import is_since
from hitline.engine_connector import CONNECTOR
from tests.support import Server, chained, engine_client, needs_server
from tests.test_vllm_plugin import WORKER, StandIn
from tests.test_wheels import InWheels
from tests.wheels import SchedulerSide, finished

# The block that a hybrid's table has in place of those it does not need.
NULL_BLOCK = 0

# Releases whose engines report failed loads of several groups, by block and by request.
BY_BLOCK = ("0.30.0",)
BY_REQUEST = tuple(release for release in VLLM_RELEASES if is_since(release, "0.31.0"))


def request_of(req_id: str) -> Any:
    return SimpleNamespace(request_id=req_id, num_tokens=60, block_hashes=chained("loads", 3))


def blocks_of(*groups: list[int]) -> Any:
    """What the engine's KVCacheBlocks are to a connector."""
    return SimpleNamespace(get_block_ids=lambda group_ids=None: groups if group_ids is None else tuple(groups[g] for g in group_ids))


class Engine(SchedulerSide):
    """The scheduler side, and the steps of an engine."""

    def __init__(self, groups: int = 1, **extra: Any) -> None:
        with mock.patch.object(vllm_plugin.logger, "disabled", True):
            super().__init__(groups, **extra)

    def lookup(self, req_id: str) -> Any:
        return self.connector.get_num_new_matched_tokens(request_of(req_id), 0)

    def alloc(self, req_id: str, *groups: list[int], tokens: int = 32) -> None:
        self.connector.update_state_after_alloc(request_of(req_id), blocks_of(*groups), tokens)

    def load(self, test: unittest.TestCase, req_id: str, *groups: list[int]) -> None:
        """Looks a request up and begins its load."""
        test.assertEqual(self.lookup(req_id), (32, True))
        self.alloc(req_id, *groups)

    def output(self, invalid: tuple[int, ...] = (), failed: tuple[str, ...] | None = None, received: tuple[str, ...] = ()) -> None:
        """Ends a step; failed is None where the release's output has no such field."""
        fields = {} if failed is None else {"failed_recving": set(failed)}
        self.connector.update_connector_output(
            SimpleNamespace(
                invalid_block_ids=set(invalid),
                finished_recving=set(received) or None,
                finished_sending=None,
                kv_cache_events=None,
                kv_connector_worker_meta=None,
                **fields,
            )
        )

    def finish(self, *req_ids: str) -> None:
        self.connector.connector_scheduler.load_specs.clear()  # as if their loads were under way
        self.connector.build_connector_meta(finished(*req_ids))


def in_releases(
    releases: Sequence[str] = tuple(VLLM_RELEASES), groups: int = 1, **extra: Any
) -> Callable[[Callable[[Any, Engine], None]], Callable[[Any], None]]:
    """Has a test run with an engine of each release. The store has two blocks of each request."""

    def decorate(test: Callable[[Any, Engine], None]) -> Callable[[Any], None]:
        @functools.wraps(test)
        def run(self: Any) -> None:
            for release in releases:
                with self.subTest(release), Server(POOL_VLLM=release) as server, Client(server.address) as plain:
                    plain.store(chained("loads", 2))
                    self.load(release)
                    self.register(server.address)
                    engine = Engine(groups, **extra)
                    self.addCleanup(engine.client.close)
                    test(self, engine)

        return run

    return decorate


@needs_server
class InReleases(InWheels):
    @in_releases()
    def test_a_request_whose_load_failed_is_a_miss(self, engine: Engine) -> None:
        engine.load(self, "a", [7, 8])
        engine.load(self, "b", [9, 10])
        with self.assertLogs("vllm.hitline", "WARNING") as logs:
            engine.output(invalid=(8,), received=("a",))
        self.assertEqual(len(logs.output), 1)
        self.assertIn("request a: the engine could not load", logs.output[0])
        for _ in range(3):
            self.assertEqual(engine.lookup("a"), (0, False))
            self.assertEqual(engine.lookup("b"), (32, True))
        self.assertEqual(engine.client.failed_loads.count, 1)
        engine.finish("a")
        self.assertEqual(engine.lookup("a"), (32, True))
        self.assertEqual(engine.client.failed_loads.requests, set())

    @in_releases()
    def test_it_is_logged_and_counted_once(self, engine: Engine) -> None:
        """Workers report on their own: the load of one failed before that of another."""
        engine.load(self, "a", [7, 8])
        with self.assertLogs("vllm.hitline", "WARNING") as logs:
            engine.output(invalid=(7,))
            engine.output(invalid=(8,), received=("a",))
            self.assertEqual(engine.lookup("a"), (0, False))
            engine.alloc("a", [7, 8], tokens=0)
            engine.output(invalid=(7, 8))
        self.assertEqual((len(logs.output), engine.client.failed_loads.count), (1, 1))

    @in_releases(lookup_async=True)
    def test_without_waiting_for_lookups(self, engine: Engine) -> None:
        while engine.lookup("a") == (None, False):
            pass
        engine.alloc("a", [7, 8])
        with self.assertLogs("vllm.hitline", "WARNING"):
            engine.output(invalid=(7,), received=("a",))
        self.assertEqual(engine.lookup("a"), (0, False))

    @in_releases()
    def test_blocks_of_no_load(self, engine: Engine) -> None:
        """Those that were never given out, those of a load that ended well, those of a
        request that loads nothing, and those of one that has finished."""
        engine.load(self, "a", [1, 2])
        engine.output(received=("a",))
        engine.load(self, "b", [3, 4])
        engine.alloc("b", [3, 4], tokens=0)
        engine.load(self, "c", [5, 6])
        engine.finish("c")
        engine.load(self, "d", [7, 8])
        with self.assertNoLogs("vllm.hitline", "WARNING"):
            engine.output(invalid=(NULL_BLOCK, 1, 2, 3, 4, 5, 6, 9))
        for req_id in "abcd":
            self.assertEqual(engine.lookup(req_id), (32, True), req_id)
        self.assertEqual((engine.client.failed_loads.count, list(engine.client.failed_loads.loads)), (0, ["d"]))
        engine.finish("a", "b", "d")
        self.assertEqual(engine.client.failed_loads.loads, {})

    @in_releases(BY_BLOCK, groups=2)
    def test_several_groups_by_block(self, engine: Engine) -> None:
        engine.load(self, "a", [1, 2], [NULL_BLOCK, 3])
        engine.load(self, "b", [4, 5], [NULL_BLOCK, 6])
        engine.output(invalid=(NULL_BLOCK,), failed=())
        with self.assertLogs("vllm.hitline", "WARNING"):
            engine.output(invalid=(3,), failed=(), received=("a",))
        self.assertEqual([engine.lookup("a"), engine.lookup("b")], [(0, False), (32, True)])

    @in_releases(BY_REQUEST, groups=2)
    def test_several_groups_by_request(self, engine: Engine) -> None:
        engine.load(self, "a", [1, 2], [1, 2])  # ids of different groups may be equal
        engine.load(self, "b", [3, 4], [3, 4])
        engine.load(self, "c", [5, 6], [5, 6])
        engine.output(failed=(), received=("c",))
        with self.assertLogs("vllm.hitline", "WARNING"):
            engine.output(failed=("a", "c", "unknown"), received=("a",))
        self.assertEqual([engine.lookup(r) for r in "abc"], [(0, False), (32, True), (32, True)])
        self.assertEqual(engine.client.failed_loads.requests, {"a"})

    @in_releases()
    def test_a_failed_load_drops_what_was_found_for_others(self, engine: Engine) -> None:
        engine.load(self, "a", [1, 2])
        self.assertEqual(engine.lookup("b"), (32, True))
        engine.output(received=("c",))
        self.assertEqual(len(engine.client.remembered.hits), 2)
        with self.assertLogs("vllm.hitline", "WARNING"):
            engine.output(invalid=(2,))
        self.assertEqual(len(engine.client.remembered.hits), 0)

    def test_releases_report_failures_as_expected(self) -> None:
        """By request from 0.31.0 on. Before, a worker has no way to."""
        for release in VLLM_RELEASES:
            with self.subTest(release):
                self.load(release)
                worker = importlib.import_module(WORKER)
                self.assertEqual(hasattr(worker.KVCacheStoreRecvingThread, "set_failed_request"), release in BY_REQUEST)


class WithoutVLLM(StandIn):
    def connector(self, **methods: Any) -> Any:
        """Puts a module with a connector of these methods in the place of vLLM's."""
        module: Any = types.ModuleType(CONNECTOR)
        module.MooncakeStoreConnector = type("MooncakeStoreConnector", (), methods)
        sys.modules[CONNECTOR] = module
        return module.MooncakeStoreConnector

    def test_memory_is_bounded_by_unfinished_requests(self) -> None:
        client = engine_client(self, "tcp://127.0.0.1:1")
        loads = client.failed_loads
        with mock.patch.object(vllm_plugin.logger, "disabled", True):
            for i in range(1000):
                loads.begin_load(str(i), [1, 2])
                loads.fail([2], [])
                client.discard(str(i))
        self.assertEqual((loads.count, loads.loads, loads.requests), (1000, {}, set()))

    def test_a_connector_of_another_shape_is_left_alone(self) -> None:
        def alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> None:
            pass

        def output(self: Any, connector_output: Any, step: int) -> None:
            pass

        for methods, text in (
            ({}, "has no method update_state_after_alloc"),
            ({"update_state_after_alloc": alloc}, "has no method update_connector_output"),
            (
                {"update_state_after_alloc": alloc, "update_connector_output": output},
                "has update_connector_output(self",
            ),
        ):
            with self.subTest(text):
                connector = self.connector(**methods)
                with mock.patch.object(vllm_plugin.logger, "warning") as warning:
                    engine_client(self, "tcp://127.0.0.1:1")
                said, why = warning.call_args_list[0].args
                self.assertIn("does not see failed loads", said)
                self.assertIn(text, why)
                for name, method in methods.items():
                    self.assertIs(getattr(connector, name), method)

    def test_a_connector_is_wrapped_once(self) -> None:
        def alloc(self: Any, request: Any, blocks: Any, num_external_tokens: int) -> None:
            pass

        def output(self: Any, connector_output: Any) -> None:
            pass

        connector = self.connector(update_state_after_alloc=alloc, update_connector_output=output)
        engine_client(self, "tcp://127.0.0.1:1")
        wrapped = connector.update_connector_output
        self.assertIs(wrapped.__wrapped__, output)
        engine_client(self, "tcp://127.0.0.1:1")
        self.assertIs(connector.update_connector_output, wrapped)
        # With no client of this kind, as on the worker side, it does what it did.
        connector().update_state_after_alloc(None, None, 1)
        connector().update_connector_output(None)


if __name__ == "__main__":
    unittest.main()
