"""Symmetric kernels of NCCL: which it takes, how long, and where it has none."""

import math
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from collectives import Assumptions, simulate
from collectives.timing.formulas.nccl.symmetric import symmetric_kernel
from collectives.timing.formulas.nccl.terms import REDUCED_IN_SWITCHES
from collectives.virtual import run
from sim import load_network
from sim.hardware import Hardware

KINDS = ("all_reduce", "all_gather", "reduce_scatter")
GIB_PER_US = (1 << 30) / 1e6


def hardware(name: str) -> Hardware:
    found = load_network(name).topology(8).hardware
    assert found is not None
    return found


HOPPER, AMPERE, BLACKWELL = (hardware(name) for name in ("dgx-h100", "dgx-a100", "gb200-nvl72"))


@pytest.mark.parametrize(
    ("collective", "gpu", "small", "latency_us", "large"),
    [
        ("all_reduce", HOPPER, "AllReduce_AGxLLMC_R", 4.5, "AllReduce_RSxLDMC_AGxSTMC"),
        ("all_gather", HOPPER, "AllGather_LLMC", 4.5, "AllGather_STMC"),
        ("reduce_scatter", HOPPER, "ReduceScatter_LL", 4.5, "ReduceScatter_LDMC"),
        ("all_reduce", BLACKWELL, "AllReduce_AGxLLMC_R", 11.0, "AllReduce_RSxLDMC_AGxSTMC"),
        ("all_gather", BLACKWELL, "AllGather_LLMC", 8.5, "AllGather_STMC"),
        ("reduce_scatter", BLACKWELL, "ReduceScatter_LL", 11.0, "ReduceScatter_LDMC"),
    ],
)
def test_flags_carry_small_buffers_and_switches_large_ones(collective, gpu, small, latency_us, large):
    least, most = (symmetric_kernel(collective, nbytes, 8, gpu) for nbytes in (1024, 1 << 28))

    assert (least.name, least.latency_seconds, most.name) == (small, pytest.approx(latency_us * 1e-6), large)


def test_a_large_all_reduce_goes_at_the_peak_of_the_switches():
    kernel = symmetric_kernel("all_reduce", 1 << 30, 8, HOPPER)

    assert kernel.blocks <= 16 // 8
    assert kernel.seconds == pytest.approx((1 + 1 / 8) * (1 << 30) / (480 * GIB_PER_US) * 1e-6, rel=0.03)


@given(
    collective=st.sampled_from(KINDS),
    num_ranks=st.integers(2, 8),
    sizes=st.tuples(st.integers(0, 1 << 32), st.integers(0, 1 << 32)).map(sorted),
    gpu=st.sampled_from([HOPPER, BLACKWELL]),
)
def test_the_time_grows_with_the_size_within_the_tolerance_of_blocks(collective, num_ranks, sizes, gpu):
    few, many = (symmetric_kernel(collective, nbytes, num_ranks, gpu) for nbytes in sizes)

    assert few.latency_seconds < few.seconds < math.inf
    assert 1 <= few.blocks <= 64
    assert few.price <= many.price * 1.025**2


@pytest.mark.parametrize(
    ("collective", "gpu", "options"),
    [
        ("all_reduce", AMPERE, {}), ("broadcast", HOPPER, {}), ("all_to_all", HOPPER, {}),
        ("all_reduce", HOPPER, {"operation": "max"}), ("all_reduce", HOPPER, {"dtype": "int32"}),
        ("reduce_scatter", HOPPER, {"dtype": "float64"}),
        ("all_reduce", replace(HOPPER, intra_link="pci"), {}),
    ],
)  # fmt: skip
def test_some_calls_have_no_symmetric_kernel(collective, gpu, options):
    assert symmetric_kernel(collective, 1 << 20, 8, gpu, **options) is None


@pytest.mark.parametrize("nbytes", [1 << 12, 1 << 22, 1 << 28])
def test_without_switches_that_reduce_no_kernel_goes_by_them(nbytes):
    without = replace(HOPPER, nvls_one_node=None, nvls_several_nodes=None)
    of_float8 = symmetric_kernel("all_reduce", nbytes, 8, HOPPER, dtype="float8_e5m2")
    of_two = symmetric_kernel("all_reduce", nbytes, 2, HOPPER)
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
    kernel = symmetric_kernel(collective, nbytes, 8, HOPPER)

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
