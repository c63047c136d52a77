"""Number of calls of layers in a run, and of those that were issued from a record."""

from __future__ import annotations

from sim.cluster.surroundings import OfCluster


class Reissued(OfCluster):
    """How many calls of blocks there were on all ranks of a run, and how many were issued from a record."""

    def __init__(self) -> None:
        self.calls = self.again = 0

    @property
    def text(self) -> str:
        """Both in words; empty where there were none."""
        if not self.again:
            return ""
        return (
            f"{self.again:,} of {self.calls:,} calls of equal layers were issued from a record of others "
            "(--every-layer carries out all)"
        )
