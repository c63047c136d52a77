"""Fully sharded steps: exact where nothing overlaps, and what sharding sends."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError
from ddp import Profile, simulate_step
from ddp.reduction.bucketing import MIB
from sim import Topology, load_device

RANKS, UNITS, LATENCY_PS, BANDWIDTH = 4, 5, 2 * 10**6, 10**9
SWITCH = Topology.switch(num_ranks=RANKS, bandwidth=BANDWIDTH, latency="1us")
PROFILE = Profile.uniform(num_buckets=UNITS, bucket_bytes=4 * MIB, seconds_per_bucket=0.01)


def half_a_ring_ps(nbytes: int) -> int:
    """Return the time of an all-gather or a reduce-scatter: p - 1 steps of a p-th each."""
    return (RANKS - 1) * (LATENCY_PS + -(-nbytes // RANKS * 10**12 // BANDWIDTH))


def test_without_prefetch_every_gather_waits_for_the_scatter_before_it():
    """But for the scatter behind which the first unit computes, which stays gathered."""
    gather_ps, scatter_ps = half_a_ring_ps(2 * MIB), half_a_ring_ps(4 * MIB)

    run = simulate_step(PROFILE, topology=SWITCH, strategy="fsdp:prefetch=0")

    assert run.time_ps == PROFILE.compute_ps + (2 * UNITS - 1) * gather_ps + (UNITS - 1) * scatter_ps


def test_on_a_fast_network_a_step_waits_for_the_first_gather_of_each_pass_and_the_last_scatter():
    fast = Topology.switch(num_ranks=RANKS, bandwidth="1TB/s", latency=0)
    profile = PROFILE.model_copy(update={"forward_seconds": 0.05})

    run = simulate_step(profile, topology=fast, strategy="fsdp")

    exposed = [run.buckets[place] for place in (0, UNITS, -1)]
    assert [bucket.exposed_ps for bucket in exposed] == [
        bucket.end_ps - bucket.start_ps for bucket in exposed
    ]
    assert run.time_ps == profile.compute_ps + sum(bucket.exposed_ps for bucket in exposed)


@pytest.mark.parametrize(
    ("parameters", "gathered", "num_gathers"),
    [("", 2 * MIB, 2 * UNITS - 1), (":reshard=False,gathered_bits=32", 4 * MIB, UNITS)],
    ids=["twice but for the first", "once where they stay"],
)
def test_units_are_scattered_once_and_gathered(parameters, gathered, num_gathers):
    run = simulate_step(PROFILE, topology=SWITCH, strategy=f"fsdp{parameters}")

    sent = Counter((bucket.collective, bucket.nbytes) for bucket in run.buckets)
    assert sent == {("all_gather", gathered): num_gathers, ("reduce_scatter", 4 * MIB): UNITS}


def test_copies_are_waited_for_by_the_collective_or_by_the_computation():
    """Shards into a gather, gradients into a scatter; parameters out of what was gathered."""
    copied = {"inefficiencies": ["copies"], "device": "a100"}
    each_way = load_device("a100").memory_bandwidth // 2
    out_ps, scattered_ps, shard_ps = (
        -(-nbytes * 10**12 // each_way) for nbytes in (2 * MIB, 4 * MIB, 2 * MIB // RANKS)
    )

    ideal, run = (
        simulate_step(PROFILE, topology=SWITCH, strategy="fsdp:prefetch=0", **counted)
        for counted in ({}, copied)
    )

    gathers = (UNITS + 1) * shard_ps + (2 * UNITS - 1) * out_ps
    assert run.inefficiencies == ("copies",)
    assert run.time_ps == ideal.time_ps + gathers + (UNITS - 1) * scattered_ps


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 3), st.booleans())
def test_parameters_of_a_block_travel_and_compute_as_the_block_does(parts, prefetch, reshard):
    """Whether a profile has whole blocks, or the parameters of each, and however many of the root."""
    whole = Profile.uniform(num_buckets=len(parts) + 1, bucket_bytes=4 * MIB, seconds_per_bucket=0.01)
    names = ["model", *(f"model.layers.{place}" for place in range(len(parts)))]
    blocks = [own.model_copy(update={"name": name}) for own, name in zip(whole.gradients, names, strict=True)]
    split = []
    for block, count in zip(blocks, [2, *parts], strict=True):
        for part in range(count):  # the first of which has what the others leave
            numel = block.numel // count + (0 if part else block.numel % count)
            own = {"name": f"{block.name}.part{part}", "nbytes": 4 * numel, "numel": numel}
            split.append(block.model_copy(update=own))
    strategy = f"fsdp:prefetch={prefetch},reshard={reshard}"

    by_block, by_part = (
        simulate_step(whole.model_copy(update={"gradients": own}), topology=SWITCH, strategy=strategy)
        for own in (blocks, split)
    )

    assert (by_block.time_ps, by_block.buckets) == (by_part.time_ps, by_part.buckets)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 8), st.integers(0, 3), st.booleans(), st.integers(10**8, 10**11))
def test_a_step_takes_its_computation_and_at_most_all_of_its_communication_besides_in_every_engine(
    ranks, prefetch, reshard, bandwidth
):
    topology = Topology.switch(num_ranks=ranks, bandwidth=bandwidth, latency="1us")
    strategy = f"fsdp:prefetch={prefetch},reshard={reshard}"

    run, *others = (
        simulate_step(PROFILE, topology=topology, strategy=strategy, engine=engine)
        for engine in ("auto", "events", "ranks")
    )

    communicated_ps = sum(bucket.end_ps - bucket.start_ps for bucket in run.buckets)
    assert run.compute_ps <= run.time_ps <= run.compute_ps + communicated_ps
    assert sum(bucket.exposed_ps for bucket in run.buckets) == run.time_ps - run.compute_ps
    assert {other.time_ps for other in others} == {run.time_ps}


def test_progress_on_calls_is_refused():
    with pytest.raises(NotSupportedError, match="transport_model='nccl'"):
        simulate_step(PROFILE, topology=SWITCH, strategy="fsdp", transport_model="gloo")
