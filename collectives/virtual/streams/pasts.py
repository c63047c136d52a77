"""Pasts of ranks that a player has gone on for since it did what theirs did.

From then on all that is added up of them grows by the same.  So what is known of such a rank is what is
known of its player, with what differed until then: the marks before, and by how much its sums are larger.
"""

from __future__ import annotations

from typing import NamedTuple

from collectives.virtual.streams.account import Played, PlayedMark


class PastMark(NamedTuple):
    """A mark of the score as it was played for a rank; fields are those of `PlayedMark`."""

    host_ps: int
    device_ps: int
    busy_ps: int
    host_idle_ps: int


class Past(NamedTuple):
    """What tells a rank from the player that goes on for it.

    Attributes:
        marks: all until it did, as they were played for the rank.
        busy_ps: how much longer than the player's its default stream has computed.
        host_idle_ps: how much longer it has waited for the host to launch.
    """

    marks: tuple[PastMark, ...] = ()
    busy_ps: int = 0
    host_idle_ps: int = 0

    def joined(self, before: Played, after: Played) -> Past:
        """Return the past of a rank that was in the player of *before* and is now in that of *after*."""
        return Past(
            tuple(self._marks(before)),
            self.busy_ps + before.busy_ps - after.busy_ps,
            self.host_idle_ps + before.host_idle_ps - after.host_idle_ps,
        )

    def played(self, own: Played) -> Played:
        """Return what is known of a rank, but for what it was lost to, if *own* is known of its player."""
        marks = [
            PlayedMark(mark.name, *past, exposed={}, lost={}, issued=mark.issued)
            for mark, past in zip(own.marks, self._marks(own), strict=True)
        ]
        busy_ps, host_idle_ps = own.busy_ps + self.busy_ps, own.host_idle_ps + self.host_idle_ps
        return Played(
            marks, busy_ps, host_idle_ps, late_ps=own.late_ps, num_late=own.num_late, end_ps=own.end_ps
        )

    def _marks(self, own: Played) -> list[PastMark]:
        """Return all marks of the rank, the latest of which were played by the player of *own*."""
        later = own.marks[len(self.marks) :]
        return [
            *self.marks,
            *(
                PastMark(
                    mark.host_ps,
                    mark.device_ps,
                    mark.busy_ps + self.busy_ps,
                    mark.host_idle_ps + self.host_idle_ps,
                )
                for mark in later
            ),
        ]
