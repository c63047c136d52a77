"""The caching allocator: hand-made cases by the rules of CUDA's, and invariants over random programs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.memory.caching_allocator import CachingAllocator, segment_size

KIB, MIB = 2**10, 2**20


@pytest.fixture
def allocator() -> CachingAllocator:
    return CachingAllocator()


def test_sizes_are_rounded_to_512_bytes(allocator):
    allocator.allocate(1)
    allocator.allocate(513)

    assert allocator.allocated == 512 + 1024
    assert allocator.statistics.requested_bytes.total.current == 514


def test_segments_have_the_sizes_of_cuda():
    assert segment_size(MIB) == 2 * MIB
    assert segment_size(MIB + 512) == 20 * MIB
    assert segment_size(10 * MIB - 512) == 20 * MIB
    assert segment_size(10 * MIB) == 10 * MIB
    assert segment_size(11 * MIB) == 12 * MIB


def test_small_requests_share_a_segment_of_2_mib(allocator):
    for _ in range(2):
        allocator.allocate(MIB)
    assert allocator.reserved == 2 * MIB
    allocator.allocate(512)

    assert allocator.reserved == 4 * MIB
    assert allocator.statistics.segment["small_pool"].current == 2


def test_a_large_block_is_not_split_for_less_than_a_mebibyte(allocator):
    block = allocator.allocate(11 * MIB + 1)

    assert block.size == 12 * MIB == allocator.allocated == allocator.reserved


def test_the_smallest_cached_block_that_is_large_enough_serves(allocator):
    large, small = allocator.allocate(64 * MIB), allocator.allocate(32 * MIB)
    allocator.free(large)
    allocator.free(small)

    block = allocator.allocate(30 * MIB)

    assert block.address == small.address
    assert allocator.reserved == 96 * MIB
    assert allocator.statistics.inactive_split_bytes.total.current == 2 * MIB


def test_neighbours_that_are_free_become_one_block(allocator):
    blocks = [allocator.allocate(4 * MIB) for _ in range(5)]
    for number in (1, 3, 2):
        allocator.free(blocks[number])

    block = allocator.allocate(12 * MIB)

    assert block.address == blocks[1].address
    assert allocator.reserved == 20 * MIB


def test_a_stream_does_not_get_what_another_has_freed(allocator):
    allocator.free(allocator.allocate(20 * MIB, stream=0))

    allocator.allocate(20 * MIB, stream=1)

    assert allocator.reserved == 40 * MIB


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


def test_a_segment_in_pieces_is_not_given_back(allocator):
    blocks = [allocator.allocate(4 * MIB) for _ in range(5)]
    allocator.free(blocks[0])

    allocator.release_cached()

    assert allocator.reserved == 20 * MIB


def test_expandable_segments_leave_no_piece_behind():
    plain, expandable = CachingAllocator(), CachingAllocator()
    expandable.expandable = True

    for allocator in (plain, expandable):
        for size in (40, 41, 42, 43):
            allocator.free(allocator.allocate(size * MIB))

    assert plain.reserved == (40 + 42 + 44) * MIB  # 41 goes into no 40, and 43 into no 42
    assert expandable.reserved == 60 * MIB  # 43 rounded up to pages of 20 MiB


def test_pages_within_a_free_block_of_an_expandable_segment_are_released(allocator):
    allocator.expandable = True
    blocks = [allocator.allocate(50 * MIB) for _ in range(3)]
    allocator.free(blocks[1])  # of 50 to 100 MiB the pages from 60 to 100

    allocator.release_cached()

    assert allocator.reserved == 160 * MIB - 40 * MIB - 0
    assert allocator.allocated == 100 * MIB


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
