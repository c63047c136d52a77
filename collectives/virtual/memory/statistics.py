"""Statistics of an allocator, with the names and the meaning that ``torch.cuda.memory_stats`` gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ALL, SMALL, LARGE = "all", "small_pool", "large_pool"


class Statistic:
    """A quantity that rises and falls: its value, its peak, and all rises and all falls added up."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def reset_peak(self) -> None:
        """Begin the peak again from the value."""
        self.peak = self.current

    def reset_sums(self) -> None:
        """Begin the sums of rises and falls again."""
        self.allocated = self.freed = 0

    def to_json(self) -> dict[str, int]:
        """Return the four numbers by torch's names."""
        return {
            "current": self.current,
            "peak": self.peak,
            "allocated": self.allocated,
            "freed": self.freed,
        }


class ByPool(Mapping[str, Statistic]):
    """A quantity of the small pool, of the large pool and of both."""

    __slots__ = ("_both", "_large", "_small")

    def __init__(self) -> None:
        self._both, self._small, self._large = Statistic(), Statistic(), Statistic()

    def rise(self, is_small: bool, amount: int) -> None:
        """Add *amount* to a pool, and to both."""
        for statistic in (self._both, self._small if is_small else self._large):
            statistic.current += amount
            statistic.allocated += amount
            if statistic.current > statistic.peak:
                statistic.peak = statistic.current

    def fall(self, is_small: bool, amount: int) -> None:
        """Take *amount* from a pool, and from both."""
        for statistic in (self._both, self._small if is_small else self._large):
            statistic.current -= amount
            statistic.freed += amount

    @property
    def total(self) -> Statistic:
        """That of both pools."""
        return self._both

    def __getitem__(self, name: str) -> Statistic:
        return {ALL: self._both, SMALL: self._small, LARGE: self._large}[name]

    def __iter__(self) -> Iterator[str]:
        return iter((ALL, SMALL, LARGE))

    def __len__(self) -> int:
        return 3


class Statistics:
    """All statistics of an allocator.

    Attributes:
        allocation: number of blocks that tensors hold, and `allocated_bytes` of them, as they were rounded.
        requested_bytes: of the same blocks, as they were asked for.
        active: blocks that tensors hold, or a stream may still use; and `active_bytes`.
        segment: pieces that the device has given, and `reserved_bytes` of them.
        inactive_split: free blocks that cannot be given back, because a neighbour is held; and their bytes.
        num_alloc_retries: how often the cache was given back because the device had no more.
        num_ooms: how often that was not enough.
    """

    def __init__(self) -> None:
        self.allocation, self.allocated_bytes, self.requested_bytes = ByPool(), ByPool(), ByPool()
        self.active, self.active_bytes = ByPool(), ByPool()
        self.segment, self.reserved_bytes = ByPool(), ByPool()
        self.inactive_split, self.inactive_split_bytes = ByPool(), ByPool()
        self.num_alloc_retries = self.num_ooms = 0
        self.num_device_alloc = self.num_device_free = 0

    def reset_peaks(self) -> None:
        """Begin all peaks again."""
        for by_pool in self._by_pool().values():
            for statistic in by_pool.values():
                statistic.reset_peak()

    def reset_sums(self) -> None:
        """Begin all sums and counts again."""
        for by_pool in self._by_pool().values():
            for statistic in by_pool.values():
                statistic.reset_sums()
        self.num_alloc_retries = self.num_ooms = self.num_device_alloc = self.num_device_free = 0

    def to_json(self) -> dict[str, Any]:
        """Return what ``torch.cuda.memory_stats_as_nested_dict`` returns; what is not modelled is 0."""
        nothing = Statistic().to_json()
        return {
            **{
                name: {pool: statistic.to_json() for pool, statistic in by_pool.items()}
                for name, by_pool in self._by_pool().items()
            },
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "num_sync_all_streams": self.num_alloc_retries,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_oom_rejections": 0,
            "max_split_size": -1,
            "oversize_allocations": nothing,
            "oversize_segments": nothing,
            "reserved_bytes_by_private_pools": {},
        }

    def _by_pool(self) -> dict[str, ByPool]:
        return {name: value for name, value in vars(self).items() if isinstance(value, ByPool)}
