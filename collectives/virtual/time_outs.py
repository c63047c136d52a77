"""Time-outs of groups that a run reaches: a rank comes to a call later than the others wait for it.

Torch's backends give up after the time-out of the group, by default 30 minutes over Gloo and 10 over NCCL,
and the job ends.  Here a rank that waits for ever is found at once, as a deadlock; one that comes late is
found when it comes, by how long the first rank of the call has waited by then.  The time from a rank's coming
to the result is not counted.

A message over Gloo is waited for from ``wait`` on, so a receive may be posted hours before it; over NCCL the
watchdog counts from the call.

Source: torch/csrc/distributed/c10d/Types.hpp (``kBackendDefaultTimeout``) and ProcessGroupNCCL.hpp
(``kProcessGroupNCCLDefaultTimeout``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from collectives.errors import CollectiveTimeoutError
from collectives.execution.call import Call
from collectives.virtual.diagnosis.places import current_place
from sim.cluster.surroundings import OfCluster
from sim.units import SECOND, format_time

NCCL_DEFAULT = timedelta(minutes=10)

_LONG_PS = 60 * SECOND


def too_late(
    call: Call, first: int, last: int, late_ps: int, limit_ps: int, remark: str = ""
) -> CollectiveTimeoutError:
    """Return the error of a call to which rank *last* came later than rank *first*, numbered in the run."""
    return CollectiveTimeoutError(
        f"rank {last} comes to {call} {format_time(late_ps)} after rank {first}{remark}, and the group "
        f"waits for {format_time(limit_ps)}, so a real job ends there; give ranks equal work between "
        "two calls, or init_process_group or new_group a longer timeout"
    )


class TimeOut:
    """The time-out of a group whose ranks are threads.

    Args:
        hosts: the ranks of the group, by number in the run.
        limit_ps: how long the first rank that comes to a call waits for the others.
        pauses: of the ranks, for the error.
        from_wait: says whether messages count from ``wait`` on, which `waited` tells.
    """

    def __init__(
        self,
        hosts: Sequence[int],
        limit_ps: int,
        pauses: Pauses | None = None,
        from_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._hosts = hosts
        self._pauses = pauses
        self._limit_ps = limit_ps
        self._from_wait = from_wait
        self._late: dict[Call, tuple[int, int]] = {}
        self._arrivals: dict[Call, tuple[tuple[int, int], tuple[int, int], int]] = {}

    def come(self, rank: int, now_ps: int, call: Call) -> None:
        """Note that *rank*, within the group, comes at *now_ps*; threads may run in another order than time.

        Raises:
            CollectiveTimeoutError: the first has waited too long for it, or for another.
        """
        arrival = now_ps, self._hosts[rank]
        earliest, latest, num_come = self._arrivals.get(call, (arrival, arrival, 0))
        earliest, latest, num_come = min(earliest, arrival), max(latest, arrival), num_come + 1
        (first_ps, first), (last_ps, last) = earliest, latest
        if last_ps - first_ps > self._limit_ps:
            if call.lane is None or not self._from_wait():
                raise self._too_late(call, first, last, last_ps - first_ps)
            self._late[call] = (last_ps, last)
        if num_come == (len(self._hosts) if call.lane is None else 2):
            self._arrivals.pop(call, None)
        else:
            self._arrivals[call] = earliest, latest, num_come

    def waited(self, rank: int, since_ps: int, call: Call) -> None:
        """Note that *rank*, within the group, has waited for *call* since *since_ps*, and it is complete.

        Raises:
            CollectiveTimeoutError: the other rank of a message came too late for that.
        """
        last_ps, last = self._late.get(call, (0, 0))
        if last_ps - since_ps > self._limit_ps:
            raise self._too_late(call, self._hosts[rank], last, last_ps - since_ps)

    def _too_late(self, call: Call, first: int, last: int, late_ps: int) -> CollectiveTimeoutError:
        remark = "" if self._pauses is None else self._pauses.remark(last)
        return too_late(call.at(self._hosts), first, last, late_ps, self._limit_ps, remark)


class Pauses(OfCluster):
    """The latest long pause of each rank, in words, for reports."""

    def __init__(self) -> None:
        self._of_rank: dict[int, str] = {}

    def note(self, rank: int, duration_ps: int) -> None:
        """Note that *rank*, whose thread this is, sleeps, if that is long."""
        if duration_ps >= _LONG_PS:
            place = current_place()
            self._of_rank[rank] = f"after it slept {format_time(duration_ps)}" + (
                f" at {place}" if place else ""
            )

    def remark(self, rank: int) -> str:
        """Return what to add to a line about *rank*."""
        return f", {self._of_rank[rank]}" if rank in self._of_rank else ""
