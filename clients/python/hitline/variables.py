"""The environment variables of the plug-in, and warnings of others that look like them."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping

__all__ = ["VARIABLES", "warn_of_misspelt"]

_PREFIX = "HITLINE_"

# Those of the plug-in, without HITLINE_.
VARIABLES = (
    "ADDRESS", "INSTANCE_ID", "LOOKUP", "ON_MISMATCH", "POOL_NAME", "PROGRAM", "TIMEOUT", "TLS_CA", "TLS_CERT", "TLS_KEY", "TOKEN_FILE",
    "VLLM",
)  # fmt: skip

# From this likeness on to one of VARIABLES a name is taken for a misspelling of it. Those that hitline reads, or that a
# container platform sets, are less like them.
_MISSPELT = 0.8


def warn_of_misspelt(environ: Mapping[str, str], logger: logging.Logger) -> None:
    """Warns of the variables that are nearly one of the plug-in."""
    for variable in sorted(environ):
        name = variable[len(_PREFIX) :]
        if not variable.startswith(_PREFIX) or name in VARIABLES:
            continue
        if near := difflib.get_close_matches(name, VARIABLES, 1, _MISSPELT):
            logger.warning("%s is no variable of the plug-in; did you mean %s%s?", variable, _PREFIX, near[0])
