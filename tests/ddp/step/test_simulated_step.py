"""A simulated step equals its closed form, and what the reducer's rules imply."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Assumptions, NotExactError, NotSupportedError, simulate
from collectives.timing.rows.makespan import Makespan
from ddp import Profile, simulate_step
from ddp.profiles import Buffers
from ddp.reduction.bucketing import MIB
from ddp.reduction.overlap import STRATEGIES, resolve_strategy
from ddp.reduction.strategies.strategy import Barrier
from ddp.step import fidelity
from sim import Straggler, Topology
from tests.ddp.given import profiles
from tests.given import switch

MS = 10**9


@given(
    num_buckets=st.integers(1, 6),
    num_elements=st.integers(0, 10**6),
    compute_us=st.integers(0, 5000),
    num_ranks=st.integers(2, 9),
)
@settings(max_examples=40)
def test_each_bucket_starts_when_it_is_complete_and_the_one_before_it_is_done(
    num_buckets, num_elements, compute_us, num_ranks
):
    nbytes = 4 * num_elements * num_ranks
    profile = Profile.uniform(num_buckets, nbytes, compute_us / 1e6)
    one = simulate("ring", nbytes=nbytes, topology=switch(num_ranks)).time_ps

    step = simulate_step(profile, topology=switch(num_ranks), bucket_cap_mb=1e-6)

    end = 0
    if nbytes:
        for bucket in range(num_buckets):
            end = max(end, (bucket + 1) * compute_us * 10**6) + one
        assert step.time_ps == end
    assert step.num_buckets == (num_buckets if nbytes else 1)


@given(profiles(), st.sampled_from(["ideal", "gloo"]))
@settings(max_examples=20)
def test_on_one_rank_a_step_takes_its_compute(profile, transport):
    step = simulate_step(profile, topology=switch(1), transport_model=transport)

    assert step.time_ps == profile.compute_ps
    assert step.seconds == pytest.approx(profile.compute_ps / 10**12)
    assert step.exposed_seconds == 0
    assert step.efficiency == 1.0


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "mg_wfbp"])
def test_a_step_waits_for_its_buffers_before_each_forward_pass(strategy):
    profile = Profile.uniform(num_buckets=2, bucket_bytes=MIB, seconds_per_bucket=0.001)
    kept = Buffers.by_type([("float32", MIB), ("int64", 80), ("float32", MIB), ("float64", 0)])

    with_buffers = simulate_step(
        profile.model_copy(update={"buffers": kept}), topology=switch(4), strategy=strategy
    )
    without = simulate_step(profile, topology=switch(4), strategy=strategy)

    passes = resolve_strategy(strategy).num_passes
    assert [run.nbytes for run in with_buffers.buffers] == [2 * MIB, 80] * passes
    assert with_buffers.num_buckets == without.num_buckets
    assert with_buffers.time_ps >= without.time_ps
    if resolve_strategy(strategy).barrier is not Barrier.USE:
        sent_ps = sum(run.end_ps - run.start_ps for run in with_buffers.buffers)
        assert with_buffers.time_ps == without.time_ps + sent_ps > without.time_ps


def test_a_trace_holds_compute_and_communication_of_the_whole_step():
    profile = Profile.uniform(num_buckets=2, bucket_bytes=MIB, seconds_per_bucket=0.001)

    step = simulate_step(profile, topology=switch(4), bucket_cap_mb=1)

    spans = [(span.track, span.name, span.start_ps, span.end_ps) for span in step.trace.spans]
    first, second = step.buckets
    assert sorted(spans) == [
        ("communication", "all_reduce bucket 0", first.start_ps, first.end_ps),
        ("communication", "all_reduce bucket 1", second.start_ps, second.end_ps),
        ("compute", "gradient:bucket0", 0, MS),
        ("compute", "gradient:bucket1", MS, 2 * MS),
        ("wait", "wait for all_reduce bucket 1", 2 * MS, second.end_ps),
    ]
    assert json.loads(step.trace.to_json())["otherData"]["algorithm"] == "ring"


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["ring", "recursive_doubling", "direct"]))
def test_each_size_once_is_the_same_where_all_ranks_are_done_together(buckets, milliseconds, algorithm):
    profile = Profile.uniform(buckets, 4 * MIB, milliseconds / 1000)
    options = {"topology": switch(4), "bucket_cap_mb": 8, "algorithm": algorithm}

    exact = simulate_step(profile, **options)
    with patch.object(fidelity, "MAX_FOLLOWED", 0):
        once = simulate_step(profile, **options)

    assert (exact.each_size_once, once.each_size_once) == (False, True)
    assert (once.time_ps, once.buckets) == (exact.time_ps, exact.buckets)


@given(st.integers(1, 9), st.integers(4, 40), st.sampled_from(["ring", "halving_doubling"]))
@settings(max_examples=10, deadline=None)
def test_between_powers_of_two_a_bucket_takes_what_it_takes(buckets, quarters, algorithm):
    profile = Profile.uniform(buckets, quarters * MIB // 4, 0.001)
    options = {"topology": switch(4), "bucket_cap_mb": quarters / 4, "algorithm": algorithm}
    exact = simulate_step(profile, **options)

    with (
        patch.object(fidelity, "MAX_ONE_BY_ONE", 0),
        patch.object(Makespan, "run", side_effect=NotExactError("not in step")),
    ):
        drawn = simulate_step(profile, **options)

    assert (exact.on_lines, drawn.on_lines) == (False, True)
    assert drawn.in_words(Assumptions()).endswith("others on the line between two")
    assert drawn.time_ps == pytest.approx(exact.time_ps, abs=8 * buckets)


def test_each_size_is_simulated_every_time_where_collectives_depend_on_when_they_begin():
    late = Straggler(1, delay="1ms")

    with patch.object(fidelity, "MAX_FOLLOWED", 0):
        step = simulate_step(Profile.uniform(1, MIB, 0.001), topology=switch(4), conditions=[late])

    assert not step.each_size_once


@pytest.mark.parametrize("algorithm", ["ring", "auto"])
def test_a_step_of_months_is_exact_or_refused(algorithm):
    topology = Topology.switch(num_ranks=4, bandwidth=1, latency="9000000s")
    profile = Profile.uniform(1, 2**20, 1.0)

    try:
        step = simulate_step(profile, topology=topology, algorithm=algorithm)
    except NotSupportedError:
        return
    assert step.time_ps >= step.floor_ps
