"""Flow: a message on its links, and the fixed-point units in which its rate is counted."""

from __future__ import annotations

from sim.network.launch import Sender
from sim.network.path import Path
from sim.units import SECOND

FRACTION_BITS = 256
"""Rates are ints in units of 2**-256 bytes/s, see [Note: fixed point] in `sim.network.network`."""

TRUSTED_BITS = 96
"""Of durations in picoseconds: how far the end of a flow can be late by rounding its rate."""


def rate_of(bandwidth: int) -> int:
    """Return *bandwidth*, in bytes/s, in units of rates."""
    return bandwidth << FRACTION_BITS


def amount(nbytes: int) -> int:
    """Return *nbytes* in units of rate times picoseconds."""
    return nbytes * SECOND << FRACTION_BITS


def num_bytes(rest: int) -> int:
    """Return *rest*, in units of rate times picoseconds, in bytes, rounded up."""
    return -(-rest // amount(1))


def end_ps(now_ps: int, rest: int, rate: int) -> int:
    """Return the first whole picosecond at which *rest* is through at *rate*, from *now_ps* on.

    *rest* is in units of *rate* times picoseconds.
    """
    return now_ps - ((rate >> TRUSTED_BITS) - rest) // rate


class Flow:
    """Message *number* of a *sender* on the links of its path.

    Attributes:
        rest: what was left at *since_ps*, in units of rate times picoseconds.
        rate: at which it goes on from then, in units of 2**-256 bytes/s.
        since_ps: when it got that rate.
        end_ps: when its last byte is through; -1 while that is open.
        order: places it among those that end at one instant.
        endless: whether it goes on until it is removed.
    """

    __slots__ = ("end_ps", "endless", "number", "order", "path", "rate", "rest", "sender", "since_ps")

    def __init__(
        self, path: Path, rest: int, sender: Sender, number: int, order: int, endless: bool = False
    ) -> None:
        self.path = path
        self.rest = rest
        self.sender = sender
        self.number = number
        self.order = order
        self.endless = endless
        self.rate = self.since_ps = 0
        self.end_ps = -1

    def change_rate(self, rate: int, now_ps: int) -> int:
        """Let the flow go on at *rate* from now on; return what it has carried since the last change."""
        carried = self.rate * (now_ps - self.since_ps)
        self.rest -= carried
        self.rate = rate
        self.since_ps = now_ps
        self.end_ps = -1 if self.endless or not rate else end_ps(now_ps, self.rest, rate)
        return carried
