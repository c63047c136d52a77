"""NCCL's all-to-all, its channels by size, its symmetric kernels, and what types and operations rule out."""

import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from collectives import Assumptions, simulate
from collectives.timing.formulas.nccl.constants import NCCL_2_30
from collectives.timing.formulas.nccl.model import predict, table
from collectives.timing.formulas.nccl.point_to_point import LL_NBYTES
from collectives.timing.formulas.nccl.symmetric import symmetric_kernel
from collectives.timing.formulas.nccl.terms import REDUCED_IN_SWITCHES
from collectives.virtual import run
from sim import load_network, preset_names
from sim.hardware import Channels, Hardware

HOPPER = Hardware(
    "hopper",
    one_node=Channels.of(12, "30GB/s"),
    several_nodes=Channels.of(8, "45GB/s"),
    nvls_one_node=Channels.of(8, "40GB/s", "60GB/s"),
    nvls_several_nodes=Channels.of(8, "40GB/s", "48GB/s"),
)
AMPERE = replace(HOPPER, generation="ampere", nvls_one_node=None, nvls_several_nodes=None)
SIZES = st.integers(1, 2**34)
SHAPES = st.tuples(st.integers(1, 64), st.integers(1, 8)).filter(lambda shape: shape[0] * shape[1] > 1)
GPUS = [name for name in preset_names() if load_network(name).fields.hardware is not None]


def all_to_all(nbytes, nodes=1, per_node=8, hardware=HOPPER):
    return predict("all_to_all", nbytes, num_nodes=nodes, ranks_per_node=per_node, hardware=hardware)


@given(SIZES, SHAPES)
def test_a_message_to_each_peer_takes_ll_while_it_is_short(nbytes, shape):
    nodes, per_node = shape
    found = all_to_all(nbytes, nodes, per_node)

    short = nbytes <= LL_NBYTES * nodes * per_node
    assert (found.algorithm, found.protocol) == ("P2P", "LL" if short else "Simple")
    base = NCCL_2_30.base_latency["Ring"][found.protocol]
    assert found.seconds > base * 1e-6


@given(SIZES, SHAPES)
def test_more_bytes_through_the_same_protocol_and_more_nodes_take_longer(nbytes, shape):
    nodes, per_node = shape
    found, more = all_to_all(nbytes, nodes, per_node), all_to_all(2 * nbytes, nodes, per_node)

    if found.protocol == more.protocol:
        assert more.seconds >= found.seconds * (1 - 1e-9) or more.bandwidth > found.bandwidth
    wider = all_to_all(nbytes, nodes + 1, per_node)
    if nodes > 1 and found.protocol == wider.protocol:
        assert wider.latency_seconds > found.latency_seconds


def test_large_messages_fill_the_channels_inside_a_node_and_the_cards_between_nodes():
    inside, between = all_to_all(2**34), all_to_all(2**34, nodes=4)

    assert inside.busbw == pytest.approx(12 * 30e9, rel=1e-3)
    assert 2**34 * (1 - 1 / 4) / between.seconds == pytest.approx(8 * 45e9 / 8, rel=1e-3)


@pytest.mark.parametrize("preset", GPUS)
def test_every_network_with_gpus_knows_an_all_to_all_of_the_library(preset):
    network = load_network(preset)
    counts = [2, network.fields.ranks_per_node]
    counts += [2 * network.fields.ranks_per_node] if network.fields.hardware.several_nodes else []

    for num_ranks in counts:
        topology = network.topology(max(num_ranks, network.fields.ranks_per_node))
        for nbytes in (2**10, 2**20, 2**30):
            run = simulate(
                "nccl", nbytes=nbytes, topology=topology, collective="all_to_all", model="library",
                placement=list(range(num_ranks)), transport_model="nccl",
            )  # fmt: skip
            assert run.model in ("measured", "nccl")
            assert run.seconds > 5e-6


@given(SIZES, SHAPES, st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]))
def test_fewer_channels_only_cost(nbytes, shape, collective):
    nodes, per_node = shape
    for one in table(collective, nbytes, num_nodes=nodes, ranks_per_node=per_node, hardware=HOPPER):
        assert one.likely_seconds >= one.seconds * (1 - 1e-12)
        assert one.likely_latency_seconds == one.latency_seconds


def test_a_ring_with_ll_takes_one_channel_for_each_four_kibibytes_and_rank():
    for nbytes, channels in ((2**10, 1), (2**15, 1), (2**16, 2), (2**17, 4), (2**20, 12)):
        [ring] = [
            one
            for one in table("all_gather", nbytes, num_nodes=1, ranks_per_node=8, hardware=AMPERE)
            if (one.algorithm, one.protocol) == ("Ring", "LL")
        ]
        expected = min(0.5 * channels * 30e9, 87.7e9) * 8 / 7
        assert ring.likely_bandwidth == pytest.approx(expected)


def test_an_ampere_waits_longer_than_a_hopper_by_its_clock():
    shape = {"num_nodes": 1, "ranks_per_node": 8}

    hopper = predict("all_gather", 1024, hardware=replace(HOPPER, nvls_one_node=None), **shape)
    ampere = predict("all_gather", 1024, hardware=AMPERE, **shape)

    assert hopper.latency_seconds == ampere.latency_seconds
    ratio = ampere.likely_latency_seconds / hopper.likely_latency_seconds
    assert ratio == pytest.approx(1980 / 1410)


def algorithms(collective, nodes=1, per_node=8, **kind):
    found = table(collective, 2**28, num_nodes=nodes, ranks_per_node=per_node, hardware=HOPPER, **kind)
    return {one.algorithm for one in found}


@pytest.mark.parametrize(
    ("dtype", "operation", "reduces"),
    [
        ("float16", "sum", True), ("bfloat16", "max", True), ("float32", "sum", True),
        ("float32", "max", False), ("bfloat16", "avg", False), ("int8", "sum", False),
        ("float8_e4m3fn", "sum", False),
    ],
)  # fmt: skip
def test_switches_reduce_only_what_they_have_a_kernel_for(dtype, operation, reduces):
    kind = {"dtype": dtype, "operation": operation}

    assert ("NVLS" in algorithms("all_reduce", **kind)) == reduces
    assert ("NVLSTree" in algorithms("all_reduce", nodes=2, **kind)) == reduces
    assert "NVLS" in algorithms("all_gather", **kind)


def test_pat_does_not_average_and_float8_avoids_long_rings():
    assert "PAT" in algorithms("reduce_scatter", nodes=8, per_node=1)
    assert "PAT" not in algorithms("reduce_scatter", nodes=8, per_node=1, operation="avg")
    assert "PAT" in algorithms("all_gather", nodes=8, per_node=1, operation="avg")

    shape = {"num_nodes": 4, "ranks_per_node": 8, "hardware": AMPERE}
    assert predict("all_reduce", 2**30, **shape).algorithm == "Ring"
    assert predict("all_reduce", 2**30, dtype="float8_e5m2", **shape).algorithm == "Tree"
    few = {**shape, "num_nodes": 1}
    assert predict("all_reduce", 2**30, dtype="float8_e5m2", **few).algorithm == "Ring"


KINDS = ("all_reduce", "all_gather", "reduce_scatter")
GIB_PER_US = (1 << 30) / 1e6


def gpus(name: str) -> Hardware:
    found = load_network(name).topology(8).hardware
    assert found is not None
    return found


H100, A100, BLACKWELL = (gpus(name) for name in ("dgx-h100", "dgx-a100", "gb200-nvl72"))


@pytest.mark.parametrize(
    ("collective", "gpu", "small", "latency_us", "large"),
    [
        ("all_reduce", H100, "AllReduce_AGxLLMC_R", 4.5, "AllReduce_RSxLDMC_AGxSTMC"),
        ("all_gather", H100, "AllGather_LLMC", 4.5, "AllGather_STMC"),
        ("reduce_scatter", H100, "ReduceScatter_LL", 4.5, "ReduceScatter_LDMC"),
        ("all_reduce", BLACKWELL, "AllReduce_AGxLLMC_R", 11.0, "AllReduce_RSxLDMC_AGxSTMC"),
        ("all_gather", BLACKWELL, "AllGather_LLMC", 8.5, "AllGather_STMC"),
        ("reduce_scatter", BLACKWELL, "ReduceScatter_LL", 11.0, "ReduceScatter_LDMC"),
    ],
)
def test_flags_carry_small_buffers_and_switches_large_ones(collective, gpu, small, latency_us, large):
    least, most = (symmetric_kernel(collective, nbytes, 8, gpu) for nbytes in (1024, 1 << 28))

    assert (least.name, least.latency_seconds, most.name) == (small, pytest.approx(latency_us * 1e-6), large)


def test_a_large_all_reduce_goes_at_the_peak_of_the_switches():
    kernel = symmetric_kernel("all_reduce", 1 << 30, 8, H100)

    assert kernel.blocks <= 16 // 8
    assert kernel.seconds == pytest.approx((1 + 1 / 8) * (1 << 30) / (480 * GIB_PER_US) * 1e-6, rel=0.03)


@given(
    collective=st.sampled_from(KINDS),
    num_ranks=st.integers(2, 8),
    sizes=st.tuples(st.integers(0, 1 << 32), st.integers(0, 1 << 32)).map(sorted),
    gpu=st.sampled_from([H100, BLACKWELL]),
)
def test_the_time_grows_with_the_size_within_the_tolerance_of_blocks(collective, num_ranks, sizes, gpu):
    few, many = (symmetric_kernel(collective, nbytes, num_ranks, gpu) for nbytes in sizes)

    assert few.latency_seconds < few.seconds < math.inf
    assert 1 <= few.blocks <= 64
    assert few.price <= many.price * 1.025**2


@pytest.mark.parametrize(
    ("collective", "gpu", "options"),
    [
        ("all_reduce", A100, {}), ("broadcast", H100, {}), ("all_to_all", H100, {}),
        ("all_reduce", H100, {"operation": "max"}), ("all_reduce", H100, {"dtype": "int32"}),
        ("reduce_scatter", H100, {"dtype": "float64"}),
        ("all_reduce", replace(H100, intra_link="pci"), {}),
    ],
)  # fmt: skip
def test_some_calls_have_no_symmetric_kernel(collective, gpu, options):
    assert symmetric_kernel(collective, 1 << 20, 8, gpu, **options) is None


@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 22, 1 << 28])
def test_without_switches_that_reduce_no_kernel_goes_by_them(nbytes):
    without = replace(H100, nvls_one_node=None, nvls_several_nodes=None)
    of_float8 = symmetric_kernel("all_reduce", nbytes, 8, H100, dtype="float8_e5m2")
    of_two = symmetric_kernel("all_reduce", nbytes, 2, H100)
    names = [own.name for own in (symmetric_kernel("all_reduce", nbytes, 8, without), of_two) if own]

    assert len(names) == 2
    assert not any("MC" in name for name in names)
    assert "float8_e5m2" not in REDUCED_IN_SWITCHES
    assert "LDMC" not in of_float8.name


@pytest.mark.parametrize("collective", KINDS)
@pytest.mark.parametrize("nbytes", [4096, 1 << 20, 1 << 30])
def test_registered_buffers_take_what_the_kernel_or_the_links_need(collective, nbytes):
    registered = simulate("nccl", nbytes=nbytes, collective=collective, network="dgx-h100", num_ranks=8,
                          symmetric=True)  # fmt: skip
    kernel = symmetric_kernel(collective, nbytes, 8, H100)

    assert registered.algorithm == kernel.name
    assert registered.seconds == pytest.approx(max(kernel.seconds, registered.floor_seconds), abs=1e-12)


@pytest.mark.parametrize(("collective", "num_ranks", "network"), [
    ("all_reduce", 16, "dgx-h100"), ("broadcast", 8, "dgx-h100"), ("all_reduce", 8, "dgx-a100"),
])  # fmt: skip
def test_elsewhere_nccl_chooses_as_without(collective, num_ranks, network):
    asked = {"nbytes": 1 << 20, "collective": collective, "network": network, "num_ranks": num_ranks}

    assert simulate("nccl", **asked, symmetric=True).time_ps == simulate("nccl", **asked).time_ps


def test_a_run_takes_what_simulate_says_of_registered_buffers():
    def one_call(rank):
        dist.init_process_group("nccl")
        dist.all_reduce(torch.ones(1 << 18))

    topology = load_network("dgx-h100").topology(8)
    alone = simulate("nccl", nbytes=1 << 20, network="dgx-h100", num_ranks=8, symmetric=True)
    assumed = Assumptions.of_a_real_run(topology, symmetric=True)
    ran = run(one_call, network=topology, algorithm=assumed.algorithm, assumptions=assumed)

    assert max(ran.times_ps) == alone.time_ps
