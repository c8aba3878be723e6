"""Scores for a router: the README's example against the real server, and servers that follow a script."""

from __future__ import annotations

import asyncio
import json
import unittest
from pathlib import Path
from typing import Any

from hitline import HoldersClient, PrefixScorer
from hitline.errors import logger
from tests.support import PATIENCE, needs_server, router_server, unused_address
from tests.test_holders import scripted

README = Path(__file__).parents[1] / "README.md"

# engine-0 has half of 64 tokens, and its rank 0 is stale; engine-1 has a quarter; engine-3 is stale; the store has 48.
ANSWER = json.dumps(
    {
        "instances": {
            "engine-0": {"longest_matched": 32, "gpu": 32, "cpu": 0, "disk": 0, "dp": {"1": 32}},
            "engine-1": {"longest_matched": 16, "gpu": 16, "cpu": 0, "disk": 0, "dp": {"0": 16}},
        },
        "loadable_tokens": 48,
        "unsure": {"engine-0": ["stale"], "engine-1": ["incomplete"], "engine-3": ["stale"]},
        "unsure_ranks": {"engine-0": {"0": ["stale"]}, "engine-1": {"0": ["incomplete"]}, "engine-3": {"0": ["stale"]}},
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
                    asked.update(loadable=True)
                self.assertEqual(script.requests[0][1], asked)

    def test_ranks(self) -> None:
        """Of a rank its own prefix and reasons count."""
        ranks = {f"{engine}/{rank}": (f"engine-{engine}", rank) for engine in (0, 1, 3) for rank in (0, 1)}
        with scripted(reply=ANSWER) as (_, address):
            with PrefixScorer(address, timeout=PATIENCE, store_weight=0.5) as scorer:
                scores = scorer.choose(range(64), ranks)
        self.assertEqual(scores, {"0/0": 0.0, "0/1": 0.625, "1/0": 0.5, "1/1": 0.375, "3/0": 0.0, "3/1": 0.375})

    def test_predictions(self) -> None:
        with scripted(reply="{}") as (script, address):
            with PrefixScorer(address, timeout=PATIENCE, model="m", tenant="t") as scorer:
                scorer.predict([1, 2], "e", lora_name="l")
                asyncio.run(scorer.predict_async([1, 2], ("e", 3)))
                scorer.predict([], "e")
        names = {"model": "m", "tenant_id": "t", "instance_id": "e", "token_ids": [1, 2]}
        asked = [(path, body) for path, body, _ in script.requests]
        self.assertEqual(asked, [("/predict", {**names, "lora_name": "l"}), ("/predict", {**names, "dp_rank": 3})])

    def test_no_scores(self) -> None:
        for settings, timeout in (({"pause": PATIENCE}, 0.05), ({"reply": "x"}, PATIENCE), ({"status": 503}, PATIENCE)):
            with self.subTest(settings), scripted(**settings) as (_, address):
                with PrefixScorer(address, timeout=timeout) as scorer:
                    with self.assertLogs("hitline", "WARNING") as logged:
                        self.assertEqual(scorer.choose([1], ["e"]), {})
                        self.assertEqual(asyncio.run(scorer.choose_async([1], ["e"])), {})
                        scorer.predict([1], "e")
                    self.assertEqual(len(logged.output), 1, logged.output)
        with PrefixScorer(unused_address(self).replace("tcp", "http")) as scorer:
            self.assertEqual(scorer.choose([1], ["e"]), {})

    def test_names(self) -> None:
        """A name that the server does not follow is logged once for each model, and only if it follows others."""
        source = {"tenant_id": "default", "model": "m"}
        services = json.dumps({"sources": [{**source, "instance_id": f"engine-{i}"} for i in (1, 0, 0)]})
        for sources, engines, want, asked in (
            (services, ["vllm-a", ("vllm-a", 1)], 'hitline follows no engine "vllm-a"; it has engine-0, engine-1', 1),
            (services, [("engine-0", 1), "engine-1"], None, 2),
            ('{"sources": []}', ["vllm-a"], None, 1),
            ("{}", ["vllm-a"], None, 1),
        ):
            replies = {"/predict": "{}", "/services": sources, "/query": ANSWER}
            with self.subTest(engines=engines, sources=sources), scripted(replies=replies) as (script, address):
                scorer = PrefixScorer(address, timeout=PATIENCE)
                with self.assertLogs("hitline", "WARNING") as logged:
                    for _ in range(3):
                        scorer.choose([1, 2], ["vllm-b"], model="m")
                        for engine in engines:
                            scorer.predict([1, 2], engine, model="m")
                    scorer.close()
                    logger.warning("the end")
                lines = [record.getMessage() for record in logged.records[:-1]]
                self.assertEqual(lines, [want] if want else [])
                self.assertEqual([path for path, _, _ in script.requests].count("/services"), asked)

    def test_wrong_arguments(self) -> None:
        for wrong in ({"store_weight": 1.5}, {"connections": 0}, {"address": "x"}):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, next(iter(wrong))):
                PrefixScorer(**wrong)
        with PrefixScorer() as scorer, self.assertRaises(TypeError):
            scorer.choose(["x"], ["e"])
        with PrefixScorer() as scorer, self.assertRaisesRegex(TypeError, "token_ids is b'Hello', must be a list of int"):
            scorer.choose(b"Hello", ["e"])


@needs_server
class Example(unittest.TestCase):
    def test_readme(self) -> None:
        server = router_server(self)
        token_ids = list(range(64))
        with HoldersClient(f"http://{server.router}") as client:
            client.predict("engine-1", token_ids=token_ids[:32])
        code = next(part for part in README.read_text().split("```python")[1:] if "PrefixScorer(" in part)
        code = code.split("```")[0].replace("http://127.0.0.1:8557\"", f"http://{server.router}\", timeout={PATIENCE}")
        names: dict[str, Any] = {"token_ids": token_ids}
        exec(code, names)
        self.addCleanup(names["scorer"].close)
        self.assertEqual(names["scores"], {"http://10.0.0.10:8000": 0.0, "http://10.0.0.11:8000": 0.5})
        self.assertEqual(names["url"], "http://10.0.0.11:8000")
        self.assertEqual(names["scorer"].choose(token_ids, names["engines"])["http://10.0.0.11:8000"], 1.0, "predicted")


if __name__ == "__main__":
    unittest.main()
