"""A training step on a cluster that is not as its topology says: rank threads and the replay agree."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotExactError, NotSupportedError, simulate
from collectives.virtual import run_virtual
from ddp import Profile, StepRun, simulate_step
from sim import (
    Background,
    Cluster,
    Condition,
    ConditionError,
    Jitter,
    LinkChange,
    LinkFailedError,
    LinkFailure,
    Straggler,
    Topology,
)
from sim.units import SECOND
from tests.ddp.step.test_virtual_step import network, profile_of, steady_step

SWITCH = Topology.switch(num_ranks=4, bandwidth="1Gbps", latency="5us")
LEAF_SPINE = Topology.leaf_spine(
    num_ranks=4, hosts_per_leaf=2, num_spines=2, bandwidth="1Gbps", uplink_bandwidth="1Gbps", latency="5us"
)
WIDTHS = [20, 30, 20, 10]
CAP = 0.002
STRATEGIES = st.sampled_from(["wait_free", "after_backward"])


def step_profile(gradient_us: int) -> Profile:
    return profile_of(network(WIDTHS), 100, [gradient_us])


def replayed(gradient_us: int, strategy: str, *conditions: Condition, **options) -> StepRun:
    profile = step_profile(gradient_us)
    options = {"topology": SWITCH, "bucket_cap_mb": CAP, "strategy": strategy, **options}
    return simulate_step(profile, conditions=conditions, **options)


def assert_same(results: list[Any], step: StepRun) -> None:
    times, spans = zip(*results, strict=True)
    assert max(times) == step.time_ps
    for bucket, travels in zip(step.buckets, zip(*spans, strict=True), strict=True):
        starts, ends = zip(*travels, strict=True)
        assert (min(starts), max(ends)) == (bucket.start_ps, bucket.end_ps)


@given(STRATEGIES, st.tuples(*[st.integers(0, 10**9)] * 4), st.integers(0, 100))
@settings(max_examples=8, deadline=None)
def test_late_ranks_delay_a_step_on_rank_threads_and_in_the_replay_alike(strategy, delays, gradient_us):
    late = [Straggler(rank, delay=f"{delay}ps") for rank, delay in enumerate(delays)]

    run = run_virtual(
        lambda rank: steady_step(WIDTHS, strategy, CAP, "ring", delays[rank]),
        SWITCH,
        compute=step_profile(gradient_us).compute_charges(),
    )

    for engine in ("events", "auto"):
        assert_same(run.results, replayed(gradient_us, strategy, *late, engine=engine))


def what_happens(after_ps: int) -> list[list[Condition]]:
    at, later = f"{after_ps + 403_000_000}ps", f"{after_ps + 550_000_000}ps"
    return [
        [LinkChange("rank 2 up", at, 0.3), LinkChange("rank 2 up", later, 2)],
        [LinkFailure("leaf 0 to spine 0", at, reroute=True)],
        [Background(0, 3, "800Mbps", start=at, stop=later), Background(1, 2, nbytes=10**4, start=at)],
    ]


@pytest.mark.parametrize("strategy", ["wait_free", "after_backward"])
@pytest.mark.parametrize("which", range(3))
def test_what_happens_to_links_changes_a_step_on_rank_threads_and_in_the_replay_alike(which, strategy):
    run = run_virtual(
        lambda rank: steady_step(WIDTHS, strategy, CAP, "ring"),
        LEAF_SPINE,
        compute=step_profile(40).compute_charges(),
        conditions=what_happens(3 * SECOND)[which],
    )

    step = replayed(40, strategy, *what_happens(0)[which], topology=LEAF_SPINE)
    assert_same(run.results, step)
    assert step.time_ps > replayed(40, strategy, topology=LEAF_SPINE).time_ps


def test_ranks_that_compute_at_different_speeds_are_refused_by_the_replay():
    with pytest.raises(NotSupportedError, match=r"leave out the factor of Straggler\(rank=2, factor=3"):
        replayed(10, "wait_free", Straggler(1, 2), Straggler(2, 3))
    with pytest.raises(NotExactError, match="LinkChange"):
        replayed(10, "wait_free", LinkChange(0, 0, 2), engine="makespan")
    with pytest.raises(LinkFailedError, match=r"all_reduce by ring, step 0: rank 1 sends .* to rank 2;"):
        replayed(10, "wait_free", LinkFailure("rank 1 up", 0))
    with pytest.raises(ConditionError, match="places 0 to 3, got 4"):
        replayed(10, "wait_free", Straggler(4))


def all_reduce(count: int) -> int:
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(count))
    dist.destroy_process_group()
    clock = Cluster.current()
    return clock.now_ps()


@pytest.mark.parametrize(
    "conditions",
    [
        [Straggler(2, 3)],
        [Straggler(1, delay="3ms"), Jitter("20us", seed=4)],
        [Straggler(0, 2, "1us"), LinkChange(1, "50us", 0.5), Background(2, 3, "300Mbps")],
    ],
)
def test_a_script_takes_what_the_simulation_of_its_collective_takes(conditions):
    run = run_virtual(lambda rank: all_reduce(4000), SWITCH, conditions=conditions)
    expected = simulate("ring", nbytes=16000, itemsize=4, topology=SWITCH, conditions=conditions)

    assert max(run.results) == expected.time_ps
    assert run_virtual(lambda rank: all_reduce(4000), SWITCH, conditions=conditions).results == run.results
