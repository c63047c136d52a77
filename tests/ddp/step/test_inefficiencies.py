"""Inefficiencies of a step besides the time of its messages: each term equals its closed form."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Assumptions, NotSupportedError, simulate
from ddp import Profile, StepRun, simulate_step
from ddp.errors import UnknownInefficiencyError
from ddp.reduction.bucketing import MIB
from ddp.reduction.overlap import STRATEGIES, resolve_strategy
from ddp.step.inefficiencies import TERMS
from sim import Device, Straggler, Topology, device_names, load_device, load_network, preset_names
from sim.files.device_file import device_of
from sim.files.inefficiency_table import inefficiency_table
from sim.files.late_ranks import slowest_of
from tests.given import switch

MS = 10**9
SWITCH = Topology.switch(num_ranks=8, bandwidth="100Gbps", latency="2us")
DGX = load_network("dgx-h100").topology(16)
PROFILE = Profile.uniform(num_buckets=4, bucket_bytes=MIB, seconds_per_bucket=0.001)
DEVICE = Device("test", {}, memory_bandwidth=MIB * 1000)
TWO_LARGE = Profile.uniform(num_buckets=2, bucket_bytes=100 * MIB, seconds_per_bucket=0.001)


def step_with(*names, profile=PROFILE, topology=SWITCH, strategy="after_backward", **options) -> StepRun:
    """Return a step of which what *names* say is counted, or nothing."""
    return simulate_step(
        profile, topology=topology, strategy=strategy, inefficiencies=list(names) or None, **options
    )


def test_computation_beside_communication_takes_longer_by_the_table():
    slower = inefficiency_table().contention
    beside = {"strategy": "wait_free", "bucket_cap_mb": 100, "transport_model": "nccl"}

    step = step_with("contention", profile=TWO_LARGE, **beside)

    first, second = step.buckets  # the first is under way until after the second is complete
    assert second.launched_ps - first.launched_ps == -(-MS * slower.numerator // slower.denominator)


@given(st.integers(1, 64), st.sampled_from(["a100", "h100", "b200"]))
def test_beside_channels_computation_has_the_other_multiprocessors(channels, device):
    have = load_device(device).multiprocessors
    beside = {"strategy": "wait_free", "bucket_cap_mb": 100, "transport_model": "nccl"}

    step = step_with(f"contention:channels={channels}", profile=TWO_LARGE, device=device, **beside)

    first, second = step.buckets
    alone = simulate("ring", nbytes=100 * MIB, topology=SWITCH, transport_model="nccl")
    assert second.launched_ps - first.launched_ps == -(-MS * have // (have - channels))
    assert first.end_ps - first.start_ps == alone.time_ps  # collectives are not slowed down by computation


def test_the_slowest_of_p_ranks_sets_the_pace():
    step, ideal = step_with("late"), step_with()

    late_ps = PROFILE.compute_ps * (slowest_of(8) - 1)
    assert abs(step.time_ps - ideal.time_ps - late_ps) < 10
    assert step.efficiency == PROFILE.compute_ps / step.time_ps


def test_gradients_are_copied_into_buckets_and_back():
    each_way_ps = 4 * 2 * MS  # of four MiB, read and written at 1000 MiB/s

    assert step_with("copies", device=DEVICE).time_ps - step_with().time_ps == 2 * each_way_ps


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_gradients_are_copied_back_where_a_strategy_hands_them_to_the_optimizer(strategy):
    step = step_with("copies", strategy=strategy, device=DEVICE)

    copied_back = {span.name for span in step.trace.spans if span.name.startswith("copy back")}
    assert bool(copied_back) != resolve_strategy(strategy).updates_parameters


@pytest.mark.parametrize("network", preset_names())
def test_a_step_computes_on_the_device_of_its_network_and_says_where_another_stands_for_it(network):
    topology = load_network(network).topology(8)
    assumed = Assumptions.of_a_real_run(topology)

    step = simulate_step(PROFILE, network=network, num_ranks=8)

    said = step.in_words(assumed)
    if topology.hardware is None:
        assert step.without_device == ("copies", "optimizer")
        assert "not counted without a device: copies, optimizer" in said
        return
    assert {"copies", "optimizer"} < {*step.inefficiencies}
    if topology.hardware.gpu in device_names():
        assert (assumed.device, assumed.device_for) == (topology.hardware.gpu, "")
        assert "nearest" not in said
    else:
        assert f"computed on {assumed.device}, nearest to {topology.hardware.gpu}" in said
    named = simulate_step(PROFILE, network=network, num_ranks=8, device=assumed.device)
    assert named.time_ps == step.time_ps
    assert "nearest" not in named.in_words(assumed.with_(device=assumed.device))


def test_gpus_that_nobody_names_have_the_device_of_their_generation():
    assert DGX.hardware is not None
    unnamed = replace(DGX, hardware=replace(DGX.hardware, gpu=""))

    assert device_of(replace(DGX.hardware, gpu="")) == ("h100", "generation hopper")
    assert "on h100, nearest to generation hopper" in str(Assumptions.of_a_real_run(unnamed))
    assert unnamed.digest() == DGX.digest()


def test_an_optimizer_follows_the_last_bucket_on_one_rank_and_on_many():
    alone = step_with("optimizer", topology=switch(1), device=DEVICE)
    step, ideal = (step_with(*own, strategy="wait_free", device=DEVICE) for own in (["optimizer"], []))

    assert alone.time_ps - PROFILE.compute_ps == step.time_ps - ideal.time_ps == 7 * 4 * MS
    assert alone.efficiency == 1
    assert step.efficiency == alone.time_ps / step.time_ps


def test_a_step_ends_no_sooner_than_the_next_batches_are_ready():
    busy = simulate_step(PROFILE, topology=DGX, inefficiencies=["input:time=80ms"])
    idle = simulate_step(PROFILE, topology=DGX, inefficiencies=["input:time=1us"])

    assert busy.time_ps == 80 * MS
    assert busy.efficiency == pytest.approx(10 / 80)  # one of eight ranks of a node waits 10 ms
    assert idle.time_ps == simulate_step(PROFILE, topology=DGX).time_ps


def test_a_collective_begins_when_its_kernel_has_been_launched():
    step = step_with("launches", topology=DGX)

    assert step.buckets[0].start_ps - step.buckets[0].launched_ps == 8_400_000


@given(
    st.lists(st.sampled_from([name for name in TERMS if name != "input"]), unique=True),
    st.sampled_from(["wait_free", "after_backward", "dear", "zero1", "priority", "accumulate:k=2"]),
    st.sampled_from([1, 8, 16]),
)
@settings(max_examples=30, deadline=None)
def test_a_loss_never_shortens_a_step_of_programs(names, strategy, num_ranks):
    topology = load_network("dgx-h100").topology(num_ranks)

    lost = simulate_step(PROFILE, topology=topology, strategy=strategy, inefficiencies=names, bucket_cap_mb=1)
    ideal = simulate_step(PROFILE, topology=topology, strategy=strategy, bucket_cap_mb=1)

    assert lost.time_ps >= ideal.time_ps
    assert set(lost.inefficiencies) == set(names)
    if num_ranks == 1:
        assert lost.efficiency == 1


@pytest.mark.parametrize(
    ("asked", "model", "counted"),
    [
        ({"topology": DGX}, "links", "contention late launches copies optimizer"),
        ({"topology": SWITCH, "transport_model": "gloo"}, "links", "late"),
        ({"topology": DGX, "conditions": [Straggler(rank=0, delay="1us")]}, "links",
         "contention late launches copies optimizer"),
        ({"network": "dgx-h100", "num_ranks": 16}, "library", "contention late copies optimizer"),
    ],
)  # fmt: skip
def test_all_is_what_applies(asked, model, counted):
    step = simulate_step(PROFILE, **({} if "network" in asked else {"inefficiencies": "all"}), **asked)

    assert (step.model, step.inefficiencies) == (model, tuple(counted.split()))


@pytest.mark.parametrize(
    ("inefficiencies", "options", "message"),
    [
        ("copies", {}, "switch does not say on what its ranks compute"),
        ("input", {}, "input:time=80ms"),
        ("contention", {"transport_model": "gloo"}, "go on when their rank calls"),
        ("contention:channels=8", {}, "does not say on what its ranks compute"),
        ("contention:channels=8", {"device": "laptop-cpu"}, "laptop-cpu states no multiprocessors"),
        *(
            (f"contention:channels={wrong}", {"device": "h100"}, "from 1 to 64 on 132 multiprocessors, got")
            for wrong in ("0", "65", "many", "-1", "1.5")
        ),
        *((wrong, {}, wrong.partition(":")[0]) for wrong in ("lat", "late:sigma=2", "input:seconds=1")),
    ],
)
def test_a_term_that_was_named_and_is_none_or_does_not_apply_is_refused(inefficiencies, options, message):
    with pytest.raises((NotSupportedError, UnknownInefficiencyError), match=f"inefficiencies: .*{message}"):
        simulate_step(PROFILE, topology=SWITCH, inefficiencies=inefficiencies, **options)


def test_every_constant_has_a_source():
    table = inefficiency_table()

    assert table.sources.keys() == {"contention", "late", "copies", "optimizer"}
    assert all(len(source) > 40 for source in table.sources.values())
    assert load_device("h100").memory_bandwidth > 0
