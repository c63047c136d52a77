"""Words in a store that another rank leaves: asked for again and again.

Torch's stores can wait for a key themselves, but one that waits for a thread answers no other thread of its
process meanwhile; and of two ranks with two threads each, every one could wait for what an unanswered one was
about to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_LEAST_PAUSE = 0.0002
_MOST_PAUSE = 0.01


def word(store: Any, key: str, seconds: float, look: Callable[[], None] = lambda: None) -> str:
    """Return what stands at *key* in *store* as soon as it does.

    As long as nothing does, *look* is called again and again, and may raise.

    Raises:
        TimeoutError: nothing does after so many *seconds*.
        RuntimeError: the store cannot be reached.
    """
    deadline, pause = time.monotonic() + seconds, _LEAST_PAUSE
    while not store.check([key]):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nothing at {key} after {seconds:.3g} s")
        look()
        time.sleep(min(pause, left))
        pause = min(2 * pause, _MOST_PAUSE)
    said: str = store.get(key).decode()
    return said
