"""What an engine's client says of itself to the server with its pool. The server names the asker by it; no answer
depends on it."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any

from hitline.own_server import distribution

__all__ = ["MAX_TEXT", "describe_client", "process_id"]

# Longest text that a server keeps, in bytes.
MAX_TEXT = 128

_process: tuple[int, str] = 0, ""


def process_id() -> str:
    """Returns the random id of this process, the same at each call. A forked process has its own."""
    global _process
    pid = os.getpid()
    if _process[0] != pid:
        _process = pid, secrets.token_hex(8)
    return _process[1]


def describe_client(vllm_config: Any, instance_id: str) -> dict[str, Any]:
    """Returns the object client of a pool request. Without instance_id the engine's own id for transfers is sent."""
    transfer = getattr(vllm_config, "kv_transfer_config", None)
    parallel = getattr(vllm_config, "parallel_config", None)
    package = distribution()
    described = {
        "process": process_id(),
        "instance_id": instance_id or getattr(transfer, "engine_id", None),
        "role": getattr(transfer, "kv_role", None),
        # Of dense models vLLM gives each engine of a deployment rank 0, and tells them apart by the index.
        "rank": getattr(parallel, "data_parallel_index", getattr(parallel, "data_parallel_rank", None)),
        "hitline": package.version if package else None,
        "vllm": getattr(sys.modules.get("vllm"), "__version__", None),
    }
    return {key: value for key, value in described.items() if type(value) is int or value and type(value) is str}
