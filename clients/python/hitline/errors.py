"""What can go wrong with a request, what a server says of it, and how it is logged."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any

__all__ = [
    "BadReply",
    "BadRequest",
    "Busy",
    "ConnectionFailed",
    "HitlineError",
    "NoPool",
    "NotAllowed",
    "NotAuthenticated",
    "PartlyDone",
    "PoolDiffers",
    "RefusedError",
    "RequestTimeout",
    "StoreFailed",
    "TooLarge",
    "UnknownRequest",
    "Unsupported",
    "WrongRelease",
]

logger = logging.getLogger("hitline")

# Longest text of a server in an error or a log, in characters.
_MAX_TEXT = 512

# Each kind of failure is logged at most this often, in seconds.
_LOG_EVERY = 10.0


class HitlineError(Exception):
    """What all errors of this package are, but for TypeError and ValueError about arguments."""


class ConnectionFailed(HitlineError):
    """There is no connection, it was lost, or the client is closed."""


class RequestTimeout(HitlineError):
    """No reply within the time that the client was given."""


class BadReply(HitlineError):
    """The reply is not what the protocol says."""


class RefusedError(HitlineError):
    """The server did not serve a request. A code that this package does not know is raised as
    this class itself."""

    def __init__(self, text: str, refusal: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.text = text  # why, in words
        self.refusal: dict[str, Any] = dict(refusal or {})  # all that the server sent with it, as it is
        self.code = string(self.refusal, "refusal")
        self.request = string(self.refusal, "request")


class UnknownRequest(RefusedError):
    """The server knows no such request."""


class BadRequest(RefusedError):
    """The request, or what it says of a prompt or a pool, is wrong."""


class NoPool(RefusedError):
    """The connection has no pool, or the server has none of this name."""


class PoolDiffers(RefusedError):
    """The described pool is not the one that the server has. The text names each field."""

    @property
    def differences(self) -> list[dict[str, Any]]:
        """Each has field, configured and described."""
        return _objects(self.refusal, "differences")


class NotAllowed(RefusedError):
    """The client has no permission for this request."""


class NotAuthenticated(RefusedError):
    """The server refused the client's token: it knows no such token, the token has expired,
    or this listener has no tokens."""


class Unsupported(RefusedError):
    """This pool or store cannot do it."""


class TooLarge(RefusedError):
    """The request exceeds a limit, which refusal has as limit."""


class Busy(RefusedError):
    """The server held as many requests as it may, until the call's timeout."""


class StoreFailed(RefusedError):
    """The store behind the server has failed, or did not answer in time."""


class PartlyDone(RefusedError):
    """A part of the request was not done. The other parts are."""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """The parts of a prompt that are not stored. Each has group, tp_rank, pp_rank, pcp_rank,
        first_chunk, chunks and error."""
        return _objects(self.refusal, "parts")

    @property
    def more_parts(self) -> int:
        """How many there are beyond parts."""
        more = self.refusal.get("more_parts", 0)
        return more if type(more) is int else 0


class WrongRelease(HitlineError):
    """The server answers as other releases of vLLM do than the engine's."""


# By the code of the protocol.
REFUSALS: dict[str, type[RefusedError]] = {
    "unknown_request": UnknownRequest,
    "bad_request": BadRequest,
    "no_pool": NoPool,
    "pool_differs": PoolDiffers,
    "not_allowed": NotAllowed,
    "not_authenticated": NotAuthenticated,
    "unsupported": Unsupported,
    "too_large": TooLarge,
    "busy": Busy,
    "store_failed": StoreFailed,
    "partly_done": PartlyDone,
}


def decode_refusal(frames: list[bytes]) -> RefusedError:
    """Returns the error of a reply 00 or 04."""
    try:
        _, text, document = frames
    except ValueError:
        raise BadReply(f"a refusal of {len(frames)} frames, want 3") from None
    refusal = decode_object("a refusal", [document])
    return REFUSALS.get(string(refusal, "refusal"), RefusedError)(printable(text), refusal)


def decode_object(request: str, frames: list[bytes]) -> dict[str, Any]:
    """Returns the JSON object that is the reply to a request."""
    try:
        (document,) = frames
        decoded = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"{request} without a JSON document: {error}") from error
    if not isinstance(decoded, dict):
        raise BadReply(f"{request} is not a JSON object")
    return decoded


def string(described: Mapping[str, Any], name: str) -> str:
    """Returns a field as printable does, empty if it is missing or no string."""
    value = described.get(name)
    return printable(value) if isinstance(value, str) else ""


def _objects(described: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Returns the objects in a field that is a list."""
    value = described.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def printable(text: str | bytes) -> str:
    """Returns what a server has said as it may be logged: the first 512 characters, control characters escaped."""
    letters = text[: 4 * _MAX_TEXT].decode("utf-8", "replace") if isinstance(text, bytes) else text[: _MAX_TEXT + 1]
    letters = letters[: _MAX_TEXT + 1]
    if not letters.isprintable():
        letters = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in letters)
    return letters if len(letters) <= _MAX_TEXT else letters[:_MAX_TEXT] + "…"


class FailureLog:
    """The log of one client. A failure that lasts is told now and then."""

    def __init__(self, logger: logging.Logger) -> None:
        self.logger = logger
        self._again_at: dict[str, float] = {}  # when each text may be logged again
        self._difference = ""  # the text of the last PoolDiffers that was logged

    def failure(self, text: str, address: str, error: Exception) -> None:
        """Logs a text about an address and an error. A pool that differs in the same way is logged once."""
        differs = isinstance(error, PoolDiffers)
        if differs and str(error) == self._difference:
            return
        if self.is_due(text + " (pool)" if differs else text):
            if differs:
                self.note_difference(str(error))
            level = logging.ERROR if isinstance(error, (PoolDiffers, WrongRelease)) else logging.WARNING
            self.logger.log(level, text, address, error if isinstance(error, HitlineError) else repr(error))

    def note_difference(self, text: str) -> None:
        """Has the PoolDiffers of a text not be logged again."""
        self._difference = text

    def is_due(self, text: str) -> bool:
        """Whether a text may be logged, which it then may not be for a while."""
        now = time.monotonic()
        if now < self._again_at.get(text, 0.0):
            return False
        self._again_at[text] = now + _LOG_EVERY
        return True
