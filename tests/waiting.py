"""Bounded poll: who waits for an event waits until it has come, and never for a while."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LAST_RESORT = 90.0
"""Seconds after which a wait is taken for a hang, on a busy machine, too."""

_PAUSE = 0.01


def until(condition: Callable[[], T], what: str, seconds: float = LAST_RESORT) -> T:
    """Return what *condition* gives as soon as that is true; *what* it waits for is named if it never is."""
    deadline = time.monotonic() + seconds
    while True:
        last = time.monotonic() > deadline  # a look after the deadline, however late this process gets to it
        found = condition()
        if found:
            return found
        assert not last, f"after {seconds:g} s still waiting for {what}"
        time.sleep(_PAUSE)
