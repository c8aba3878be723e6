"""vLLM's statistics of lookups, in the unmodified modules of its releases."""

from __future__ import annotations

import importlib
import unittest
from types import SimpleNamespace
from typing import Any

from hitline import ConnectionFailed, lookup_stats
from hitline.lookup_stats import num_keys
from tests.support import Server, chained, engine_client, needs_server
from tests.test_engine_pool import FULL, WINDOW, Engine, in_releases
from tests.test_engine_start import Starting
from tests.test_vllm_plugin import WORKER


@needs_server
class InReleases(Starting):
    def records(self, connector: Any) -> list[dict[str, Any]]:
        """What the scheduler is given, without the durations."""
        stats = connector.get_kv_connector_stats()
        if stats is None:
            return []
        self.assertIs(type(stats), importlib.import_module(lookup_stats.METRICS).MooncakeStoreConnectorStats)
        self.assertFalse(stats.is_empty())
        self.assertEqual(list(stats.data), ["lookup_exists"])
        for record in stats.data["lookup_exists"]:
            self.assertGreater(record.pop("duration_seconds"), 0)
        return list(stats.data["lookup_exists"])

    @in_releases()
    def test_lookups_are_recorded_as_by_a_worker(self, engine: Engine) -> None:
        self.configure(engine)
        ok = {"num_keys": 16, "num_bytes": 0, "status": "ok", "num_failed_keys": 0}
        blocks = chained("a", 4)  # of two groups and two ranks
        with Server(ACCEPT_POOLS="true") as server:
            connector = self.connect(server.address)
            self.assertEqual(self.records(connector), [])
            for _ in range(2):
                self.hit(connector, blocks)
            self.hit(connector, blocks, tokens=15)  # asks for nothing
            self.assertEqual(self.records(connector), [ok, ok])
            self.assertEqual(self.records(connector), [])
        client = connector.connector_scheduler.client
        client.settings = client.settings._replace(timeout=0.02)
        with self.assertLogs("vllm.hitline", "WARNING"):
            self.hit(connector, blocks)
        self.assertEqual(self.records(connector), [{**ok, "status": "error", "num_failed_keys": 16}])

    @in_releases()
    def test_the_workers_side_is_as_it_was(self, engine: Engine) -> None:
        self.configure(engine)
        with Server(ACCEPT_POOLS="true") as server:
            worker = object.__new__(type(self.connect(server.address)))
        worker.connector_scheduler = None
        worker.connector_worker = SimpleNamespace(get_kv_connector_stats=lambda: "its own", close=lambda: None)
        self.assertEqual(worker.get_kv_connector_stats(), "its own")

    @in_releases("0.25.0")
    def test_keys_are_those_of_the_release(self, engine: Engine) -> None:
        """As many as its own worker asks for."""
        with Server(ACCEPT_POOLS="true") as server:
            for groups in ([FULL], [FULL, WINDOW], [FULL, {**WINDOW, "block_size": 32}]):
                engine = self.engine(engine.release)
                self.configure(engine, groups=groups)
                pool = self.connect(server.address).connector_scheduler.client.pool_reply
                for tokens in range(0, 200, 8):
                    blocks = chained("a", tokens // 16)
                    asked = self.asked(pool, tokens // pool["alignment"] * pool["alignment"], blocks)
                    self.assertEqual(num_keys(pool, tokens, len(blocks)), asked, (groups, tokens))

    def asked(self, pool: dict[str, Any], tokens: int, blocks: list[bytes]) -> int:
        """How many keys a worker of the release asks for, in a store that fails."""
        module = importlib.import_module(WORKER)
        worker = object.__new__(module.MooncakeStoreWorker)
        groups = self.kv_cache_config.kv_cache_groups
        recorded: list[int] = []
        worker.__dict__.update(
            _capacity_only=False,
            _kv_cache_groups=groups,
            _lookup_key_prefixes=[[f"rank {r}" for r in range(group["ranks"])] for group in pool["groups"]],
            _record_kv_connector_operation=lambda operation, seconds, keys, **more: recorded.append(keys),
            coord=module.MooncakeStoreCoordinator(groups, pool["pool"]["scheduler_block_size"], pool["pool"]["hash_block_size"]),
            hash_block_size=pool["pool"]["hash_block_size"],
            store=None,
            token_dbs=[SimpleNamespace(block_size=group["block_size"]) for group in pool["groups"]],
        )
        worker.lookup(tokens, blocks)
        return sum(recorded)


class Bounds(unittest.TestCase):
    def test_records_are_bounded(self) -> None:
        client = engine_client(self, "tcp://127.0.0.1:1", _raise_errors=True)
        client._retry.closed = True  # every lookup fails
        for i in range(lookup_stats.MAX_RECORDS + 10):
            with self.assertRaises(ConnectionFailed):
                client.lookup(f"{i}", 16, [b"a"])
        self.assertEqual(len(client.stats.records), lookup_stats.MAX_RECORDS)

    def test_keys_of_pools(self) -> None:
        groups = [{"block_size": 32, "stride": 8, "ranks": 2}, {"block_size": 4, "stride": 1, "ranks": 3}]
        block = {"alignment": 32, "groups": groups, "pool": {"scheduler_block_size": 32}}
        fine = {**block, "alignment": 4}
        for pool, tokens, hashes, want in (
            (None, 100, 25, 25),
            (block, 100, 25, 2 * 3 + 3 * 24),
            (block, 31, 7, 0),
            (block, 64, 9, 2 * 1 + 3 * 9),
            (fine, 102, 25, 5 * 25),
            (fine, 40, 25, 5 * 10),
            (block, -1, 0, 0),
            ({"alignment": 0}, 64, 9, 9),
            ({**block, "groups": None}, 64, 9, 9),
        ):
            with self.subTest(pool=pool, tokens=tokens):
                self.assertEqual(num_keys(pool, tokens, hashes), want)


if __name__ == "__main__":
    unittest.main()
