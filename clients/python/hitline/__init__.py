"""Client of the hitline lookup server; see hitline.client."""

from hitline.client import (
    BadReply,
    Client,
    ConnectionFailed,
    HitlineError,
    LookupKeyClient,
    Refused,
    RequestTimeout,
)

__all__ = [
    "BadReply",
    "Client",
    "ConnectionFailed",
    "HitlineError",
    "LookupKeyClient",
    "Refused",
    "RequestTimeout",
]
