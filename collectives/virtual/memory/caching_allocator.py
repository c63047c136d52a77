"""Caching allocator of CUDA devices, without memory: which sizes are taken, cached, split and given back.

The rules are those of PyTorch (c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h):

* A request is rounded up to 512 bytes.  Up to 1 MiB it comes from the small pool, else from the large one;
  blocks belong to the stream that asked.
* The smallest cached block of that stream and pool that is large enough serves, the lowest address among
  equals.  What is left over is split off: in the small pool from 512 bytes on, in the large one above 1 MiB.
* Otherwise the device gives a segment: 2 MiB for small requests, 20 MiB for those below 10 MiB, else the
  request rounded up to 2 MiB.  With ``expandable_segments`` each stream and pool has one segment that grows
  by pages of 2 MiB (small) or 20 MiB, and every remainder from 512 bytes on is split off.
* A freed block merges with its free neighbours and is cached.  One that other streams have used, as
  ``record_stream`` says, is not reused before the host has waited for them.
* Where the device has no more, all cached segments of which nothing is held are given back, and the request
  is tried again.

Assumed: the device gives what it has, in any piece, and nothing but this allocator takes of it (a CUDA
context, libraries' workspaces and NCCL's buffers are not counted).  The limits on splitting, other roundings
and the garbage collection that PYTORCH_ALLOC_CONF may ask for are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from collectives.virtual.memory.pools import LARGE_SEGMENT, SMALL_SEGMENT, Block, Pool
from collectives.virtual.memory.statistics import Statistics

MIN_BLOCK = 512
SMALL_SIZE = 2**20
MIN_LARGE_REQUEST = 10 * 2**20
ROUND_LARGE = 2 * 2**20


class CachingAllocator:
    """The allocator of one device.

    Attributes:
        limit: bytes that the device has; None: without end.
        expandable: segments grow, as ``PYTORCH_ALLOC_CONF=expandable_segments:True`` has it; to be set before
            anything is allocated.
        statistics: what ``torch.cuda.memory_stats`` says.
    """

    def __init__(self, limit: int | None = None, expandable: bool = False) -> None:
        self.limit = limit
        self.statistics = Statistics()
        self.expandable = expandable
        self._pools: dict[tuple[Hashable, bool], Pool] = {}
        self._held: list[Block] = []
        self._next_address = 0

    @property
    def allocated(self) -> int:
        """Bytes that tensors hold."""
        return self.statistics.allocated_bytes.total.current

    @property
    def reserved(self) -> int:
        """Bytes taken from the device."""
        return self.statistics.reserved_bytes.total.current

    def allocate(
        self, nbytes: int, stream: Hashable = 0, overflow: Callable[[int], None] = lambda nbytes: None
    ) -> Block:
        """Return a block of at least *nbytes* > 0 bytes.

        Where only that helps, what is cached is given back first.  Where that does not help, *overflow* is
        called with *nbytes*; if it returns, the block lies beyond what the device has.
        """
        pool, size = self._pool(nbytes, stream), round_up(nbytes, MIN_BLOCK)
        block = pool.best(size)
        if block is None and not self._fits(pool, size):
            self.statistics.num_alloc_retries += 1
            self.release_cached()
            if not self._fits(pool, size):
                overflow(nbytes)
            block = pool.best(size)
        if block is not None:
            pool.remove(block)
            if block.is_split:
                self._change_inactive(block, -1)
        else:
            block = self._grow(pool, size) if self.expandable else self._segment(pool, size)

        self._split(block, size)
        block.requested = nbytes
        statistics, is_small = self.statistics, pool.is_small
        statistics.allocation.rise(is_small, 1)
        statistics.allocated_bytes.rise(is_small, block.size)
        statistics.requested_bytes.rise(is_small, nbytes)
        statistics.active.rise(is_small, 1)
        statistics.active_bytes.rise(is_small, block.size)

        return block

    def free(self, block: Block, is_in_use: bool = False) -> None:
        """Take a block back; one that another stream is still using is reused after `host_waited` only."""
        statistics, is_small = self.statistics, block.pool.is_small
        statistics.allocation.fall(is_small, 1)
        statistics.allocated_bytes.fall(is_small, block.size)
        statistics.requested_bytes.fall(is_small, block.requested)
        if is_in_use:
            self._held.append(block)
        else:
            self._cache(block)

    def host_waited(self) -> None:
        """Reuse from now on what other streams had been using: the host has waited for the device."""
        held, self._held = self._held, []
        for block in held:
            self._cache(block)

    def asked_of_device(self, nbytes: int, stream: Hashable = 0) -> int:
        """Return how many bytes the device is asked for where nothing cached serves a request."""
        return self._asked(self._pool(nbytes, stream), round_up(nbytes, MIN_BLOCK))

    def release_cached(self) -> None:
        """Give back to the device all that is cached and not a part of a segment that is held."""
        self.host_waited()
        for pool in self._pools.values():
            for block in pool.cached():
                if self.expandable:
                    self._unmap(pool, block)
                elif not block.is_split:
                    pool.remove(block)
                    self._change_reserved(pool, -1, block.size)

    def _pool(self, nbytes: int, stream: Hashable) -> Pool:
        key = (stream, nbytes <= SMALL_SIZE)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(*key)
        return pool

    def _fits(self, pool: Pool, size: int) -> bool:
        if self.limit is None:
            return True
        return self.reserved + self._asked(pool, size) <= self.limit

    def _asked(self, pool: Pool, size: int) -> int:
        return self._growth(pool, size) if self.expandable else segment_size(size)

    def _segment(self, pool: Pool, size: int) -> Block:
        """Return a new segment for a request of *size*."""
        block = Block(pool, self._next_address, segment_size(size))
        self._next_address += block.size
        self._change_reserved(pool, 1, block.size)
        return block

    def _growth(self, pool: Pool, size: int) -> int:
        end = pool.end
        at_end = end.size if end is not None and end.is_free else 0
        return round_up(size - at_end, pool.page)

    def _grow(self, pool: Pool, size: int) -> Block:
        """Return a block of at least *size* at the end of the pool's segment, which grows."""
        growth, end = self._growth(pool, size), pool.end
        self._change_reserved(pool, int(end is None), growth)
        if end is not None and end.is_free:
            pool.remove(end)
            if end.is_split:
                self._change_inactive(end, -1)
            end.size += growth
            return end

        address = round_up(self._next_address, pool.page) if end is None else end.address + end.size
        if end is None:
            self._next_address = address + 2**50
        pool.end = block = Block(pool, address, growth, before=end)
        if end is not None:
            end.after = block
        return block

    def _split(self, block: Block, size: int) -> None:
        """Cache what *block* has beyond *size*, where that is enough."""
        left = block.size - size
        pool = block.pool
        if left < MIN_BLOCK or (left <= SMALL_SIZE and not pool.is_small and not self.expandable):
            return

        rest = Block(pool, block.address + size, left, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        if pool.end is block:
            pool.end = rest
        block.after, block.size = rest, size
        pool.add(rest)
        self._change_inactive(rest, 1)

    def _cache(self, block: Block) -> None:
        """Merge a block with its free neighbours, and cache it."""
        pool = block.pool
        self.statistics.active.fall(pool.is_small, 1)
        self.statistics.active_bytes.fall(pool.is_small, block.size)

        before, after = block.before, block.after
        if before is not None and before.is_free:
            self._take(before)
            block.address, block.before = before.address, before.before
            block.size += before.size
            if block.before is not None:
                block.before.after = block
        if after is not None and after.is_free:
            self._take(after)
            block.after = after.after
            block.size += after.size
            if block.after is not None:
                block.after.before = block
            if pool.end is after:
                pool.end = block

        pool.add(block)
        if block.is_split:
            self._change_inactive(block, 1)

    def _take(self, block: Block) -> None:
        block.pool.remove(block)
        self._change_inactive(block, -1)

    def _unmap(self, pool: Pool, block: Block) -> None:
        """Give back the whole pages within a free block of a segment that grows; it is cut in two there."""
        begin = round_up(block.address, pool.page)
        end = (block.address + block.size) // pool.page * pool.page
        if end <= begin:
            return

        pool.remove(block)
        if block.is_split:
            self._change_inactive(block, -1)
        self._change_reserved(pool, 0, begin - end)
        before, after = block.before, block.after
        if before is not None:
            before.after = None
        if after is not None:
            after.before = None
        for address, size, left, right in (
            (block.address, begin - block.address, before, None),
            (end, block.address + block.size - end, None, after),
        ):
            if not size:
                continue
            rest = Block(pool, address, size, before=left, after=right)
            if left is not None:
                left.after = rest
            if right is not None:
                right.before = rest
            pool.add(rest)
            self._change_inactive(rest, 1)
        if pool.end is block:
            pool.end = None

    def _change_inactive(self, block: Block, sign: int) -> None:
        if self.expandable:
            return
        number, nbytes = self.statistics.inactive_split, self.statistics.inactive_split_bytes
        for quantity, amount in ((number, 1), (nbytes, block.size)):
            (quantity.rise if sign > 0 else quantity.fall)(block.pool.is_small, amount)

    def _change_reserved(self, pool: Pool, segments: int, nbytes: int) -> None:
        statistics = self.statistics
        if nbytes > 0 and segments >= 0:
            statistics.num_device_alloc += 1
            statistics.segment.rise(pool.is_small, segments)
            statistics.reserved_bytes.rise(pool.is_small, nbytes)
        else:
            statistics.num_device_free += 1
            statistics.segment.fall(pool.is_small, -segments)
            statistics.reserved_bytes.fall(pool.is_small, abs(nbytes))


def segment_size(size: int) -> int:
    """Return how large a segment the device gives for a request of *size* bytes, in bytes."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    return LARGE_SEGMENT if size < MIN_LARGE_REQUEST else round_up(size, ROUND_LARGE)


def round_up(size: int, to: int) -> int:
    """Return the least multiple of *to* that is not below *size*."""
    return -(-size // to) * to
