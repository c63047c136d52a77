"""Protocol of models of computation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from sim.cluster import RankThread


@runtime_checkable
class ComputeModel(Protocol):
    """Charges what a rank computes to its clock."""

    @property
    def name(self) -> str:
        """How the figure was got, for reports, such as ``roofline of h100``."""

    @property
    def repeats(self) -> bool:
        """Whether the same script takes the same virtual time in every run."""

    def on_rank(self, rank_thread: RankThread) -> AbstractContextManager[None]:
        """Return what is entered on the rank's thread before the user's function, and left after it."""
