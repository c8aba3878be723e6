"""The environment variables of the plug-in, and warnings of others that look like them."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping

__all__ = ["VARIABLES", "warn_of_unknown"]

_PREFIX = "HITLINE_"

# Those of the plug-in. These and all below stand without HITLINE_.
VARIABLES = (
    "ADDRESS", "ON_MISMATCH", "POOL_NAME", "TIMEOUT", "TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN_FILE", "VLLM",
)  # fmt: skip

# Those of programs, which may run in the same environment, have these names or begin with one of them and _.
# `serve` checks what follows. TestVariablesOfThePlugIn of the program's configuration compares the names.
_SECTIONS = (
    "ACCEPT_POOLS", "BACKEND", "DRAIN_TIMEOUT", "HTTP_HOSTS", "IPC_MODE", "LIMITS", "LISTEN", "LOG", "LOOPS",
    "MAX_POOLS", "METRICS", "POOL", "POOLS", "PPROF", "ROUTER", "STATUS_PAGE", "KERNEL", "TEST",
)  # fmt: skip

# What container platforms set for a service whose name begins with hitline.
_INJECTED = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)|([A-Z0-9]+_)?(NAME|ENV_.*)"
)

# From this likeness on to one of VARIABLES a name is taken for a misspelling of it, also in a section.
_MISSPELT = 0.9


def warn_of_unknown(environ: Mapping[str, str], logger: logging.Logger) -> None:
    """Warns of the variables that begin like those of the plug-in, and that nothing reads."""
    for variable in sorted(environ):
        name = variable[len(_PREFIX) :]
        if not variable.startswith(_PREFIX) or name in VARIABLES:
            continue
        is_near = difflib.get_close_matches(name, VARIABLES, 1, _MISSPELT)
        if not is_near and (_INJECTED.fullmatch(name) or any(f"{name}_".startswith(f"{s}_") for s in _SECTIONS)):
            continue
        near = difflib.get_close_matches(name, VARIABLES, 1)
        advice = f"; did you mean {_PREFIX}{near[0]}?" if near else ""
        logger.warning("%s is no variable of the plug-in or of hitline%s", variable, advice)
