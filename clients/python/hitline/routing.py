"""Scores for a router in Python: how much of a prompt each engine need not compute. See docs/router.md.

A router calls choose for each request and adds the scores to its others, such as those of load; then predict, so that the
next request with this prompt goes there, too. The server is asked at its router.listen; one that is late, away or refuses
costs the scores alone."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Tuple, TypeVar, Union

from hitline.connection import forkable
from hitline.errors import HitlineError, RequestTimeout, logger, printable
from hitline.holders import Holders, HoldersClient

__all__ = ["PrefixScorer"]

# Seconds between two warnings that there are no scores, and between two checks of names.
_WARN_EVERY = 10.0

# How many names of engines are remembered as checked, and how many a warning has.
_MAX_CHECKED = 1000
_MAX_NAMED = 10

# An engine by its name at the server, or one of its data-parallel ranks.
Engine = Union[str, Tuple[str, int]]

T = TypeVar("T")


class PrefixScorer:
    """Asks a server over some connections. May be used by several threads, event loops and forked processes."""

    def __init__(
        self,
        address: str = "http://127.0.0.1:8557",
        *,
        model: str = "",
        tenant: str = "",
        store_weight: float = 0.0,
        last_known: bool = False,
        timeout: float = 0.05,
        connections: int = 4,
        **client: Any,
    ) -> None:
        """store_weight is what a token counts that the shared store can load beyond those that an engine has, 0 to 1;
        with 0 the store is not asked. With last_known a rank whose events may be missing counts for what it had,
        otherwise for what is predicted; an engine that then has nothing scores 0. timeout bounds each request in
        seconds, and the wait for a connection before it. client are token, token_file and tls of HoldersClient."""
        if not 0 <= store_weight <= 1:
            raise ValueError(f"store_weight is {store_weight!r}, must be 0 to 1")
        if connections < 1:
            raise ValueError(f"connections is {connections!r}, must be at least 1")
        self._model, self._tenant = model, tenant
        self._store_weight, self._last_known, self._timeout = store_weight, last_known, timeout
        self._clients = [HoldersClient(address, timeout=timeout, **client) for _ in range(connections)]
        self._warned = self._last_check = float("-inf")
        self._checked: frozenset[tuple[str, str]] = frozenset()  # models with names of engines
        self._begin_work()
        forkable.add(self)

    def _begin_work(self) -> None:
        self._idle: queue.LifoQueue[HoldersClient] = queue.LifoQueue()
        for client in self._clients:
            self._idle.put(client)
        self._workers = concurrent.futures.ThreadPoolExecutor(len(self._clients), "hitline-scores")
        self._lock = threading.Lock()

    _after_fork = _begin_work

    def __enter__(self) -> PrefixScorer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections, after calls that are under way."""
        forkable.discard(self)
        self._workers.shutdown()
        for client in self._clients:
            client.close()

    def choose(
        self, token_ids: Sequence[int], engines: Iterable[str] | Mapping[str, Engine], **prompt: str
    ) -> dict[str, float]:
        """Returns a score of 0 to 1 for each engine: the part of the prompt that it need not compute. Without an answer
        in time there are none. engines are the names that the server has for them (instance_id), or a mapping from the
        caller's names to those, or to pairs of such a name and a data-parallel rank. An engine that the server does not
        follow scores 0: predict logs it once. prompt are lora_name, lora_path and cache_salt if the request has them,
        and model in place of the scorer's."""
        names = engines if isinstance(engines, Mapping) else {engine: engine for engine in engines}
        if not len(token_ids):
            return {}
        prompt = {"model": self._model, **prompt}
        found = self._ask(
            lambda client: client.holders(
                token_ids=token_ids,
                tenant=self._tenant,
                last_known=self._last_known,
                loadable=self._store_weight > 0,
                **prompt,  # type: ignore[arg-type]
            )
        )
        if found is None:
            return {}
        return self._scores(found, len(token_ids), names)

    async def choose_async(
        self, token_ids: Sequence[int], engines: Iterable[str] | Mapping[str, Engine], **prompt: str
    ) -> dict[str, float]:
        """Is choose for asyncio: the event loop does not wait."""
        scores = await self._wait(lambda: self.choose(token_ids, engines, **prompt))
        return {} if scores is None else scores

    def predict(self, token_ids: Sequence[int], engine: Engine, **prompt: str) -> None:
        """Says that a request with this prompt was sent to an engine: its name at the server, or a pair of that and a
        data-parallel rank. It counts for the engine before its events say so. What fails is logged. prompt is as for
        choose. The server must allow the permission store."""
        if len(token_ids):
            name, rank = engine if isinstance(engine, tuple) else (engine, 0)
            names = {"tenant": self._tenant, "model": self._model, **prompt}
            self._ask(lambda client: client.predict(name, token_ids=token_ids, rank=rank, **names))  # type: ignore
            self._check_name(name, names["model"])

    async def predict_async(self, token_ids: Sequence[int], engine: Engine, **prompt: str) -> None:
        """Is predict for asyncio: the event loop does not wait."""
        await self._wait(lambda: self.predict(token_ids, engine, **prompt))

    async def _wait(self, call: Callable[[], T]) -> T | None:
        """Returns what a call in another thread returns, None if that takes too long."""
        running = asyncio.get_running_loop().run_in_executor(self._workers, call)
        try:
            return await asyncio.wait_for(running, self._timeout)
        except (asyncio.TimeoutError, TimeoutError):
            self._warn(RequestTimeout(f"no answer within {self._timeout} s"))
            return None

    def _check_name(self, name: str, model: str) -> None:
        """Asks once whether the server follows an engine, and warns: one that it does not know scores 0 for ever. No
        request waits for it, since its engine is chosen."""
        with self._lock:
            if (model, name) in self._checked or time.monotonic() - self._last_check < _WARN_EVERY:
                return
            self._last_check = time.monotonic()
        followed = self._ask(lambda client: client.followed(model, self._tenant), is_check=True)
        if followed is None:  # it is tried again
            return
        with self._lock:
            self._checked = (self._checked if len(self._checked) < _MAX_CHECKED else frozenset()) | {(model, name)}
            if name in followed:
                self._last_check = float("-inf")  # the next name is checked at once
        if followed and name not in followed:  # a server that follows none knows what is predicted alone
            known = ", ".join(printable(name) for name in sorted(followed)[:_MAX_NAMED])
            logger.warning('hitline follows no engine "%s"; it has %s', printable(name), known)

    def _ask(self, request: Callable[[HoldersClient], T], is_check: bool = False) -> T | None:
        """Makes a request over one of the connections. None: it failed, which is logged unless it is a check."""
        try:
            client = self._idle.get(timeout=self._timeout)
        except queue.Empty:
            if not is_check:
                self._warn(RequestTimeout(f"other threads' requests took {self._timeout} s"))
            return None
        try:
            return request(client)
        except HitlineError as error:
            if not is_check:
                self._warn(error)
            return None
        finally:
            self._idle.put(client)

    def _scores(self, found: Holders, num_tokens: int, names: Mapping[str, Engine]) -> dict[str, float]:
        held = {holder.engine: holder for holder in found.holders}
        loadable = found.loadable_tokens or 0
        scores = {}
        for name, engine in names.items():
            if isinstance(engine, tuple):
                engine, rank = engine
                tokens = held[engine].ranks.get(rank, 0) if engine in held else 0
                reasons = found.unsure_ranks.get(engine, {}).get(rank, ())
            else:  # it is stale if one of its ranks is
                tokens = held[engine].tokens if engine in held else 0
                reasons = found.unsure.get(engine, ())
            saved = tokens + self._store_weight * max(loadable - tokens, 0)
            # What a stale engine has is of its other ranks, or predicted.
            is_out = not tokens and "stale" in reasons and not self._last_known
            scores[name] = 0.0 if is_out else min(saved / num_tokens, 1.0)
        return scores

    def _warn(self, error: HitlineError) -> None:
        """Logs a failure, and not for each request."""
        with self._lock:
            is_due = time.monotonic() - self._warned >= _WARN_EVERY
            if is_due:
                self._warned = time.monotonic()
        if is_due:
            logger.warning("requests are routed without hitline: %s", error)
