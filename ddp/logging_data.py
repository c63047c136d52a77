"""What torch's ``_get_ddp_logging_data`` tells, with its keys: settings, buckets, times.

Times are in nanoseconds of the rank's clock, so of virtual time where that is.  They are taken in
the first ten iterations, and then in one of 100; torch's own keys for averages are means over these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

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
    """

    def __init__(self, now_ps: Callable[[], int]) -> None:
        self._now_ps = now_ps
        self._stamps: dict[str, int] = {}
        self._totals = dict.fromkeys(SPANS, 0)
        self._num_looked_at = 0
        self.iteration = 0
        self.rate = DEFAULT_RATE
        self.active = True

    def begin(self) -> None:
        """Start an iteration at its forward pass."""
        if self.active and self._stamps.keys() >= {"forward_began", "last_gradient", "last_reduced"}:
            self._num_looked_at += 1
            for name, total in self._totals.items():
                self._totals[name] = total + self._length(name)
        self.iteration += 1
        self.active = self.iteration <= NUM_FIRST or self.iteration % self.rate == 0
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
        """Return the times, under torch's keys."""
        num = max(1, self._num_looked_at)
        rows = {f"avg_{name}": total // num // 1000 for name, total in self._totals.items()}
        rows |= {name: self._length(name) // 1000 for name in SPANS}
        for name in ("forward_compute_time", "backward_compute_time", "backward_comm_time"):
            start, end = SPANS[name]
            rows[f"{name}_start"] = self._stamps.get(start, 0) // 1000
            rows[f"{name}_end"] = self._stamps.get(end, 0) // 1000
        del rows["forward_compute_time_end"]
        return rows

    def _length(self, name: str) -> int:
        start, end = (self._stamps.get(stamp, 0) for stamp in SPANS[name])
        return max(0, end - start) if start else 0


def environment() -> dict[str, str]:
    """Return what torch logs of the environment."""
    return {
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES", "N/A"),
        "master_addr": os.environ.get("MASTER_ADDR", "N/A"),
        "master_port": os.environ.get("MASTER_PORT", "N/A"),
        "torch_distributed_debug": os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF"),
    }


def joined(numbers: Any) -> str:
    """Return numbers as torch writes them."""
    return ", ".join(map(str, numbers))
