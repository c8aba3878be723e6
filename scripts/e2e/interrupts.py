"""SIGINT and SIGTERM raise KeyboardInterrupt: the first of them, and not where it would lose
a process that has just been started."""

import contextlib
import signal

NUMBERS = (signal.SIGINT, signal.SIGTERM)

_deferred = False  # whether one that comes waits
_waiting = False  # whether one has come


def handle():
    for number in NUMBERS:
        signal.signal(number, _interrupt)


def _interrupt(number, frame):
    """Further signals are ignored, so that all that was started is stopped."""
    global _waiting
    for other in NUMBERS:
        signal.signal(other, signal.SIG_IGN)
    if _deferred:
        _waiting = True
    else:
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred():
    """Within it, for an instant, no signal raises; one that came raises at its end."""
    global _deferred
    _deferred = True
    try:
        yield
    finally:
        _deferred = False
        if _waiting:
            raise KeyboardInterrupt
