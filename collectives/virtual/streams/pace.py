"""Pace of a rank: how fast it goes through its score."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil


@dataclass(frozen=True)
class Pace:
    """How fast a rank goes through its score.

    Attributes:
        start_ps: when its host begins.
        launch_ps: the host's time for a launch.
        slowness: by which the rank takes longer for all it does; None: by nothing.
        share: of the device that communication takes while it is in flight.
    """

    start_ps: int = 0
    launch_ps: int = 0
    slowness: Fraction | None = None
    share: Fraction = Fraction(0)

    def scaled(self, duration_ps: int) -> int:
        """Return how long the rank takes for what takes *duration_ps*."""
        return duration_ps if self.slowness is None else ceil(duration_ps * self.slowness)

    def disturbed(self, duration_ps: int) -> int:
        """Return how long a kernel takes that begins beside communication: its time over what is left."""
        taken, whole = self.share.as_integer_ratio()
        return -(-duration_ps * whole // (whole - taken))
