"""Over a transport that makes progress on calls, buckets advance at hooks, launches and waits alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotExactError, NotSupportedError, simulate
from collectives.execution.transport_model import TransportModel
from collectives.timing.ranks.attention import Attention
from ddp import Profile, simulate_step
from ddp.reduction.bucketing import MIB
from ddp.reduction.overlap import STRATEGIES
from sim import Straggler
from tests.ddp.given import profile_of as given_profile
from tests.given import switch

MS = 10**9
ON_CALLS = TransportModel("each step's sends awaited, progress on calls", progress="calls")


def profile_of(ready_ms: list[int], nbytes: int = MIB) -> Profile:
    """Gradients that are ready at these milliseconds, the last registered first."""
    return given_profile([nbytes] * len(ready_ms), ready_ms[::-1])


def test_the_second_step_of_a_ring_is_posted_at_the_next_hook():
    step_ps = simulate("ring", nbytes=MIB, topology=switch(2)).time_ps // 2

    step = simulate_step(profile_of([1, 3]), topology=switch(2), bucket_cap_mb=1, transport_model=ON_CALLS)

    first, second = step.buckets
    assert (first.start_ps, first.end_ps) == (2 * MS, 4 * MS + step_ps)
    assert (second.start_ps, second.end_ps) == (first.end_ps, first.end_ps + 2 * step_ps)
    assert step.time_ps == second.end_ps


@given(
    ready_ms=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    nbytes=st.integers(1, 300).map(lambda count: 4 * 1009 * count),
    num_ranks=st.integers(2, 5),
    algorithm=st.sampled_from(["ring", "tree", "halving_doubling"]),
    strategy=st.sampled_from([*STRATEGIES, "zero1:prefetch=True", "accumulate:k=3,last=mg_wfbp"]),
    transport=st.sampled_from(["ideal", "gloo", ON_CALLS]),
)
@settings(max_examples=40, deadline=None)
def test_all_engines_notice_what_is_complete_at_the_same_times(
    ready_ms, nbytes, num_ranks, algorithm, strategy, transport
):
    def step(engine):
        return simulate_step(
            profile_of(sorted(ready_ms), nbytes),
            topology=switch(num_ranks),
            bucket_cap_mb=0.5,
            strategy=strategy,
            algorithm=algorithm,
            transport_model=transport,
            engine=engine,
        )

    ranks, events = step("ranks"), step("events")

    assert (events.time_ps, events.buckets) == (ranks.time_ps, ranks.buckets)
    try:
        makespan = step("makespan")
    except NotExactError:
        return
    assert (makespan.time_ps, makespan.buckets) == (ranks.time_ps, ranks.buckets)


@given(
    calls=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=6),
    from_ps=st.integers(0, 40),
    ends=st.tuples(st.integers(0, 45), st.integers(0, 45)).map(sorted),
)
def test_what_is_within_says_when_a_rank_looks(calls, from_ps, ends):
    attention = Attention.of(sorted((since, since + length) for since, length in calls), from_ps)
    since, until = ends

    looks = {now for begin, end in attention.within(since, until) for now in range(begin, end + 1)}

    assert looks == {now for now in range(since, until + 1) if attention.next_ps(now) == now}


def test_late_ranks_call_at_other_times_and_are_refused():
    with pytest.raises(NotSupportedError, match="must call at the same times"):
        simulate_step(
            profile_of([1, 2]),
            topology=switch(2),
            transport_model="gloo",
            conditions=[Straggler(rank=0, delay="1ms")],
        )


def test_over_gloo_a_bucket_sets_out_beside_the_one_before_it():
    profile, alike = profile_of([1, 1]), {"topology": switch(2), "bucket_cap_mb": 1}

    together = simulate_step(profile, transport_model="gloo", **alike)
    one_by_one = simulate_step(profile, transport_model=ON_CALLS, **alike)

    assert together.time_ps <= one_by_one.time_ps
    with pytest.raises(NotExactError, match="in flight together"):
        simulate_step(profile, transport_model="gloo", engine="makespan", **alike)
