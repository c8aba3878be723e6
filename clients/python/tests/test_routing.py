"""Scores for a router: the README's example against the real server, and servers that follow a script."""

from __future__ import annotations

import asyncio
import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from hitline import HoldersClient, PrefixScorer
from tests.support import NEWEST, PATIENCE, Server, needs_server, unused_address
from tests.test_holders import scripted

README = Path(__file__).parents[1] / "README.md"

# engine-0 has half of 64 tokens, and its rank 0 is stale; engine-1 has a quarter; engine-3 is stale; the store has 48.
ANSWER = json.dumps(
    {
        "default": {
            "engine-0": {"longest_matched": 32, "GPU": 32, "DP": {"1": 32}},
            "engine-1": {"longest_matched": 16, "GPU": 16, "DP": {"0": 16}},
        },
        "loadable_tokens": 48,
        "unsure": {"engine-0": ["stale"], "engine-1": ["incomplete"], "engine-3": ["stale"]},
    }
)


class Scores(unittest.TestCase):
    def test_scores(self) -> None:
        names = {"a": "engine-0", "b": "engine-1", "c": "engine-2", "d": "engine-3"}
        for settings, want in (
            ({}, {"a": 0.5, "b": 0.25, "c": 0.0, "d": 0.0}),
            ({"store_weight": 0.5}, {"a": 0.625, "b": 0.5, "c": 0.375, "d": 0.0}),
            ({"last_known": True, "store_weight": 0.5}, {"a": 0.625, "b": 0.5, "c": 0.375, "d": 0.375}),
        ):
            with self.subTest(settings), scripted(reply=ANSWER) as (script, address):
                with PrefixScorer(address, timeout=PATIENCE, model="m", **settings) as scorer:
                    self.assertEqual(scorer.choose(range(64), names, cache_salt="s"), want)
                    self.assertEqual(asyncio.run(scorer.choose_async(range(64), names)), want)
                    self.assertEqual(scorer.choose(range(16), ["engine-1"])["engine-1"], 1.0)
                    self.assertEqual(scorer.choose([], names), {})
                asked: dict[str, Any] = {"token_ids": list(range(64)), "model": "m", "cache_salt": "s"}
                if "last_known" in settings:
                    asked["last_known"] = True
                if "store_weight" in settings:
                    asked.update(loadable=True, num_tokens=64)
                self.assertEqual(script.requests[0][1], asked)

    def test_no_scores(self) -> None:
        for settings, timeout in (({"pause": PATIENCE}, 0.05), ({"reply": "x"}, PATIENCE), ({"status": 503}, PATIENCE)):
            with self.subTest(settings), scripted(**settings) as (_, address):
                with PrefixScorer(address, timeout=timeout) as scorer:
                    with self.assertLogs("hitline", "WARNING") as logged:
                        self.assertEqual(scorer.choose([1], ["e"]), {})
                        self.assertEqual(asyncio.run(scorer.choose_async([1], ["e"])), {})
                    self.assertEqual(len(logged.output), 1, logged.output)
        with PrefixScorer(unused_address(self).replace("tcp", "http")) as scorer:
            self.assertEqual(scorer.choose([1], ["e"]), {})

    def test_wrong_arguments(self) -> None:
        for wrong in ({"store_weight": 1.5}, {"connections": 0}, {"address": "x"}):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, next(iter(wrong))):
                PrefixScorer(**wrong)
        with PrefixScorer() as scorer, self.assertRaises(TypeError):
            scorer.choose(["x"], ["e"])


@needs_server
class Example(unittest.TestCase):
    def test_readme(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "hitline.json")
            models = [{"name": "m", "block_size": 16, "hash": {"type": "vllm"}}]
            router = {"listen": "127.0.0.1:0", "models": models}
            path.write_text(json.dumps({"listen": ["tcp://127.0.0.1:0"], "pool": {"vllm": NEWEST}, "router": router}))
            server = Server(config=str(path))
            self.addCleanup(server.stop)
        token_ids = list(range(64))
        with HoldersClient(f"http://{server.router}") as client:
            body = {"instance_id": "engine-1", "token_ids": token_ids[:32]}
            client._post("/predict", json.dumps(body).encode())
        code = next(part for part in README.read_text().split("```python")[1:] if "PrefixScorer(" in part)
        code = code.split("```")[0].replace("http://127.0.0.1:8557\"", f"http://{server.router}\", timeout={PATIENCE}")
        names: dict[str, Any] = {"token_ids": token_ids}
        exec(code, names)
        self.addCleanup(names["scorer"].close)
        self.assertEqual(names["scores"], {"http://10.0.0.10:8000": 0.0, "http://10.0.0.11:8000": 0.5})
        self.assertEqual(names["url"], "http://10.0.0.11:8000")


if __name__ == "__main__":
    unittest.main()
