"""NCCL's protocols and choice on a simulated network, and what was measured."""

import re
import runpy
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.catalogue.selectors import check_choice
from collectives.errors import NotSupportedError
from collectives.timing import default_algorithm, default_transport_model, simulate
from collectives.timing.cost import selector_on
from collectives.timing.formulas.nccl.constants import PROTOCOLS
from collectives.timing.formulas.nccl.model import predict_on
from collectives.timing.formulas.nccl.protocol import PAYLOAD, hop_latency_ps, with_protocol
from sim import Topology
from sim.hardware import Channels, Hardware
from tests.given import nodes, switch


def pair(latency_ps: int = 0, rate: int = 10**9) -> Topology:
    latency = f"{latency_ps}ps"
    return Topology.switch(num_ranks=2, bandwidth=rate, latency=latency)


def pod(intra_latency: str = "300ns", nic_latency: str = "1us") -> Topology:
    rates = {"intra_bandwidth": "450GB/s", "nic_bandwidth": "50GB/s"}
    return nodes(2, 4, 2, intra_latency=intra_latency, nic_latency=nic_latency, name="pod", **rates)


def path_ps(topology: Topology, source: int, destination: int) -> int:
    return int(topology.link_latency[list(topology.route(source, destination))].sum())


@pytest.mark.parametrize(
    ("protocol", "payload"), [("LL", Fraction(1, 2)), ("LL128", Fraction(15, 16)), ("Simple", Fraction(1))]
)
@given(st.integers(1, 10**13))
def test_a_link_carries_the_part_of_its_bytes_that_is_payload(protocol, payload, rate):
    seen = with_protocol(pair(rate=rate), protocol)

    assert PAYLOAD[protocol] == payload
    assert seen.link_bandwidth.tolist() == [max(1, int(rate * payload))] * 4


@pytest.mark.parametrize(
    ("protocol", "nvlink", "pci", "net"),
    [("LL", 600, 1000, 2700), ("LL128", 1900, 2500, 4000), ("Simple", 3400, 5700, 14000)],
)
def test_the_nearest_two_ranks_are_one_hop_of_nccl_apart(protocol, nvlink, pci, net):
    seen = with_protocol(pod(), protocol)
    hardware = Hardware("ampere", Channels.of(1, "10GB/s"), intra_link="pci")
    over_pci = with_protocol(replace(pod(), hardware=hardware), protocol)

    assert path_ps(seen, 0, 1) == nvlink * 1000
    assert path_ps(over_pci, 0, 1) == pci * 1000
    assert path_ps(seen, 0, 4) == path_ps(seen, 6, 3) == net * 1000
    assert path_ps(with_protocol(pair(), protocol), 0, 1) == net * 1000


@given(st.sampled_from(PROTOCOLS), st.integers(0, 10**8))
def test_a_wire_that_is_slower_than_nccls_figure_stays_as_it_is(protocol, latency_ps):
    wire = 2 * latency_ps

    assert path_ps(with_protocol(pair(latency_ps), protocol), 0, 1) == max(
        wire, hop_latency_ps(protocol, "net")
    )


@given(st.sampled_from(PROTOCOLS), st.lists(st.integers(0, 10**6), min_size=4, max_size=12))
def test_from_every_rank_the_nearest_is_one_hop_away_and_the_others_are_farther_by_their_wires(
    protocol, down
):
    flat = Topology.switch(num_ranks=len(down), bandwidth=1, latency=0)
    seen = with_protocol(replace(flat, link_latency=np.array([*down[::-1], *down], dtype=np.int64)), protocol)

    for rank, far in enumerate(down):
        source = (rank + 1) % len(down)
        assert path_ps(seen, source, rank) == hop_latency_ps(protocol, "net") + far - min(down)


def test_the_network_keeps_everything_else_and_says_the_protocol():
    before = pod()
    digest = before.digest()

    seen = with_protocol(before, "LL128")

    assert seen.name == "pod, LL128"
    assert seen.routing is before.routing
    assert seen.digest() != digest == before.digest()
    assert np.array_equal(
        with_protocol(pod("10us", "10us"), "Simple").link_latency, pod("10us", "10us").link_latency
    )


def test_where_it_does_not_apply_it_is_refused_by_name():
    ring = Topology.ring(num_ranks=4, bandwidth=1, latency=0)
    unclear = replace(Topology.switch(num_ranks=4, bandwidth=1, latency=0, name="boxes"), ranks_per_node=2)

    with pytest.raises(NotSupportedError, match="protocol LL on ring: ranks are linked to ranks"):
        with_protocol(ring, "LL")
    with pytest.raises(NotSupportedError, match="protocol LL on boxes: it cannot be told which links"):
        with_protocol(unclear, "LL")
    with pytest.raises(ValueError, match="protocol: expected one of LL, LL128, Simple, got 'simple'"):
        with_protocol(ring, "simple")


LAYER = 1_711_308_800
"""Bytes of a layer of 855 million parameters in bfloat16, which 1,024 ranks in 8 channels divide."""


def test_nccl_takes_the_channels_that_leave_nodes_by_different_ranks():
    topology = Topology.from_file("dgx-h100", 64)
    chosen = selector_on(topology, "nccl")

    ring = chosen.select("all_gather", LAYER)
    rail = selector_on(topology, "nccl", range(0, 64, 8)).select("all_gather", LAYER)
    node = selector_on(topology, "nccl", range(8)).select("all_gather", LAYER)

    assert str(ring) == "ring:channels=8,ranks_per_node=8"
    assert str(rail) == str(node) == "ring"
    assert str(chosen.select("all_to_all", LAYER)) == "direct"


def test_nccl_takes_all_its_channels_where_each_is_hashed_by_itself():
    shape = {"num_ranks": 16, "ranks_per_node": 1, "intra_bandwidth": "450GB/s", "nic_bandwidth": "50GB/s"}
    hardware = Hardware("hopper", one_node=Channels.of(12, "30GB/s"), several_nodes=Channels.of(6, "45GB/s"))
    hashed, sprayed = (
        replace(Topology.cluster(**shape, nodes_per_leaf=2, routing=routing), hardware=hardware)
        for routing in ("ecmp", "spray")
    )

    rings = [selector_on(one, "nccl").select("broadcast", LAYER) for one in (hashed, sprayed)]

    assert [ring.parameters.get("channels", 1) for ring in rings] == [6, 1]


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_reduce"])
@given(nodes=st.integers(2, 100), size=st.floats(6, 32), per_node=st.sampled_from([1, 8]))
def test_nccl_takes_of_rings_pat_and_trees_what_its_model_expects_to_be_fastest(
    collective, nodes, size, per_node
):
    topology, nbytes = Topology.from_file("dgx-h100", 8 * nodes), int(2**size)
    hosts = range(0, 8 * nodes, 8 // per_node)

    chosen = selector_on(topology, "nccl", hosts).select(collective, nbytes)

    kinds = ["Ring", "PAT"] if per_node == 1 else ["Ring"]
    if collective == "all_reduce":
        kinds = ["Ring", "Tree"]
    expected = [predict_on(topology, hosts, collective, nbytes, kind) for kind in kinds]
    best = min(expected, key=lambda one: one.seconds).algorithm
    assert chosen.name == {"Tree": "double_binary_tree"}.get(best, best.lower())
    if best == "PAT":
        aggregation, part = chosen.parameters["aggregation"], nbytes / nodes
        assert aggregation.bit_count() == 1
        assert aggregation < nodes
        assert aggregation <= 8 or aggregation * part <= 8 * 8 * 2**19  # channels, and chunks of a buffer


def test_a_tree_sends_on_what_nccl_puts_into_a_step_of_its_buffer():
    topology = Topology.from_file("dgx-h100", 256)
    chosen = selector_on(topology, "nccl")
    protocols = [
        predict_on(topology, range(256), "all_reduce", n, "Tree").protocol for n in (2**16, 25 << 20)
    ]

    low_latency, longer = (chosen.select("all_reduce", n).parameters["segments"] for n in (2**16, 25 << 20))

    assert protocols == ["LL", "LL128"]
    assert low_latency == 1  # 64 KiB are a quarter of a chunk of 32 KiB for each of 16 trees
    assert longer == 16  # 25 MiB are 22 chunks of 72,000 B (576,000 B, halved three times) for each


@pytest.mark.parametrize(
    ("network", "chosen"),
    [("dgx-h100", ("nccl", "nccl")), ("switch-100g", ("auto", "gloo")), ("ethernet-10g", ("auto", "gloo"))],
)
def test_the_default_is_nccls_choice_over_nccl_where_gpus_are_named_and_else_auto_over_gloo(network, chosen):
    topology = Topology.from_file(network, 16)

    assert (default_algorithm(topology), default_transport_model(topology)) == chosen


def test_nccl_is_refused_where_the_hardware_is_unknown_and_is_auto_where_its_model_does_not_apply():
    topology = Topology.from_file("dgx-h100", 16)
    uneven = range(4, 16)

    check_choice("nccl")
    with pytest.raises(NotSupportedError, match="NCCL's choice on switch: the network says nothing"):
        selector_on(switch(4), "nccl")
    with pytest.raises(NotSupportedError, match="has 8 ranks and node 0 has 4"):
        predict_on(topology, uneven, "all_reduce", 4096)
    assert str(selector_on(topology, "nccl", uneven).select("all_reduce", 4096)) == str(
        selector_on(topology, "auto", uneven).select("all_reduce", 4096)
    )


@pytest.mark.costly
def test_auto_takes_eight_rings_for_a_layer_of_a_large_model_on_1024_ranks():
    topology = Topology.from_file("dgx-h100", 1024)

    run = simulate("auto", nbytes=LAYER, topology=topology, itemsize=2, collective="all_gather")

    assert run.algorithm == "ring:channels=8,ranks_per_node=8"
    assert 6.9e-3 < run.seconds < 7.2e-3


ROOT = Path(__file__).parents[5]


@pytest.fixture(scope="module")
def benchmark() -> dict[str, Any]:
    """Return what `benchmarks/nccl_model.py` defines, with its comparisons made once."""
    defined = runpy.run_path(str(ROOT / "benchmarks" / "nccl_model.py"))
    rows = list(defined["comparisons"]())
    defined["main"].__globals__["comparisons"] = lambda: rows
    return defined | {"rows": rows}


def test_from_a_gibibyte_on_hopper_and_ampere_all_but_a_forced_ring_are_within_seven_percent(benchmark):
    errors = [
        abs(row.error)
        for row in benchmark["rows"]
        if row.nbytes >= 2**30 and "b200" not in row.system and "ar_h100_ib400_2n_b_ring" not in row.system
    ]

    assert len(errors) > 20
    assert max(errors) < 0.07
    assert median(errors) < 0.02


def test_the_document_shows_what_the_benchmark_prints(benchmark, capsys):
    benchmark["main"]()

    printed = set(re.findall(r"^\|.*\|$", capsys.readouterr().out, re.MULTILINE))
    shown = set(re.findall(r"^\|.*\|$", (ROOT / "docs" / "modelling_nccl.md").read_text(), re.MULTILINE))
    assert printed <= shown
