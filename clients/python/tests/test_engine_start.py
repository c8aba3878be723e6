"""Engines that describe their pool at the start, in the unmodified modules of vLLM's
releases, against a server."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import os
import re
import sys
import tempfile
import unittest
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from hitline import Client, PoolDiffers, RefusedError, engine_keys, engine_pool, vllm_plugin
from hitline.client_info import describe_client, process_id
from hitline.engine_connector import CONNECTOR
from hitline.engine_pool import describe
from tests.support import (
    BINARY,
    NEWEST,
    Scripted,
    Server,
    chained,
    lasting_address,
    message,
    mooncake_config,
    needs_server,
    no_thread_left,
    pool_reply,
    unused_address,
)
from tests.test_client import eventually
from tests.test_engine_pool import FULL, LLAMA, WINDOW, Described, Engine, in_releases, is_since
from tests.test_vllm_plugin import SCHEDULER, WORKER

def as_yaml(pool: Any) -> str:
    return json.dumps(pool)


class Starting(Described):
    """Its tests start engines with groups of full attention and of a sliding window."""

    vllm_config: Any
    kv_cache_config: Any
    description: dict[str, Any]

    def configure(self, engine: Engine, groups: Sequence[dict[str, Any]] = (FULL, WINDOW)) -> None:
        """Sets vllm_config, kv_cache_config and description."""
        self.vllm_config, self.kv_cache_config = engine.configs(engine.groups(groups), {**LLAMA, "extra_config": {}})
        self.vllm_config.parallel_config.world_size = 1
        self.vllm_config.kv_events_config = None
        self.description = describe(self.vllm_config, self.kv_cache_config)

    def start(self, address: str, timeout: str = "20", **variables: str) -> Any:
        """The release's own scheduler side."""
        os.environ.update({f"HITLINE_{name}": value for name, value in variables.items()})
        os.environ["HITLINE_TIMEOUT"] = timeout
        if not timeout:
            del os.environ["HITLINE_TIMEOUT"]
        self.register(address)
        scheduler = importlib.import_module(SCHEDULER).MooncakeStoreScheduler(self.vllm_config, self.kv_cache_config)
        self.addCleanup(scheduler.client.close)
        return scheduler

    def connect(self, address: str, **extra: Any) -> Any:
        """The scheduler side of the release's own connector."""
        self.vllm_config.kv_transfer_config.kv_connector_extra_config.update(extra)
        self.register(address)
        module: Any = importlib.import_module(CONNECTOR)
        module.KVConnectorRole = SimpleNamespace(SCHEDULER="scheduler", WORKER="worker")
        connector = module.MooncakeStoreConnector(self.vllm_config, "scheduler", self.kv_cache_config)
        self.addCleanup(connector.connector_scheduler.client.close)
        return connector

    def fails(self, address: str, **variables: str) -> PoolDiffers:
        with self.assertRaises(PoolDiffers) as raised:
            self.start(address, **variables)
        return raised.exception

    def store(self, address: str, name: str, pool: dict[str, Any] | None = None) -> list[bytes]:
        """Has a prompt stored in the engine's pool, or in pool, and returns its hashes."""
        blocks = chained(name, 4)
        with Client(address, pool=pool or self.description, raise_errors=True) as client:
            reply = client.check_pool()
            assert reply is not None
            ranks = range(2)
            for group in range(len(reply["groups"])):
                for rank in ranks:
                    client.store(blocks, group=group, tp_rank=rank)
        return blocks

    def hit(self, scheduler: Any, blocks: list[bytes], tokens: int = 72, computed: int = 0) -> tuple[int | None, bool]:
        """Looks up a request that is none of those before."""
        getattr(scheduler, "connector_scheduler", scheduler).client.remembered.forget()
        request = SimpleNamespace(request_id="r", num_tokens=tokens, block_hashes=blocks)
        found: tuple[int | None, bool] = scheduler.get_num_new_matched_tokens(request, computed)
        return found


@needs_server
class Start(Starting):
    @in_releases("0.25.0")
    def test_workers_are_remembered(self, engine: Engine) -> None:
        self.configure(engine)
        cls = importlib.import_module(WORKER).MooncakeStoreWorker
        with mock.patch.object(cls, "__init__", lambda self, vllm_config, kv_cache_config: None):
            self.register()
            worker = cls(self.vllm_config, self.kv_cache_config)
            worker._lookup_key_prefixes, worker._kv_cache_groups = (("a",),), self.kv_cache_config.kv_cache_groups[:1]
        self.assertEqual(vllm_plugin._worker_prefixes(self.vllm_config), [["a"]])
        self.assertIsNone(vllm_plugin._worker_prefixes(SimpleNamespace(kv_transfer_config=SimpleNamespace())))
        # Under MultiConnector both sides have a configuration of their own, equal to the other's.
        own = SimpleNamespace(kv_transfer_config=copy.deepcopy(self.vllm_config.kv_transfer_config))
        self.assertEqual(vllm_plugin._worker_prefixes(own), [["a"]])
        own.kv_transfer_config.engine_id = "another"
        self.assertIsNone(vllm_plugin._worker_prefixes(own))

    @in_releases()
    def test_described(self, engine: Engine) -> None:
        for settings in ({"ACCEPT_POOLS": "true"}, {"ACCEPT_POOLS": "true", "POOL": "{model_name: other}"}):
            with Server(**settings) as server:
                self.configure(engine)
                scheduler = self.start(server.address)
                reply = scheduler.client.pool_reply
                self.assertEqual((reply["pool"]["model_name"], reply["hash_len"], reply["alignment"]), ("model", 32, 16))
                self.assertEqual(self.hit(scheduler, self.store(server.address, "a")), (64, True))
                self.load(engine.release, engine=True)
                engine = Engine(engine.release)

    @in_releases()
    def test_it_says_who_asks(self, engine: Engine) -> None:
        self.configure(engine)
        self.vllm_config.kv_transfer_config.kv_role = "kv_consumer"
        self.vllm_config.kv_transfer_config.engine_id = "engine-1_dp3"
        self.vllm_config.parallel_config.data_parallel_rank = 0
        self.vllm_config.parallel_config.data_parallel_index = 3
        replies = {b"pool": pool_reply(engine.release), b"ping": message(b"\1", b"")}
        with Scripted(lambda frames: replies[frames[0]]) as server:
            client = self.start(server.address).client
            client._retry.drop()
            client.check_pool()
            pools = [json.loads(frames[1]) for frames in server.requests if frames[0] == b"pool"]
        want = {"instance_id": "engine-1_dp3", "role": "kv_consumer", "rank": 3, "vllm": sys.modules["vllm"].__version__}
        for pool in pools:
            said = pool.pop("client")
            said.pop("hitline", None)  # if pip has installed it
            self.assertEqual(said, {"process": process_id(), **want})
        self.assertEqual(pools, [self.description] * 2)

    @in_releases()
    def test_named(self, engine: Engine) -> None:
        self.configure(engine)
        pools = {"a": {**self.description, "model_name": "other"}, "b": self.description}
        with Server(POOL=as_yaml(self.description), POOLS=as_yaml(pools)) as server:
            scheduler = self.start(server.address, POOL_NAME="b")
            self.assertEqual(scheduler.client.pool_reply["name"], "b")
            self.assertEqual(self.hit(scheduler, self.store(server.address, "a", {"name": "b"})), (64, True))
            with Client(server.address) as plain:
                self.assertEqual(plain.lookup(64, chained("a", 4)), 0)

    @in_releases()
    def test_the_pool_of_the_server_differs(self, engine: Engine) -> None:
        self.configure(engine)
        with Server(POOL=as_yaml({**self.description, "tp_size": 4})) as server:
            error = self.fails(server.address)
            self.assertEqual([(d["field"], str(d["configured"]), str(d["described"])) for d in error.differences], [("tp_size", "4", "2")])
            self.assertRegex(str(error), f"^hitline at {server.address}: the description differs from the pool.*: tp_size is 4, ")
            self.configure(self.engine(engine.release))
            with self.assertLogs("vllm.hitline", "WARNING") as logs:
                scheduler = self.start(server.address, ON_MISMATCH="miss")
                for _ in range(2):
                    self.assertEqual(self.hit(scheduler, chained("a", 4)), (0, False))
            (text,) = logs.output  # at the start, and no more
            self.assertRegex(text, "WARNING.*lookups are hits of 0, .*: tp_size is 4, described as 2")
            with Client(server.address) as plain:
                self.assertEqual(plain.stat()["lookups"], 0)

    @in_releases()
    def test_a_server_that_is_started_again(self, engine: Engine) -> None:
        self.configure(engine)
        address = lasting_address()
        with Server(address, ACCEPT_POOLS="true"):
            scheduler = self.start(address)
        with Server(address, ACCEPT_POOLS="true"):
            blocks = self.store(address, "b")
            with mock.patch.object(vllm_plugin.logger, "disabled", True):
                found = eventually(lambda: self.hit(scheduler, blocks), (0, False))
            self.assertEqual(found, (64, True))
        with Server(address, POOL=as_yaml({**self.description, "tp_size": 4})):
            with self.assertLogs("vllm.hitline", "ERROR") as logs:
                for _ in range(3):
                    self.assertEqual(self.hit(scheduler, blocks), (0, False))
            (text,) = logs.output
            self.assertIn("tp_size is 4, described as 2", text)

    @in_releases()
    def test_a_server_that_does_not_serve_the_pool(self, engine: Engine) -> None:
        """The engine starts, and looks up as soon as the server serves it."""
        self.configure(engine)
        other = {**self.description, "model_name": "other"}
        with Server(ACCEPT_POOLS="true", MAX_POOLS="1") as server, contextlib.ExitStack() as full:
            full.enter_context(Client(server.address, pool=other)).check_pool()
            with self.assertLogs("vllm.hitline", "WARNING") as logs:
                scheduler = self.start(server.address)
            self.assertRegex(logs.output[0], "hits of 0 until hitline at .* has been told the engine's pool: .*max_pools")
            with mock.patch.object(vllm_plugin.logger, "disabled", True):
                self.assertEqual(self.hit(scheduler, chained("a", 4)), (0, False))
                full.close()
                blocks = eventually(lambda: self.store_if_accepted(server.address), None)
                assert blocks is not None
                self.assertEqual(self.hit(scheduler, blocks), (0, False))  # it asks again only after a while
                scheduler.client._retry.connection.refused.clear()
                self.assertEqual(self.hit(scheduler, blocks), (64, True))

    @in_releases()
    def test_a_server_of_its_own(self, engine: Engine) -> None:
        """It is told the pool, has the engine's store, and ends with the connector."""
        os.environ.update(PATH=os.path.dirname(BINARY), MOONCAKE_CONFIG_PATH=mooncake_config(self, tenant_id=" ours "))
        os.environ.update(HITLINE_TOKEN_FILE="/nowhere", HITLINE_TLS_CA="/nowhere")  # which are not for this server
        self.configure(engine)
        with mock.patch.object(vllm_plugin.logger, "disabled", True), no_thread_left(self):
            connector = self.connect("auto")
            client = connector.connector_scheduler.client
            self.assertEqual(client.pool_reply["backend"], "mooncake")
            server = client.own_server
            tenant = server._environ.get("HITLINE_BACKEND_MOONCAKE_TENANT")
            self.assertEqual(tenant, "ours" if is_since(engine.release, "0.28.0") else None)
            self.assertEqual(self.hit(connector, chained("a", 4)), (0, False))
            self.assertEqual(connector.get_kv_connector_stats().reduce()["lookup_exists_error_count"], 0)
            connector.__del__()
            self.assertTrue(server.wait_ready(0))
            del connector._hitline_deleted
            connector.shutdown()
            self.assertFalse(os.path.exists(server._folder))

    def look_up_nothing(self, engine: Engine, role: str) -> bool:
        """Configures an engine with enable_lookup false, and returns whether its release knows that option."""
        self.configure(engine)
        self.vllm_config.kv_transfer_config.kv_role = role
        self.vllm_config.kv_transfer_config.kv_connector_extra_config.update(enable_lookup=False)
        return is_since(engine.release, "0.27.0")

    @in_releases()
    def test_an_engine_that_looks_up_nothing(self, engine: Engine) -> None:
        """It asks a shared server for its pool and for resets. What it has itself is not renewed."""

        def answer(frames: list[bytes]) -> bytes:
            replies = {b"pool": pool_reply(engine.release, renew="auto", lease_ms=5000), b"reset": message(b"\1")}
            return replies.get(frames[0], message(b"\0\0\0\x30"))

        for role in ("kv_consumer", "kv_both"):
            knows = self.look_up_nothing(engine, role)
            with Scripted(answer) as server:
                scheduler = self.start(server.address)
                for computed in (0, 16, 48, 64):
                    found = self.hit(scheduler, chained("a", 8), 60, computed)
                    self.assertEqual(found, (0, False) if knows or computed > 47 else (48 - computed, True))
                scheduler.client.reset()
                asked = {frames[0] for frames in server.requests}
                self.assertEqual(bool(asked & {b"lookup", b"lookup_from", b"renew"}), not knows, asked)
                self.assertLessEqual({b"pool", b"reset"}, asked)
            engine = self.engine(engine.release)

    @in_releases()
    def test_an_engine_that_looks_up_nothing_has_no_server_of_its_own(self, engine: Engine) -> None:
        """vLLM's own client is left to it, for resets."""
        for role in ("kv_consumer", "kv_both"):
            knows = self.look_up_nothing(engine, role)
            os.environ.update(PATH=os.path.dirname(BINARY), MOONCAKE_CONFIG_PATH=mooncake_config(self))
            worker = importlib.import_module(WORKER)
            own, worker.get_zmq_rpc_path_lookup = worker.LookupKeyClient, lambda _: "ipc:///none"
            with mock.patch.object(vllm_plugin.logger, "disabled", True):
                scheduler = self.start("auto")
            self.assertIs(type(scheduler.client), own if knows else worker.LookupKeyClient)
            if knows:
                request = SimpleNamespace(request_id="r", num_tokens=60, block_hashes=chained("a", 8))
                self.assertEqual(scheduler.get_num_new_matched_tokens(request, 0), (0, False))
            engine = self.engine(engine.release)

    def store_if_accepted(self, address: str) -> list[bytes] | None:
        try:
            return self.store(address, "a")
        except RefusedError:
            return None

    @in_releases()
    def test_no_server(self, engine: Engine) -> None:
        self.configure(engine)
        with self.assertLogs("vllm.hitline", "WARNING") as logs:
            scheduler = self.start(unused_address(self))
            self.assertEqual(self.hit(scheduler, chained("a", 4)), (0, False))
        self.assertRegex(logs.output[0], "lookups are hits of 0 until hitline at .* cannot connect")

    @in_releases()
    def test_a_pool_without_a_description(self, engine: Engine) -> None:
        """The server is asked for its own pool, or for that of the name."""
        self.configure(engine)
        pool = {name: value for name, value in self.description.items() if name != "hash_len"}
        with Server(POOL=as_yaml(pool), POOLS=as_yaml({"hand": pool})) as server:
            for name in ("", "hand"):
                self.configure(self.engine(engine.release))
                with mock.patch.object(engine_pool, "_KINDS", {}), self.assertLogs("vllm.hitline", "WARNING") as logs:
                    scheduler = self.start(server.address, POOL_NAME=name)
                self.assertIn("hitline cannot describe the engine's pool: spec of group 0", logs.output[0])
                dies = not is_since(engine.release, "0.30.0")  # two groups over memory
                self.assertEqual([dies], ["dies of a load that fails" in line for line in logs.output[1:]] or [False])
                blocks = self.store(server.address, name, {"name": name})
                self.assertEqual(self.hit(scheduler, blocks), (64, True))
                self.assertEqual(scheduler.client.pool_reply["name"], name)

    @in_releases("0.25.0")
    def test_what_is_told_of_a_pool_without_a_description(self, engine: Engine) -> None:
        self.configure(engine)
        pool = {name: value for name, value in self.description.items() if name != "hash_len"}
        with Server(POOL=as_yaml(pool), BACKEND_MOONCAKE_MASTERS="127.0.0.1:1") as server:
            self.configure(self.engine(engine.release))
            with mock.patch.object(engine_pool, "_KINDS", {}), self.assertLogs("vllm.hitline", "WARNING") as logs:
                self.start(server.address)
            self.assertEqual(["refuses to reset the store" in line for line in logs.output], [False, True])
            self.configure(self.engine(engine.release))
            self.keep(self.worker(engine, model_name="other"))
            with mock.patch.object(engine_pool, "_KINDS", {}):
                error = self.fails(server.address)
            self.assertEqual([d["field"] for d in error.differences], ["groups[0].model", "groups[1].model"])

    @in_releases(NEWEST)
    def test_a_server_that_refuses_resets_says_so(self, engine: Engine) -> None:
        mooncake = {"ACCEPT_POOLS": "true", "BACKEND_MOONCAKE_MASTERS": "127.0.0.1:1"}
        limited = "listen: [{address: 'tcp://127.0.0.1:0', allow: [lookup, ping, pool]}]"
        for config, settings, want in (
            ("", mooncake, "set backend.mooncake.allow_reset to allow it"),
            (limited, {"ACCEPT_POOLS": "true"}, "not allowed: reset; this connection may: "),
            ("", {**mooncake, "BACKEND_MOONCAKE_ALLOW_RESET": "true"}, ""),
            ("", {"ACCEPT_POOLS": "true"}, ""),
        ):
            self.configure(self.engine(engine.release))
            with tempfile.TemporaryDirectory() as folder, self.assertLogs("vllm.hitline", "INFO") as logs:
                file = Path(folder) / "hitline.yaml"
                file.write_text(config)
                with Server(config=str(file) if config else "", **settings) as server:
                    client = self.start(server.address).client
                    client._retry.drop()
                    client.check_pool()
            said = [line for line in logs.output if "refuses to reset the store" in line]
            self.assertEqual(len(said), bool(want), "once, and only what is true")
            self.assertTrue(all(want in line for line in said), said)

    @in_releases(NEWEST)
    def test_a_store_that_may_be_waited_for_longer_than_a_lookup(self, engine: Engine) -> None:
        """The engine would take a store that is slow for a server that hangs."""
        mooncake = {"ACCEPT_POOLS": "true", "BACKEND_MOONCAKE_MASTERS": "127.0.0.1:1", "BACKEND_MOONCAKE_ALLOW_RESET": "true"}
        for wait, timeout, want in (
            ("1s", "0.9", "waits up to 1000 ms for its store, and the engine 900 ms for a lookup: .*HITLINE_TIMEOUT above 1.0, or"),
            ("200ms", "", "waits up to 200 ms for its store, and the engine 200 ms"),
            ("1s", "1.1", ""),
            ("199ms", "", ""),
        ):
            self.configure(self.engine(engine.release))
            with Server(BACKEND_MOONCAKE_TIMEOUT=wait, **mooncake) as server, self.assertLogs("vllm.hitline", "INFO") as logs:
                client = self.start(server.address, timeout).client
                client._retry.drop()
                client.check_pool(timeout=20)
            said = [line for line in logs.output if "for its store" in line]
            self.assertEqual(len(said), bool(want), "once")
            self.assertTrue(all(re.search(f"WARNING.*hitline at {server.address} {want}", line) for line in said), said)

    @in_releases(NEWEST)
    def test_concerns_that_change_are_logged_now_and_then(self, engine: Engine) -> None:
        reply: dict[str, Any] = {}
        answers = {b"pool": lambda: message(b"\1", json.dumps(reply).encode())}
        with Scripted(lambda frames: answers.get(frames[0], lambda: message(b"\1", b""))()) as server:
            self.configure(engine)
            with self.assertLogs("vllm.hitline", "WARNING") as logs:
                for i in range(20):
                    reply.update(vllm=NEWEST, reset_refused=f"forged {i}\n" + "x" * 9000, name="a\nb", groups=[{}, {}])
                    client = self.start(server.address).client if not i else client
                    client._retry.drop()
                    client.check_pool()
            self.assertEqual(len(logs.records), 1, logs.output)
            self.assertTrue(logs.records[0].getMessage().isprintable() and len(logs.records[0].getMessage()) < 1000)
            self.assertLessEqual(len(client._log._again_at), 2)

    @in_releases()
    def test_what_no_hit_can_help_is_not_looked_up(self, engine: Engine) -> None:
        self.configure(engine)
        with Server(ACCEPT_POOLS="true") as server, Client(server.address, pool=self.description) as plain:
            scheduler = self.start(server.address)
            blocks = self.store(server.address, "a")
            match = type(scheduler).get_num_new_matched_tokens.__wrapped__
            for tokens in (1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 72):
                for computed in (0, 15, 16, 17, 31, 32, 47, 48, 49, 63, 64):
                    request = SimpleNamespace(request_id="r", num_tokens=tokens, block_hashes=blocks[: tokens // 16])
                    before = plain.stat()["lookups"]
                    scheduler.client.discard("r")
                    found = scheduler.get_num_new_matched_tokens(request, computed)
                    asked = plain.stat()["lookups"] - before
                    self.assertEqual(found, match(scheduler, request, computed), (tokens, computed))
                    if computed >= (tokens - 1) // 16 * 16:
                        self.assertEqual((asked, found), (0, (0, False)), (tokens, computed))
                    else:
                        self.assertEqual(asked, 1)

    @in_releases("0.25.0")
    def test_keys_of_the_worker(self, engine: Engine) -> None:
        """Those that the release's own worker makes are compared with the server's."""
        self.configure(engine)
        with Server(ACCEPT_POOLS="true") as server:
            for change, want in (
                ({}, {}),
                ({"model_name": "other"}, {"groups[0].model": ("model", "other"), "groups[1].model": ("model", "other")}),
                ({"cache_prefix": "site"}, {"groups[0].model": ("model", "site@model"), "groups[1].model": ("model", "site@model")}),
                ({"group_id": 2}, {"groups[0].group": ("0", "2"), "groups[1].group": ("1", "2")}),
                ({"tp_size": 4}, {"groups[0].ranks": (2, 4), "groups[1].ranks": (2, 4)}),
            ):
                self.configure(self.engine(engine.release))
                worker = self.worker(engine, **change)
                self.keep(worker)
                if not want:
                    scheduler = self.start(server.address)
                    self.assertEqual(scheduler.client.key_prefixes, engine_keys.key_prefixes(worker))
                    self.assertEqual(self.hit(scheduler, self.store(server.address, "a")), (64, True))
                    continue
                error = self.fails(server.address)
                self.assertEqual({d["field"]: (d["configured"], d["described"]) for d in error.differences}, want)
                self.assertRegex(str(error), "the keys of the pool are not those of the engine's worker: groups")
                if "tp_size" not in change:
                    continue
                self.configure(self.engine(engine.release))
                self.keep(worker)
                with self.assertLogs("vllm.hitline", "WARNING"):
                    scheduler = self.start(server.address, ON_MISMATCH="miss")
                    self.assertEqual(self.hit(scheduler, self.store(server.address, "a")), (0, False))

    def keep(self, worker: Any) -> None:
        worker._hitline_transfer = self.vllm_config.kv_transfer_config
        vllm_plugin._workers.add(worker)
        self.addCleanup(vllm_plugin._workers.discard, worker)

    def worker(self, engine: Engine, tp_size: int = 2, **metadata: Any) -> Any:
        """A worker of the release with what its key prefixes are made of."""
        module = importlib.import_module(WORKER)
        data = importlib.import_module(vllm_plugin.DATA)
        worker = object.__new__(module.MooncakeStoreWorker)
        worker.__dict__.update(
            tp_size=tp_size, pcp_size=1, dcp_size=1, pp_size=1, num_kv_head=8, tp_rank=0, store_tp_size=None,
            hash_block_size=16, _kv_cache_groups=self.kv_cache_config.kv_cache_groups, token_dbs=[],
            _group_tp_replication_factors=(1, 1),
        )  # fmt: skip
        for number in range(2):
            fields = {"model_name": "model", "tp_rank": 0, "pcp_rank": 0, "dcp_rank": 0, "pp_rank": 0, "group_id": number}
            worker.token_dbs.append(data.ChunkedTokenDatabase(data.KeyMetadata(**{**fields, **metadata}), 16, 16))
        worker._init_lookup_key_prefixes()
        return worker


class Keys(unittest.TestCase):
    PREFIX = "site@m@store_pp:1@store_format:x@tp_rank:0@pcp0@dcp0@pp_rank:0@group:0"

    def test_parts(self) -> None:
        for name, text, configured, described in (
            ("model", "other@m", "site@m", "other@m"),
            ("namespace", "", "@store_pp:1@store_format:x", "none"),
            ("tp_rank", "@tp_rank:1", "0", "1"),
            ("pcp", "@pcp1", "0", "1"),
            ("dcp", "@dcp1", "0", "1"),
            ("pp_rank", "@pp_rank:1", "0", "1"),
            ("group", "@group:1", "0", "1"),
        ):
            parts = {"model": "site@m", "namespace": "@store_pp:1@store_format:x", "tp_rank": "@tp_rank:0", "pcp": "@pcp0",
                     "dcp": "@dcp0", "pp_rank": "@pp_rank:0", "group": "@group:0"}  # fmt: skip
            own = "".join({**parts, name: text}.values())
            reply = {"prefixes_sha256": "other", "groups": [{"key_prefix": self.PREFIX, "ranks": 1}]}
            want = {"field": f"groups[0].{name}", "configured": configured, "described": described}
            self.assertEqual(engine_keys.differences([[own]], reply), [want])

    def test_ranks_groups_and_other_forms(self) -> None:
        reply: dict[str, Any] = {"prefixes_sha256": "other", "groups": [{"key_prefix": self.PREFIX, "ranks": 2}]}

        def fields(prefixes: list[list[str]], reply: dict[str, Any]) -> list[str]:
            return [difference["field"] for difference in engine_keys.differences(prefixes, reply)]

        self.assertEqual(fields([[self.PREFIX]], reply), ["groups[0].ranks"])
        self.assertEqual(fields([[self.PREFIX, "b"]], reply), ["prefixes_sha256"])
        self.assertEqual(fields([[self.PREFIX], []], reply), ["groups"])
        self.assertEqual(fields([["m", "b"]], reply), ["groups[0].key_prefix"])
        for prefix in ("@store_pp:" * 100_000, "a\n" * 10):  # taken apart, the first would take hours
            hostile = {"prefixes_sha256": "other\n", "groups": [{"key_prefix": prefix, "ranks": 1}]}
            (found,) = engine_keys.differences([[self.PREFIX]], hostile)
            self.assertEqual(found["field"], "groups[0].key_prefix")
            self.assertTrue(found["configured"].isprintable() and len(found["configured"]) <= 513)
        for lacking in ("groups", "prefixes_sha256"):
            partial = copy.deepcopy(reply)
            del partial[lacking]
            self.assertEqual(fields([["m"]], partial), [])

    def test_workers_without_prefixes(self) -> None:
        group = SimpleNamespace(kv_cache_spec=SimpleNamespace())
        scratch = SimpleNamespace(kv_cache_spec=SimpleNamespace(prefix_cacheable=False))
        for worker, want in (
            (SimpleNamespace(), None),
            (SimpleNamespace(_lookup_key_prefixes=(), _kv_cache_groups=[]), None),
            (SimpleNamespace(_lookup_key_prefixes=(("a",),), _kv_cache_groups=[group, group]), None),
            (SimpleNamespace(_lookup_key_prefixes=(("a",), ("b",)), _kv_cache_groups=[scratch, group]), [["b"]]),
        ):
            self.assertEqual(engine_keys.key_prefixes(worker), want)


class Said(unittest.TestCase):
    def test_what_is_unknown_is_left_out(self) -> None:
        with mock.patch.dict(sys.modules, vllm=SimpleNamespace(__version__=None)):
            for config in (
                object(),
                SimpleNamespace(kv_transfer_config=None, parallel_config=None),
                SimpleNamespace(kv_transfer_config=SimpleNamespace(engine_id=None, kv_role=["kv_both"])),
                SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_rank=True)),
            ):
                said = describe_client(config, "")
                said.pop("hitline", None)
                self.assertEqual(said, {"process": process_id()})
            named = describe_client(SimpleNamespace(kv_transfer_config=SimpleNamespace(engine_id="a")), "mine")
            self.assertEqual(named["instance_id"], "mine")

    def test_a_process_has_one_id(self) -> None:
        ids = [process_id()]
        for pid in (os.getpid() + 1, os.getpid()):
            with mock.patch.object(os, "getpid", return_value=pid):
                ids.append(process_id())
                self.assertEqual(process_id(), ids[-1])
        self.assertEqual(len(set(ids)), 3)
        for each in ids:
            self.assertRegex(each, "^[0-9a-f]{16}$")


if __name__ == "__main__":
    unittest.main()
