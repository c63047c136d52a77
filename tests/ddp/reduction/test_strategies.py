"""Promises of overlap strategies: of their plans, and of simulated steps."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.timing import simulate
from ddp import Profile, simulate_step
from ddp.reduction.bucketing import MIB
from ddp.reduction.overlap import STRATEGIES, resolve_strategy
from ddp.reduction.strategies.mg_wfbp import merge
from ddp.reduction.strategies.plan import Layout, LinearCost, PassTiming
from ddp.reduction.strategies.priority import launch_order, parts
from sim.topology import Topology
from tests.ddp.given import profile_of, profiles
from tests.given import switch as given_switch
from tests.sim.networks import networks

DIVISIBLE = 4 * 60
NAMES = [
    *STRATEGIES, "zero1:prefetch=True", "priority:partition_mb=0.1,credits=1", "accumulate:k=3,last=mg_wfbp",
]  # fmt: skip
LAST_OVERLAPPED = ["wait_free", "per_parameter", "mg_wfbp"]


def switch(num_ranks: int, bandwidth: str = "10Gbps") -> Topology:
    return given_switch(num_ranks, bandwidth, "5us")


CAPS = st.sampled_from([1e-6, 0.5, 2, 25])
GBPS = st.integers(10**8, 10**10)


@given(profiles(), networks(GBPS, max_ranks=6), CAPS, st.sampled_from(["ring", "tree", "naive"]))
@settings(max_examples=60)
def test_wait_free_is_never_slower_than_after_backward_with_the_same_buckets(
    profile, topology, cap, algorithm
):
    early, late = (
        simulate_step(profile, topology=topology, strategy=name, bucket_cap_mb=cap, algorithm=algorithm)
        for name in ("wait_free", "after_backward")
    )

    assert profile.compute_ps <= early.floor_ps <= early.time_ps <= late.time_ps
    assert [run.nbytes for run in early.buckets] == [run.nbytes for run in late.buckets]
    assert all(run.launched_ps == profile.compute_ps for run in late.buckets)
    complete = [run.complete_ps for run in early.buckets]
    assert [run.launched_ps for run in early.buckets] == [*accumulate(complete, max)]


@given(profiles(unit=DIVISIBLE), st.sampled_from([2, 3, 4, 5, 6]), CAPS)
@settings(max_examples=40)
def test_decoupling_never_loses_where_the_halves_take_no_longer_than_the_whole(profile, num_ranks, cap):
    topology = switch(num_ranks)
    after, dear, zero1 = (
        simulate_step(profile, topology=topology, strategy=name, bucket_cap_mb=cap).time_ps
        for name in ("after_backward", "dear", "zero1:prefetch=True")
    )

    assert dear <= after
    assert zero1 == dear


TINY = Profile.uniform(num_buckets=4, bucket_bytes=4 * 100, seconds_per_bucket=1e-6)
SMALL_STEPS = {"bucket_cap_mb": 1e-6, "algorithm": "recursive_doubling"}


@pytest.mark.parametrize(
    ("better", "worse", "num_ranks", "profile", "options"),
    [
        pytest.param(
            "wait_free", "dear", 4, profile_of([240], [0], forward_ms=0, backward_ms=1), {},
            id="room for the whole",
        ),
        pytest.param("after_backward", "dear", 16, TINY, SMALL_STEPS, id="halves are dearer than the whole"),
        pytest.param(
            "after_backward",
            "priority:partition_mb=0.1,credits=1",
            8,
            Profile.uniform(num_buckets=1, bucket_bytes=MIB, seconds_per_bucket=0.001),
            {},
            id="parts pay for latency",
        ),
    ],
)  # fmt: skip
def test_a_cleverer_strategy_loses_where(better, worse, num_ranks, profile, options):
    first, second = (
        simulate_step(profile, topology=switch(num_ranks), strategy=name, **options).time_ps
        for name in (better, worse)
    )

    assert profile.compute_ps <= first < second
    assert better != "wait_free" or first == profile.compute_ps


@given(profiles(), networks(GBPS, max_ranks=5), CAPS, st.sampled_from(NAMES))
@settings(max_examples=80)
def test_a_step_is_its_compute_and_the_waits_for_its_buckets(profile, topology, cap, name):
    step = simulate_step(profile, topology=topology, strategy=name, bucket_cap_mb=cap)

    strategy = resolve_strategy(name)
    assert step.compute_ps == profile.compute_ps * strategy.num_passes
    assert step.time_ps == step.compute_ps + sum(run.exposed_ps for run in step.buckets)
    assert 0 <= step.overlap_ratio <= 1
    assert step.floor_ps <= step.time_ps
    for run in step.buckets:
        assert run.complete_ps <= run.launched_ps <= run.start_ps <= run.end_ps
    waits = [span for span in step.trace.spans if span.track == "wait"]
    assert sum((span.end_ps or 0) - span.start_ps for span in waits) == step.time_ps - step.compute_ps
    assert [row["size_bytes"] for row in step.rows()] == [run.nbytes for run in step.buckets]


@given(profiles(), st.integers(1, 5), st.integers(1, 4), st.sampled_from(LAST_OVERLAPPED))
@settings(max_examples=20)
def test_accumulation_adds_passes_that_only_compute(profile, num_ranks, k, last):
    once = simulate_step(profile, topology=switch(num_ranks), strategy=last)
    more = simulate_step(profile, topology=switch(num_ranks), strategy=f"accumulate:k={k},last={last}")

    assert more.time_ps == (k - 1) * profile.compute_ps + once.time_ps


@given(profiles(), st.integers(2, 6))
@settings(max_examples=20)
def test_data_parallel_pays_a_reduction_and_a_broadcast_in_every_step(profile, num_ranks):
    topology = switch(num_ranks)
    reduce, broadcast = (
        simulate("tree", nbytes=profile.nbytes, topology=topology, collective=collective, itemsize=4).time_ps
        for collective in ("reduce", "broadcast")
    )

    step = simulate_step(profile, topology=topology, strategy="data_parallel")

    assert step.time_ps == profile.compute_ps + reduce + broadcast


def test_zero1_without_prefetching_waits_for_its_all_gathers():
    profile = Profile.uniform(num_buckets=2, bucket_bytes=MIB, seconds_per_bucket=0.1)
    gather = simulate("ring", nbytes=MIB, topology=switch(4), collective="all_gather", itemsize=4).time_ps
    scatter = simulate(
        "ring", nbytes=MIB, topology=switch(4), collective="reduce_scatter", itemsize=4
    ).time_ps

    step = simulate_step(profile, topology=switch(4), strategy="zero1", bucket_cap_mb=1)

    assert step.time_ps == profile.compute_ps + scatter + 2 * gather


def test_priority_lets_the_first_layer_overtake_and_hides_the_rest_in_the_next_forward_pass():
    profile = profile_of([MIB, 8 * MIB, 8 * MIB], [3, 2, 1], forward_ms=20)

    plain, priority = (
        simulate_step(profile, topology=switch(4), strategy=name, bucket_cap_mb=1)
        for name in ("wait_free", "priority:partition_mb=1,credits=2")
    )

    assert priority.time_ps < plain.time_ps
    first_layer = max(run.complete_ps for run in priority.buckets)
    place = [run.complete_ps for run in priority.buckets].index(first_layer)
    assert place < len(priority.buckets) / 2


@st.composite
def merges(draw: st.DrawFn) -> tuple[Layout, PassTiming]:
    sizes = draw(st.lists(st.integers(0, 50), min_size=1, max_size=7))
    ready = sorted(draw(st.integers(0, 200)) for _ in sizes)
    cost = LinearCost(draw(st.integers(0, 60)), 1000 * draw(st.integers(0, 3)))
    keys = [draw(st.sampled_from("ab")) for _ in sizes]
    return Layout(sizes, keys, (1,), range(len(sizes))), PassTiming(tuple(ready), cost)


def end_of(buckets: list[list[int]], layout: Layout, timing: PassTiming) -> int:
    end = 0
    for bucket in buckets:
        nbytes = sum(layout.nbytes[parameter] for parameter in bucket)
        end = max(end, timing.ready_ps[bucket[-1]]) + timing.cost.ps(nbytes)
    return end


@given(merges())
def test_merging_equals_the_best_of_all_ways_to_cut(case):
    layout, timing = case
    count = len(layout.nbytes)
    ways = []
    for cuts in range(2 ** (count - 1)):
        edges = [0, *(i for i in range(1, count) if cuts >> (i - 1) & 1), count]
        buckets = [list(range(begin, end)) for begin, end in pairwise(edges)]
        if all(len({layout.keys[parameter] for parameter in bucket}) == 1 for bucket in buckets):
            ways.append(end_of(buckets, layout, timing))

    merged = merge(range(count), layout, timing)

    assert [parameter for bucket in merged for parameter in bucket] == list(range(count))
    assert end_of(merged, layout, timing) == min(ways)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 12))
def test_parts_cover_every_byte_once_and_name_whom_they_touch(sizes, size):
    cut = parts(range(len(sizes)), 0, sizes, size)

    owner = [parameter for parameter, nbytes in enumerate(sizes) for _ in range(nbytes)]
    edges = [part.part for part in cut if part.part is not None]
    assert edges[0][0] == 0
    assert edges[-1][1] == len(owner)
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert {parameter for part in cut for parameter in part.parameters} == set(range(len(sizes)))
    for part, (begin, end) in zip(cut, edges, strict=True):
        assert end - begin <= size
        assert {*owner[begin:end]} <= {*part.parameters}
        assert all(sizes[parameter] == 0 for parameter in {*part.parameters} - {*owner[begin:end]})


@given(st.data(), st.integers(1, 8), st.integers(1, 4))
def test_the_most_urgent_of_those_ready_is_launched(data, count, credits):
    ready = [data.draw(st.integers(0, 30)) for _ in range(count)]
    urgency = list(data.draw(st.permutations(range(count))))
    sizes = [data.draw(st.integers(0, 5)) for _ in range(count)]
    cost = LinearCost(3, 1000)

    order = launch_order(ready, urgency, sizes, cost, credits)

    assert sorted(order) == list(range(count))
    ends = []
    for place, part in enumerate(order):
        credit_ps = ends[place - credits] if place >= credits else 0
        left = order[place:]
        now = max(credit_ps, min(ready[other] for other in left))
        assert part == min((other for other in left if ready[other] <= now), key=urgency.__getitem__)
        ends.append(max([now, *ends[-1:]]) + cost.ps(sizes[part]))


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**9))
def test_a_line_of_costs_goes_through_its_points(latency_ps, per_byte_fs, nbytes):
    cost = LinearCost(latency_ps, per_byte_fs)
    small, large = 1000, 4_000_000

    fitted = LinearCost.through((small, cost.ps(small)), (large, cost.ps(large)))

    assert abs(fitted.ps(nbytes) - cost.ps(nbytes)) <= 2 + nbytes // 10**6


def test_before_anything_is_known_every_strategy_plans_torchs_buckets():
    layout = Layout([4, 8, 12], ["float32"] * 3, (2**62,))

    for strategy in STRATEGIES.values():
        plan = strategy.plan(layout)
        assert plan.buffers == ((0, 1, 2),)
