"""NCCL's choice as programs of ours, and auto that weighs channels."""

import pytest

from collectives.catalogue.selectors import check_choice
from collectives.errors import NotSupportedError
from collectives.models.cost import selector_on
from collectives.models.nccl.model import predict_on
from collectives.simulation import default_algorithm, simulate
from sim import Topology

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


def test_nccl_takes_of_rings_and_trees_what_its_model_expects_to_be_faster():
    topology = Topology.from_file("dgx-h100", 64)
    chosen = selector_on(topology, "nccl")

    for nbytes in (1 << 10, 1 << 20, 25 << 20, 1 << 30):
        ring, tree = (
            predict_on(topology, range(64), "all_reduce", nbytes, kind).seconds for kind in ("Ring", "Tree")
        )
        assert chosen.select("all_reduce", nbytes).name == ("ring" if ring <= tree else "double_binary_tree")


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


def test_the_default_is_nccls_choice_where_gpus_are_named_and_auto_elsewhere():
    gpus, unknown = Topology.from_file("dgx-h100", 16), Topology.from_file("switch-100g", 16)

    assert default_algorithm(gpus) == "nccl"
    assert default_algorithm(unknown) == "auto"


def test_nccl_is_refused_where_the_hardware_is_unknown_and_is_auto_where_its_model_does_not_apply():
    topology = Topology.from_file("dgx-h100", 16)
    uneven = range(4, 16)

    check_choice("nccl")
    with pytest.raises(NotSupportedError, match="NCCL's choice on switch: the network says nothing"):
        selector_on(Topology.switch(num_ranks=4, bandwidth="100Gbps", latency="2us"), "nccl")
    with pytest.raises(NotSupportedError, match="has 8 ranks and node 0 has 4"):
        predict_on(topology, uneven, "all_reduce", 4096)
    assert str(selector_on(topology, "nccl", uneven).select("all_reduce", 4096)) == str(
        selector_on(topology, "auto", uneven).select("all_reduce", 4096)
    )


def test_auto_takes_eight_rings_for_a_layer_of_a_large_model_on_1024_ranks():
    topology = Topology.from_file("dgx-h100", 1024)

    run = simulate("auto", nbytes=LAYER, topology=topology, itemsize=2, collective="all_gather")

    assert run.algorithm == "ring:channels=8,ranks_per_node=8"
    assert 6.9e-3 < run.seconds < 7.2e-3


def test_auto_stays_with_one_channel_where_more_gain_nothing():
    topology = Topology.switch(num_ranks=16, bandwidth="100Gbps", latency="2us")

    for collective in ("all_gather", "reduce_scatter", "all_reduce"):
        assert "channels" not in str(selector_on(topology, "auto").select(collective, 1 << 28))
