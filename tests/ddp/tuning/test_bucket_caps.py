"""Caps: the list of distinct ones leaves none out, and any division has caps that give it."""

from hypothesis import given
from hypothesis import strategies as st

from ddp.reduction.bucketing import MIB, assign_buckets, bucket_limits
from ddp.tuning.bucket_caps import caps_for, distinct_caps, shortest_mb

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=12)


@given(SIZES, st.data())
def test_every_cap_gives_the_buckets_of_the_range_that_it_is_in(sizes, data):
    keys = [data.draw(st.sampled_from("ab")) for _ in sizes]
    order = data.draw(st.permutations(range(len(sizes))))
    ranges = distinct_caps(sizes, keys, order)

    for cap in range(1, sum(sizes) + 2):
        (own,) = [r for r in ranges if r.low <= cap and (r.high is None or cap <= r.high)]
        buckets = assign_buckets(sizes, keys, (cap,), order)
        assert own.nbytes == tuple(sum(sizes[index] for index in bucket) for bucket in buckets)


@given(SIZES)
def test_no_two_ranges_of_caps_give_the_same_buckets(sizes):
    order = list(range(len(sizes)))
    ranges = distinct_caps(sizes, [0] * len(sizes), order)
    buckets = [assign_buckets(sizes, [0] * len(sizes), (r.low,), order) for r in ranges]

    assert all(buckets.count(bucket) == 1 for bucket in buckets)


@given(st.lists(st.integers(1, 9 * MIB), min_size=1, max_size=12), st.data())
def test_any_division_is_what_its_list_of_caps_gives(sizes, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes) - 1)))) if len(sizes) > 1 else []

    caps = caps_for(sizes, cuts)

    buckets = assign_buckets(sizes, [0] * len(sizes), bucket_limits(None, caps), list(range(len(sizes))))
    assert [bucket[0] for bucket in buckets] == [0, *cuts]
    assert len(caps) <= len(cuts) + 1


def test_caps_that_repeat_are_written_once():
    assert caps_for([MIB] * 9, [1, 3, 5, 7]) == (1, 2)
    assert caps_for([MIB] * 4, []) == (100,)


@given(st.integers(1, 10**10), st.integers(0, 10**9))
def test_the_shortest_number_of_mib_lies_in_its_range(low, width):
    assert low <= int(shortest_mb(low, low + width) * MIB) <= low + width


def test_round_numbers_are_preferred():
    assert shortest_mb(39 * MIB, 41 * MIB) == 40
    assert shortest_mb(24 * MIB + 1, 26 * MIB) == 25
    assert shortest_mb(1, None) == 100
    assert shortest_mb(MIB // 2, MIB // 2 + MIB // 8) == 0.5
