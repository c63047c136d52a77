"""Garbage collector of a run, which looks seldom through what lives as long as the run.

Modules, and what ranks make of them, are many and no garbage: looking through them again and again while they
are imported and reported on takes a twentieth of a command's time, while ranks run a fifth.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FULL_COLLECTION = 1000
"""Collections of young objects before all are looked through."""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Let the garbage collector look through what has lived long more seldom; ranks may switch it off."""
    is_enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.set_threshold(*thresholds[:2], max(thresholds[2], _FULL_COLLECTION))
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if is_enabled else gc.disable)()
