"""Which flows cross which links, ordered by link, for sums and comparisons over all links at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.units import Int64Array


@dataclass(frozen=True)
class Crossings:
    """All crossings of a link by a flow, those of one link side by side.

    Attributes:
        links: the links that are crossed, shape (k,).
        starts: where the crossings of each begin, shape (k,).
        flows: the flow of each crossing, shape (crossings,).
    """

    links: Int64Array
    starts: Int64Array
    flows: Int64Array

    @classmethod
    def of(cls, ways: Int64Array, num_links: int) -> Crossings:
        """Return the crossings of flows over *ways*, shape (m, h), padded with *num_links*."""
        flat = ways.ravel()
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        crossings = int(np.searchsorted(ordered, num_links))
        order, ordered = order[:crossings], ordered[:crossings]
        starts = (
            np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if crossings else np.zeros(0, np.int64)
        )
        return cls(ordered[starts], starts, order // ways.shape[1])

    @property
    def counts(self) -> Int64Array:
        """How many flows cross each of *links*."""
        return np.diff(self.starts, append=len(self.flows))

    def lowest(self, values: Int64Array) -> Int64Array:
        """Return the least of the flows' *values* on each link."""
        return np.minimum.reduceat(values[self.flows], self.starts)

    def highest(self, values: Int64Array) -> Int64Array:
        """Return the greatest of the flows' *values* on each link."""
        return np.maximum.reduceat(values[self.flows], self.starts)

    def equal(self, values: Int64Array) -> Int64Array:
        """Return for each link whether its flows have one value."""
        equal: Int64Array = self.lowest(values) == self.highest(values)
        return equal
