"""Links in use: which calls hold which links, and until when.

A call holds the links of a rank from when that rank begins it, without an end in sight; once it is known when
all are through, until each is free again.  So two calls can meet on a link only if one begins while the
other holds it.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from sim.units import Int64Array

OPEN = np.iinfo(np.int64).max
"""Until when a link is held, where that is not known yet."""


class LinksInUse:
    """Holders of the links of a network; each is a number.

    Args:
        num_links: of the network.
    """

    def __init__(self, num_links: int) -> None:
        self._until_ps = np.zeros(num_links, dtype=np.int64)
        self._holder = np.full(num_links, -1, dtype=np.int64)
        self._numbers = count()

    def new_holder(self) -> int:
        """Return a number that no other holder has."""
        return next(self._numbers)

    def others_on(self, links: Int64Array, holder: int, now_ps: int) -> list[int]:
        """Return who but *holder* holds one of *links* beyond now."""
        held = self._until_ps[links] > now_ps
        if not held.any():
            return []
        holders: list[int] = np.unique(self._holder[links[held]]).tolist()
        return [other for other in holders if other != holder]

    def hold(self, links: Int64Array, holder: int, until_ps: Int64Array | int = OPEN) -> None:
        """Let *holder* hold *links*, each until the time given."""
        self._until_ps[links] = until_ps
        self._holder[links] = holder

    def release(self, links: Int64Array, holder: int) -> None:
        """Let those of *links* go that *holder* holds."""
        self._until_ps[links[self._holder[links] == holder]] = 0
