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

_MAY_BE_LEFT_AT_FIRST = 150_000
"""Objects; about half of what there is once torch is imported."""


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


class OldObjects:
    """Objects from before a run, in which no garbage is looked for while its ranks run.

    What others have frozen stays so.  To freeze objects (``gc.freeze``) resets Python's count of what has
    come since all were last looked through, so that they never would be again.  So what runs may have left
    is counted here, and once that is half of what there was, all are looked through before the next run.
    Half of what a run has at its end goes without the collector, as its outcome does.

    Args:
        may_be_left: so many objects, before the first time.
    """

    def __init__(self, may_be_left: int = _MAY_BE_LEFT_AT_FIRST) -> None:
        self._may_be_left = may_be_left
        self._are_frozen = False

    @contextmanager
    def passed_over(self) -> Iterator[None]:
        """Let the garbage collector look through nothing that is there by now while the body runs."""
        self._are_frozen = self._are_frozen or gc.get_freeze_count() > 0  # which counts them, one by one
        if self._are_frozen:
            yield
            return

        self._freeze()
        try:
            yield
        finally:
            self._may_be_left -= len(gc.get_objects())  # not of those that are frozen
            self._are_frozen = False
            gc.unfreeze()

    def _freeze(self) -> None:
        is_due = self._may_be_left < 0
        if is_due:
            gc.collect()
        gc.freeze()
        self._are_frozen = True
        if is_due:
            self._may_be_left = gc.get_freeze_count() // 2


OLD_OBJECTS = OldObjects()
"""Those of this process, which has one garbage collector."""
