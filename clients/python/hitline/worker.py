"""A thread that makes calls one after the other."""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from hitline.errors import ConnectionFailed

_Result = TypeVar("_Result")


class Task(Generic[_Result]):
    """A call, and what came of it. It is lighter than a Future of concurrent.futures, several of which would take as
    long as a lookup."""

    def __init__(self, call: Callable[..., _Result], arguments: tuple[Any, ...]) -> None:
        self.is_done = False
        self._call = [(call, arguments)]  # whoever takes it out makes the call, or cancels it
        self._error: BaseException | None = None
        self._running = threading.Lock()  # until it is done
        self._running.acquire()
        self._value: _Result

    def run(self) -> None:
        try:
            call, arguments = self._call.pop()
        except IndexError:  # it was cancelled
            return
        try:
            self._value = call(*arguments)
        except BaseException as error:
            self._error = error
        self._end()

    def cancel(self, error: Exception) -> None:
        """Has result raise an error, unless the call is being made or was."""
        if self._call:
            try:
                self._call.pop()
            except IndexError:
                return
            self._error = error
            self._end()

    def _end(self) -> None:
        self.is_done = True
        self._running.release()

    def result(self) -> _Result:
        """Waits for the call. Returns what it has returned, or raises what it has raised."""
        if not self.is_done:
            with self._running:
                pass
        if self._error is not None:
            raise self._error
        return self._value


class Worker:
    """The thread starts with the first call, and ends with stop or when this object is gone."""

    def __init__(self, name: str) -> None:
        self._name = name  # of the thread
        self._lock = threading.Lock()
        self._stopped = False
        self._tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._tasks.put, None)

    def submit(self, call: Callable[..., _Result], *arguments: Any) -> Task[_Result]:
        """Has a call made. Raises ConnectionFailed after stop."""
        task = Task(call, arguments)
        with self._lock:
            if self._stopped:
                raise ConnectionFailed("the client is closed")
            if self._thread is None:
                thread = threading.Thread(target=_run, args=(self._tasks,), name=self._name, daemon=True)
                thread.start()
                self._thread = thread
            self._tasks.put(task)
        return task

    def stop(self) -> None:
        """Cancels the calls that have not begun."""
        with self._lock:
            self._stopped = True
            with contextlib.suppress(queue.Empty):
                while True:
                    if task := self._tasks.get_nowait():
                        task.cancel(ConnectionFailed("the client is closed"))
            self._tasks.put(None)

    def join(self, timeout: float) -> None:
        """Waits for the thread, after stop, at most timeout seconds."""
        if self._thread is not None:
            self._thread.join(timeout)


def _run(tasks: queue.SimpleQueue[Task[Any] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # it may have the last reference to the client
