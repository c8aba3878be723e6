"""Wraps methods of vLLM's MooncakeStoreConnector, so that their calls reach the client of its
scheduler side."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

__all__ = ["CONNECTOR", "CONNECTOR_CLASS", "Wrapper", "client_of", "step_of", "wrap"]

CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector"
CONNECTOR_CLASS = "MooncakeStoreConnector"

_Client = TypeVar("_Client")
_Step = TypeVar("_Step")


class Wrapper(NamedTuple):
    """How a method is wrapped."""

    parameters: list[str]  # names of the method's, self included
    make: Callable[[Callable[..., Any]], Callable[..., Any]]  # takes the method and returns its replacement


def wrap(wrappers: Mapping[str, Wrapper]) -> str:
    """Wraps methods of the connector class of this process, by name, each method once. If the
    class differs from that of vLLM's releases, it wraps none and returns the difference.
    Otherwise it returns "", also if the module was not imported."""
    module = sys.modules.get(CONNECTOR)
    if module is None:  # what builds the scheduler side is not that connector
        return ""
    connector = getattr(module, CONNECTOR_CLASS, None)
    for name, wrapper in wrappers.items():
        method = getattr(connector, name, None)
        if not inspect.isfunction(method):
            return f"{CONNECTOR_CLASS} has no method {name}"
        if list(inspect.signature(method).parameters) != wrapper.parameters:
            return f"{CONNECTOR_CLASS} has {name}{inspect.signature(method)}"
    for name, wrapper in wrappers.items():
        method = getattr(connector, name)
        if not hasattr(method, "_hitline_wrapper"):
            wrapped: Any = functools.wraps(method)(wrapper.make(method))
            wrapped._hitline_wrapper = True
            setattr(connector, name, wrapped)
    return ""


def client_of(connector: Any, cls: type[_Client]) -> _Client | None:
    """The client of a connector's scheduler side, if it is of that class; None on the
    worker side."""
    client = getattr(getattr(connector, "connector_scheduler", None), "client", None)
    return client if isinstance(client, cls) else None


def step_of(connector: Any, cls: type[_Step]) -> _Step | None:
    """The step of that class of the client of a connector's scheduler side, if it has one."""
    steps = getattr(client_of(connector, object), "steps", ())
    return next((step for step in steps if isinstance(step, cls)), None)
