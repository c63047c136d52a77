"""Record of a player: the times of what it has played, and what its compute stream waited for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from sim.hardware import NOTHING, Issued


class Cause(NamedTuple):
    """What a stream waits for: a collective of a group, a copy, or work on another stream.

    Attributes:
        name: of the collective, or of the copy.
        group: in words; "" for what is no collective.
    """

    name: str
    group: str = ""


OTHER_STREAM = Cause("other streams")
"""Kernels on another stream."""


@dataclass(frozen=True)
class PlayedMark:
    """A mark of the score as it was played; counts are those since the start.

    Attributes:
        name: of what is marked.
        host_ps: when the host came to it.
        device_ps: when the default stream had done all that was issued before.
        busy_ps: how long the default stream has computed.
        host_idle_ps: how long it has waited for the host to launch.
        exposed: how long it has waited for each cause.
        issued: what has taken the host's time.
    """

    name: str
    host_ps: int
    device_ps: int
    busy_ps: int
    host_idle_ps: int
    exposed: dict[Cause, int]
    issued: Issued = NOTHING


@dataclass
class Played:
    """What is known of the ranks of one player.

    Attributes:
        marks: those played so far, in order.
        busy_ps: how long the default stream has computed.
        host_idle_ps: how long it has waited for the host to launch.
        exposed: how long it has waited for each cause.
        late_ps: by how much calls began later than they should at most, as a rank was asked too late.
        num_late: how many calls did.
        end_ps: when all was done; None before.
    """

    marks: list[PlayedMark] = field(default_factory=list)
    busy_ps: int = 0
    host_idle_ps: int = 0
    exposed: Counter[Cause] = field(default_factory=Counter)
    late_ps: int = 0
    num_late: int = 0
    end_ps: int | None = None

    def copy(self) -> Played:
        """Return a record that goes on by itself."""
        return Played(
            list(self.marks),
            self.busy_ps,
            self.host_idle_ps,
            Counter(self.exposed),
            self.late_ps,
            self.num_late,
            self.end_ps,
        )
