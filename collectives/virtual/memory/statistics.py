"""Statistics of an allocator, with the names and the meaning that ``torch.cuda.memory_stats`` gives them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

ALL, SMALL, LARGE = "all", "small_pool", "large_pool"


@dataclass(slots=True)
class Statistic:
    """A quantity that rises and falls: its value, its peak, and all rises and all falls added up."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


class ByPool(dict[str, Statistic]):
    """A quantity of the small pool, of the large pool, and of both, which is also `total`."""

    def __init__(self) -> None:
        super().__init__({name: Statistic() for name in (ALL, SMALL, LARGE)})
        self.total = self[ALL]

    def rise(self, is_small: bool, amount: int) -> None:
        """Add *amount* to a pool, and to both."""
        for statistic in (self.total, self[SMALL if is_small else LARGE]):
            statistic.current += amount
            statistic.allocated += amount
            if statistic.current > statistic.peak:
                statistic.peak = statistic.current

    def fall(self, is_small: bool, amount: int) -> None:
        """Take *amount* from a pool, and from both."""
        for statistic in (self.total, self[SMALL if is_small else LARGE]):
            statistic.current -= amount
            statistic.freed += amount


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
                statistic.peak = statistic.current

    def reset_sums(self) -> None:
        """Begin all sums and counts again."""
        for by_pool in self._by_pool().values():
            for statistic in by_pool.values():
                statistic.allocated = statistic.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_device_alloc = self.num_device_free = 0

    def to_json(self) -> dict[str, Any]:
        """Return what ``torch.cuda.memory_stats_as_nested_dict`` returns; what is not modelled is 0."""
        nothing = asdict(Statistic())
        return {
            **{
                name: {pool: asdict(statistic) for pool, statistic in by_pool.items()}
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
