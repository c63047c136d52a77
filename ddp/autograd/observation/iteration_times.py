"""Iteration times for logging data, with torch's keys.

Times are in nanoseconds of the rank's clock, so of virtual time where that is.  They are taken in
the first ten iterations, and then in one of 100; torch's own keys for averages are means over these.
Times are told of the latest of these iterations that was over when a forward pass began, and ``iteration``
is its number, as in torch; after an error it is the number of the iteration that it ended.  A time of 0
says that it was not taken: one that was taken is at least 1, also where virtual time stands still.

Source: torch/csrc/distributed/c10d/logger.cpp (set_runtime_stats_and_log).
"""

from __future__ import annotations

from collections.abc import Callable

NUM_FIRST = 10
DEFAULT_RATE = 100
SPANS = {
    "forward_compute_time": ("forward_began", "backward_began"),
    "backward_compute_time": ("backward_began", "last_gradient"),
    "backward_comm_time": ("first_launch", "last_reduced"),
    "backward_compute_comm_overlap_time": ("first_launch", "last_gradient"),
}


class IterationTimes:
    """Stamps of the iterations that are looked at.

    Args:
        now_ps: the rank's clock.

    Attributes:
        rate: times are taken in one of so many iterations, after the first ten.
        active: whether they are taken in this iteration.
    """

    def __init__(self, now_ps: Callable[[], int]) -> None:
        self._now_ps = now_ps
        self._number = 0
        self._stamps: dict[str, int] = {}
        self._earlier: tuple[int, dict[str, int]] = (0, {})
        self._totals = dict.fromkeys(SPANS, 0)
        self._num_totalled = 0
        self.rate = DEFAULT_RATE
        self.active = True

    def begin(self) -> None:
        """Start an iteration at its forward pass."""
        if self._has_ended:
            self._earlier = (self._number, self._stamps)
            self._totals = {name: total + _length(name, self._stamps) for name, total in self._totals.items()}
            self._num_totalled += 1
        self._number += 1
        self.active = self._number <= NUM_FIRST or self._number % self.rate == 0
        self._stamps = {"forward_began": self._now_ps()} if self.active else {}

    def first(self, name: str) -> None:
        """Take a stamp, unless there is one."""
        if self.active and name not in self._stamps:
            self._stamps[name] = self._now_ps()

    def last(self, name: str) -> None:
        """Take a stamp that replaces an earlier one."""
        if self.active:
            self._stamps[name] = self._now_ps()

    def rows(self) -> dict[str, int]:
        """Return the times, and of which iteration they are, under torch's keys."""
        number, stamps = self._earlier
        num = max(1, self._num_totalled)
        rows = {"iteration": number}
        rows |= {
            f"avg_{name}": _nanoseconds(total // num, self._num_totalled > 0)
            for name, total in self._totals.items()
        }
        rows |= {name: _nanoseconds(_length(name, stamps), bool(stamps)) for name in SPANS}
        for name in ("forward_compute_time", "backward_compute_time", "backward_comm_time"):
            start, end = SPANS[name]
            rows[f"{name}_start"] = stamps.get(start, 0) // 1000
            rows[f"{name}_end"] = stamps.get(end, 0) // 1000
        del rows["forward_compute_time_end"]
        return rows

    @property
    def number(self) -> int:
        """Number of the iteration that runs, from 1; 0: none has begun."""
        return self._number

    @property
    def _has_ended(self) -> bool:
        return self._stamps.keys() >= {"forward_began", "last_gradient", "last_reduced"}


def _nanoseconds(length_ps: int, was_taken: bool) -> int:
    return max(int(was_taken), length_ps // 1000)


def _length(name: str, stamps: dict[str, int]) -> int:
    start, end = (stamps.get(stamp, 0) for stamp in SPANS[name])
    return max(0, end - start) if start else 0
