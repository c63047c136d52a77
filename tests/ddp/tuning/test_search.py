"""Tuning: never worse than the default, the best of all where few choices exist, and what torch then does."""

import copy
from itertools import combinations, pairwise

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from collectives import Assumptions, NotSupportedError
from ddp import Profile, simulate_step
from ddp.reduction.bucketing import MIB, assign_buckets, bucket_limits
from ddp.reduction.overlap import STRATEGIES as STRATEGIES_THAT_SHIP
from ddp.tuning.bucket_caps import caps_for, distinct_caps, shortest_mb
from ddp.tuning.search import Search
from ddp.tuning.trials import Trial, Tuning
from sim import Topology
from tests.ddp.given import profile_of, profiles

STRATEGIES = ("wait_free", "after_backward")


@st.composite
def switches(draw: st.DrawFn) -> Topology:
    return Topology.switch(
        num_ranks=draw(st.sampled_from((2, 3, 8))),
        bandwidth=draw(st.sampled_from(("1Gbps", "25Gbps", "400Gbps"))),
        latency=draw(st.sampled_from(("1us", "200us"))),
    )


def tune(profile: Profile, topology: Topology, **options) -> Tuning:
    return Search(profile, topology=topology, **options).run()


def simulated(profile: Profile, topology: Topology, trial: Trial, **counted) -> int:
    own = trial.options
    return simulate_step(
        profile,
        topology=topology,
        strategy=own.strategy,
        algorithm=own.algorithm,
        bucket_cap_mb=own.bucket_cap_mb,
        bucket_cap_mb_list=own.bucket_cap_mb_list,
        **counted,
    ).time_ps


def test_a_search_counts_what_a_step_counts():
    profile = Profile.uniform(num_buckets=3, bucket_bytes=MIB, seconds_per_bucket=0.001)
    topology = Topology.switch(num_ranks=8, bandwidth="100Gbps", latency="2us")
    counted = {"overhead": "50us", "reduction_bandwidth": "5GB/s"}

    found = tune(profile, topology, assumptions=Assumptions.ideal(**counted))

    assert simulated(profile, topology, found.best, **counted) == found.best.time_ps <= found.default.time_ps
    assert simulated(profile, topology, found.best) < found.best.time_ps


@pytest.mark.costly
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(profiles(most=12, kinds=("float32", "float64")), switches(), st.sampled_from((1, 4, 128)))
def test_what_is_found_is_never_worse_than_the_default(profile, topology, max_exact):
    found = tune(profile, topology, strategies=STRATEGIES, max_exact=max_exact, max_descent=8)

    default = simulate_step(profile, topology=topology, bucket_cap_mb=None).time_ps
    assert found.default.time_ps == default
    assert found.best.time_ps <= found.torch.time_ps <= found.one_cap().time_ps <= default
    assert simulated(profile, topology, found.best) == found.best.time_ps
    assert simulated(profile, topology, found.torch) == found.torch.time_ps


@pytest.mark.costly
@settings(max_examples=settings.default.max_examples // 8, deadline=None)
@given(profiles(most=5, least=1), switches())
def test_on_small_profiles_the_best_is_that_of_all_divisions_strategies_and_algorithms(profile, topology):
    algorithms = ("ring", "tree")
    found = tune(profile, topology, strategies=STRATEGIES, algorithms=algorithms)

    sizes = [profile.gradients[index].nbytes for index in profile.ready_order()]
    positions = range(1, len(sizes))
    lists = [caps_for(sizes, cuts) for n in range(len(sizes)) for cuts in combinations(positions, n)]
    times = [
        simulate_step(
            profile, topology=topology, strategy=strategy, algorithm=algorithm, bucket_cap_mb_list=caps
        ).time_ps
        for strategy in STRATEGIES
        for algorithm in algorithms
        for caps in lists
    ]
    assert found.best.time_ps == min(times)


def test_every_cap_on_a_plateau_gives_its_step():
    profile = profile_of([MIB, 3 * MIB, 2 * MIB, MIB, 5 * MIB, MIB // 2], [6, 5, 4, 3, 2, 1])
    topology = Topology.switch(num_ranks=8, bandwidth="25Gbps", latency="300us")

    found = tune(profile, topology)

    points, curve = found.plateaus("ring", "wait_free"), found.curve("ring", "wait_free")
    gradients = profile.gradients
    ranges = distinct_caps([g.nbytes for g in gradients], [0] * len(gradients), profile.ready_order())
    times = [simulate_step(profile, topology=topology, bucket_cap_mb=r.cap_mb).time_ps for r in ranges]
    assert [trial.time_ps for _, trial in curve] == times
    assert len(curve) > 1
    assert [trial for _, trial in points] == [trial for _, trial in curve for _ in ("from", "to")]
    for cap, trial in points:
        assert simulate_step(profile, topology=topology, bucket_cap_mb=cap).time_ps == trial.time_ps
    assert [cap for cap, _ in points] == sorted(cap for cap, _ in points)


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(profiles(most=9), switches())
def test_a_search_is_repeated_exactly(profile, topology):
    options = {"strategies": STRATEGIES, "max_exact": 4, "max_descent": 10}

    assert tune(profile, topology, **options) == tune(profile, topology, **options)


def test_a_search_that_is_interrupted_keeps_the_best_so_far():
    def interrupt(trial):
        seen.append(trial)
        if len(seen) == 5:
            raise KeyboardInterrupt

    seen = []
    profile = profile_of([MIB] * 8, list(range(8)))
    search = Search(
        profile, topology=Topology.switch(num_ranks=4, bandwidth="10Gbps", latency="50us"), advance=interrupt
    )
    assert not search.started

    with pytest.raises(KeyboardInterrupt):
        search.run()

    found = search.result()
    assert not found.complete
    assert found.trials == tuple(seen)
    assert found.best.time_ps == min(trial.time_ps for trial in seen)


def test_an_algorithm_that_refuses_the_ranks_is_left_out_with_its_reason():
    profile = Profile.uniform(num_buckets=2, bucket_bytes=MIB, seconds_per_bucket=0.001)
    topology = Topology.switch(num_ranks=6, bandwidth="10Gbps", latency="50us")

    found = tune(profile, topology, algorithms=("ring", "swing:shape=2x3"))

    ((algorithm, strategy, reason),) = found.refused
    assert (algorithm, strategy) == ("swing:shape=2x3", "wait_free")
    assert reason
    with pytest.raises(NotSupportedError):
        tune(profile, topology, algorithms=("swing:shape=2x3",))


@pytest.fixture
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("by_list", [False, True])
def test_stock_ddp_builds_the_buckets_that_were_found(one_rank, by_list):
    widths = [300, 200, 400, 100, 250, 300]
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    sizes = [layer.weight.numel() for layer in layers]
    profile = profile_of([4 * size for size in sizes], range(len(sizes), 0, -1))
    found = tune(profile, Topology.switch(num_ranks=8, bandwidth="1Gbps", latency="300us"))
    trials = [t for t in found.trials if bool(t.options.bucket_cap_mb_list) is by_list][-4:]

    for trial in trials:
        module = nn.Sequential(*copy.deepcopy(layers))
        own = trial.options
        wrapped = nn.parallel.DistributedDataParallel(
            module, bucket_cap_mb=own.bucket_cap_mb, bucket_cap_mb_list=list(own.bucket_cap_mb_list) or None
        )
        for _ in range(4):
            wrapped(torch.ones(1, widths[0])).sum().backward()
        rebuilt = wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        assert tuple(int(size) for size in rebuilt.split(",")) == trial.nbytes


def test_strategies_whose_step_is_another_one_are_left_out_by_name():
    profile = Profile.uniform(num_buckets=3, bucket_bytes=MIB, seconds_per_bucket=0.001)
    topology = Topology.switch(num_ranks=4, bandwidth="10Gbps", latency="50us")

    found = tune(profile, topology, strategies=tuple(STRATEGIES_THAT_SHIP))

    reasons = {strategy: reason for _, strategy, reason in found.refused}
    assert reasons.keys() == {name for name, own in STRATEGIES_THAT_SHIP.items() if own.num_passes > 1}
    assert {trial.options.strategy for trial in found.pairs()} == STRATEGIES_THAT_SHIP.keys() - reasons.keys()
    assert "does more work" in reasons["accumulate"]


@pytest.mark.costly
def test_of_many_algorithms_and_strategies_the_most_promising_are_searched():
    profile = profile_of([MIB] * 6, list(range(6, 0, -1)))
    topology = Topology.switch(num_ranks=8, bandwidth="10Gbps", latency="100us")
    options = {"algorithms": ("ring", "tree", "naive", "swing"), "strategies": STRATEGIES}

    found = tune(profile, topology, max_exact=2, max_pairs=2, max_descent=3, **options)

    everything = tune(profile, topology, **options)
    searched = [pair for pair, how in found.searches.items() if how.startswith("one cap")]
    assert ("ring", "wait_free") in searched
    assert len(searched) <= 3
    assert ("naive", "after_backward") not in found.searches
    assert everything.best.time_ps <= found.best.time_ps <= found.torch.time_ps
    assert found.best.options.pair == everything.best.options.pair


@pytest.mark.costly
@settings(max_examples=settings.default.max_examples // 8, deadline=None)
@given(st.lists(st.integers(1, MIB), min_size=9, max_size=24), switches())
def test_a_list_of_caps_is_no_worse_than_optimal_merging_by_a_strategy(sizes, topology):
    profile = profile_of([4 * size for size in sizes], range(len(sizes), 0, -1))
    merged = simulate_step(profile, topology=topology, strategy="mg_wfbp").time_ps

    found = tune(profile, topology, max_descent=10)

    assert found.torch.time_ps <= merged * 1.001


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
