"""Calls of layers that are issued from a record: their number, and the error where a record is too little."""

from __future__ import annotations

from collectives.errors import NotSupportedError
from sim.cluster.surroundings import OfCluster

CARRIED_OUT = (
    "a layer that was issued from a record of others was gone back through twice, or in part, so the run "
    "began anew with every layer carried out, as by --every-layer"
)


class UnrecordedReturnError(NotSupportedError):
    """A layer is gone back through in a way that its record does not tell; the run begins anew without."""


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
