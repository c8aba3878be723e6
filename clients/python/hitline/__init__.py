"""Client of the hitline lookup server; see hitline.client."""

from hitline.client import (
    BadReply,
    Client,
    ConnectionFailed,
    HitlineError,
    Instance,
    LookupKeyClient,
    LookupResult,
    PoolDiffers,
    PoolRefused,
    Refused,
    RequestTimeout,
    TailKeyBoundary,
    VLLM_RELEASES,
    WrongRelease,
)

__all__ = [
    "BadReply",
    "Client",
    "ConnectionFailed",
    "HitlineError",
    "Instance",
    "LookupKeyClient",
    "LookupResult",
    "PoolDiffers",
    "PoolRefused",
    "Refused",
    "RequestTimeout",
    "TailKeyBoundary",
    "VLLM_RELEASES",
    "WrongRelease",
]
