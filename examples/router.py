"""Sends completions to the engine that has the least to compute: how a router in Python uses what hitline answers.
docs/router.md says what the answers mean.

    pip install hitline
    python router.py --hitline http://127.0.0.1:8557 engine-0=http://10.0.0.10:8000 engine-1=http://10.0.0.11:8000
    curl -s http://127.0.0.1:8080/v1/completions -d '{"model": "llama", "prompt": [1, 2, 3]}'
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import threading
import urllib.error
import urllib.request

from hitline import PrefixScorer

MAX_BODY = 16 << 20  # bytes
ENGINE_TIMEOUT = 600.0  # seconds that an engine may say nothing


class Router:
    """Engines by the names that hitline has for them (instance_id), and what each still has to compute."""

    def __init__(self, hitline: str, timeout: float, engines: dict[str, str]) -> None:
        # A token that the shared store can load counts half: loading costs less than computing. A scorer that gets no
        # answer in time has no scores, and load alone decides. An engine whose events are missing scores 0.
        self.scorer = PrefixScorer(hitline, store_weight=0.5, timeout=timeout)
        self.engines = engines
        self.load = dict.fromkeys(engines, 0.0)  # tokens
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def choose(self, prompt: list[int], model: str):
        """Yields the URL of the engine that would be done first. The prompt is part of its load until the end."""
        scores = self.scorer.choose(prompt, list(self.engines), model=model)
        with self.lock:
            costs = {name: len(prompt) * (1 - scores.get(name, 0.0)) + 1 for name in self.engines}
            chosen = min(self.engines, key=lambda name: self.load[name] + costs[name])
            self.load[chosen] += costs[chosen]
        try:
            # The next request with this prompt goes there, before the engine's events say so.
            self.scorer.predict(prompt, chosen, model=model)
            yield self.engines[chosen]
        finally:
            with self.lock:
                self.load[chosen] -= costs[chosen]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    router: Router

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if length > MAX_BODY:
            self.close_connection = True
            self.answer(413, b"the request is too large\n")
            return
        body = self.rfile.read(length)
        with self.router.choose(*self.prompt(body)) as url:
            request = urllib.request.Request(url + self.path, body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=ENGINE_TIMEOUT) as answer:
                    self.answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self.answer(error.code, error.read())
            except OSError as error:
                self.answer(502, str(error).encode())

    @staticmethod
    def prompt(body: bytes) -> tuple[list[int], str]:
        """The token ids of a prompt, and its model, which hitline has under the same name. A router that has texts
        tokenizes them first. Without token ids load alone decides."""
        try:
            request = json.loads(body)
            prompt, model = request["prompt"], request.get("model", "")
        except (AttributeError, KeyError, TypeError, ValueError):
            return [], ""
        is_ids = isinstance(prompt, list) and all(type(token) is int for token in prompt)
        return (prompt, model) if is_ids and isinstance(model, str) else ([], "")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hitline", default="http://127.0.0.1:8557", help="URL of hitline's router.listen")
    parser.add_argument("--timeout", type=float, default=0.05, help="seconds that a request waits for hitline")
    parser.add_argument("--listen", default="127.0.0.1:8080", help="address to listen on")
    parser.add_argument("engines", nargs="+", metavar="NAME=URL")
    arguments = parser.parse_args()
    engines = dict(engine.split("=", 1) for engine in arguments.engines)
    Handler.router = Router(arguments.hitline, arguments.timeout, engines)
    host, port = arguments.listen.rsplit(":", 1)
    with http.server.ThreadingHTTPServer((host, int(port)), Handler) as server:
        print(f"listening on http://{host}:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
