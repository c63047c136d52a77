"""The caching allocator: hand-made cases by the rules of CUDA's, and invariants over random programs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.memory.caching_allocator import CachingAllocator

KIB, MIB = 2**10, 2**20


@pytest.fixture
def allocator() -> CachingAllocator:
    return CachingAllocator()


@pytest.mark.parametrize(
    "asked_size_segment",
    [
        (1, 512, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB), (MIB + 512, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # for less than a mebibyte a large block is not split
    ],
)  # fmt: skip
def test_sizes_are_rounded_and_segments_have_those_of_cuda(allocator, asked_size_segment):
    nbytes, size, segment = asked_size_segment

    block = allocator.allocate(nbytes)

    assert block.size == allocator.allocated == size
    assert allocator.reserved == segment
    assert allocator.statistics.requested_bytes.total.current == nbytes


@pytest.mark.parametrize(
    ("sizes", "freed", "size", "stream", "reused", "reserved"),
    [
        ([64, 32], [0, 1], 30, 0, 1, 96),  # the smallest that is large enough
        ([4] * 5, [1, 3, 2], 12, 0, 1, 20),  # neighbours that are free become one
        ([20], [0], 20, 1, None, 40),  # a stream does not get what another has freed
        ([1], [], 1, 0, None, 2), ([1, 1], [], 1, 0, None, 4),  # small requests share a segment of 2 MiB
    ],
)  # fmt: skip
def test_what_is_cached_serves_before_the_device_is_asked(
    allocator, sizes, freed, size, stream, reused, reserved
):
    blocks = [allocator.allocate(own * MIB) for own in sizes]
    for number in freed:
        allocator.free(blocks[number])
    left = [block.address for number, block in enumerate(blocks) if number not in freed]

    block = allocator.allocate(size * MIB, stream)

    assert block.address not in left
    assert reused is None or block.address == blocks[reused].address
    assert allocator.reserved == reserved * MIB


def test_what_is_left_of_a_block_is_counted_as_a_split_one_and_segments_by_their_pool(allocator):
    allocator.free(allocator.allocate(32 * MIB))
    for size in (30 * MIB, 512):
        allocator.allocate(size)

    assert allocator.statistics.inactive_split_bytes["large_pool"].current == 2 * MIB
    assert allocator.statistics.segment["small_pool"].current == 1


@pytest.mark.parametrize(
    ("expandable", "sizes", "freed", "reserved"),
    [
        (False, [20], 0, 0), (False, [4] * 5, 0, 20),  # a segment in pieces is kept
        (True, [50] * 3, 1, 160 - 40),  # of 50 to 100 MiB the pages from 60 to 100
    ],
)  # fmt: skip
def test_of_what_is_cached_whole_segments_and_pages_are_given_back(
    allocator, expandable, sizes, freed, reserved
):
    allocator.expandable = expandable
    blocks = [allocator.allocate(size * MIB) for size in sizes]
    allocator.free(blocks.pop(freed))

    allocator.release_cached()

    assert allocator.reserved == reserved * MIB
    assert allocator.allocated == sum(block.size for block in blocks)


def test_what_another_stream_uses_is_reused_once_the_host_has_waited(allocator):
    allocator.free(allocator.allocate(20 * MIB), is_in_use=True)

    assert allocator.allocated == 0
    assert allocator.statistics.active_bytes.total.current == 20 * MIB
    other = allocator.allocate(20 * MIB)
    assert allocator.reserved == 40 * MIB
    allocator.free(other)
    allocator.host_waited()
    allocator.allocate(20 * MIB)
    allocator.allocate(20 * MIB)

    assert allocator.reserved == 40 * MIB


def test_the_cache_is_given_back_before_memory_does_not_suffice(allocator):
    allocator.limit = 100 * MIB
    allocator.free(allocator.allocate(60 * MIB))
    held = allocator.allocate(10 * MIB)

    def refuse(nbytes):
        raise MemoryError

    with pytest.raises(MemoryError):
        allocator.allocate(90 * MIB, overflow=refuse)
    allocator.free(held)
    assert allocator.allocate(90 * MIB, overflow=refuse).size == 90 * MIB

    assert allocator.reserved == 90 * MIB
    assert allocator.statistics.num_alloc_retries == 2


def test_expandable_segments_leave_no_piece_behind():
    plain, expandable = CachingAllocator(), CachingAllocator()
    expandable.expandable = True

    for allocator in (plain, expandable):
        for size in (40, 41, 42, 43):
            allocator.free(allocator.allocate(size * MIB))

    assert plain.reserved == (40 + 42 + 44) * MIB  # 41 goes into no 40, and 43 into no 42
    assert expandable.reserved == 60 * MIB  # 43 rounded up to pages of 20 MiB


SIZES = st.one_of(st.integers(1, 3 * KIB), st.integers(1, 3 * MIB), st.integers(1, 60 * MIB))
STEPS = st.lists(st.tuples(SIZES, st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=60)


@given(STEPS, st.booleans())
def test_blocks_never_overlap_and_statistics_add_up(steps, expandable):
    allocator = CachingAllocator()
    allocator.expandable = expandable
    held = []

    for size, stream, action, is_in_use in steps:
        if action < 3 or not held:
            held.append(allocator.allocate(size, stream))
        elif action < 5:
            allocator.free(held.pop(size % len(held)), is_in_use)
        elif is_in_use:
            allocator.host_waited()
        else:
            allocator.release_cached()

        ranges = sorted((block.address, block.address + block.size) for block in held)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ranges))
        assert allocator.allocated == sum(block.size for block in held)
        assert allocator.allocated <= allocator.statistics.active_bytes.total.current <= allocator.reserved
        assert all(block.requested <= block.size for block in held)

    for block in held:
        allocator.free(block)
    allocator.release_cached()
    assert allocator.allocated == allocator.reserved == 0
    assert allocator.statistics.inactive_split_bytes.total.current == 0
