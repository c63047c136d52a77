"""Report of a device's memory: the most that a rank has held, what it consists of, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectives.virtual.memory.tracker import Memory

_GIB = 2**30


@dataclass(frozen=True)
class MemoryReport:
    """What a rank's device has held at most.

    Attributes:
        rank: which needs most, the lowest of those that need as much.
        peak_bytes: that tensors held at once, rounded as the allocator does; where the memory did not suffice
            and the script got an error, what was held and asked for then.
        reserved_bytes: that the allocator has taken from the device at most.
        by_category: what the peak consists of, in bytes (`collectives.virtual.memory.held_storage.Category`).
        by_module: the same by the full name of the module for which it was made, most first.
        at: when the peak was, or when the memory did not suffice, in words.
        fits: whether the device has had room for all of it; an error of which the script made something else
            does not count.
        limit_bytes: that the device has; None where that is not known.
    """

    rank: int
    peak_bytes: int
    reserved_bytes: int
    by_category: Mapping[str, int]
    by_module: Mapping[str, int]
    at: str
    fits: bool
    limit_bytes: int | None

    @classmethod
    def of(cls, memories: Mapping[int, Memory], has_ended: bool = False) -> MemoryReport | None:
        """Return that of the rank that needs most; None where no memory is modelled.

        Args:
            memories: of the ranks.
            has_ended: an error has ended the run, be it that the memory did not suffice.
        """
        reports = (cls._of_rank(rank, memories[rank], has_ended) for rank in sorted(memories))
        return max(reports, key=lambda report: (not report.fits, report.peak_bytes), default=None)

    @classmethod
    def _of_rank(cls, rank: int, memory: Memory, has_ended: bool) -> MemoryReport:
        overflow = memory.overflow
        reserved = memory.allocator.statistics.reserved_bytes.total.peak
        if overflow is not None and memory.raises and has_ended:
            held = (overflow.nbytes, reserved, overflow.by_category, overflow.by_module, str(overflow.moment))
            return cls(rank, *held, fits=False, limit_bytes=memory.capacity)

        held = (memory.peak.nbytes, reserved, *memory.held_at_peak(), str(memory.peak.moment))
        return cls(rank, *held, fits=overflow is None or memory.raises, limit_bytes=memory.capacity)

    @property
    def text(self) -> str:
        """The verdict in words: ``does not fit: 97.30 of 80.00 GiB at iteration 1, forward of layers.3``."""
        sizes = [size for size in (self.peak_bytes, self.limit_bytes) if size is not None]
        is_small = min(sizes) < _GIB // 100
        unit, name = (2**20, "MiB") if is_small else (_GIB, "GiB")
        used = f"{self.peak_bytes / unit:.2f}"
        of = f" {name}" if self.limit_bytes is None else f" of {self.limit_bytes / unit:.2f} {name}"
        lost = self.reserved_bytes - self.peak_bytes
        if not self.fits and self.limit_bytes is not None and self.peak_bytes <= self.limit_bytes:
            of += f", and {lost / unit:.2f} {name} in pieces too small,"
        return f"{'' if self.fits else 'does not fit: '}{used}{of} at {self.at}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types; sizes are in bytes."""
        return {
            "rank": self.rank,
            "peak_bytes": self.peak_bytes,
            "reserved_bytes": self.reserved_bytes,
            "by_category": dict(self.by_category),
            "by_module": dict(self.by_module),
            "at": self.at,
            "fits": self.fits,
            "limit_bytes": self.limit_bytes,
        }
