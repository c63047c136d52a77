"""NCCL's own model: its choice, its refusals, and the figures of its source."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from collectives.timing.formulas.nccl.constants import NCCL_2_30
from collectives.timing.formulas.nccl.model import Prediction, predict, predict_on, table
from collectives.timing.formulas.nccl.terms import COLLECTIVES
from sim import Topology
from sim.hardware import Channels, Hardware
from tests.given import nodes

SIZES = st.integers(0, 2**40)


def channels() -> st.SearchStrategy[Channels]:
    bandwidth = st.integers(1, 10**11)
    return st.builds(Channels, st.integers(1, 64), bandwidth, bandwidth)


@st.composite
def hardwares(draw: st.DrawFn) -> Hardware:
    generation = draw(st.sampled_from(["volta", "ampere", "hopper", "blackwell"]))
    nvls = generation in ("hopper", "blackwell") and draw(st.booleans())
    return Hardware(
        generation,
        one_node=draw(channels()),
        several_nodes=draw(channels()),
        nvls_one_node=draw(channels()) if nvls else None,
        nvls_several_nodes=draw(channels()) if nvls else None,
        collnet=draw(st.none() | channels()),
        intra_link=draw(st.sampled_from(["nvlink", "pci"])),
        cpu=draw(st.sampled_from(["intel", "amd", "other"])),
        net_latency_ps=draw(st.integers(0, 10**8)),
        ll128=draw(st.booleans()),
        split_tree=draw(st.booleans()),
        same_channels=draw(st.booleans()),
    )


CALLS = st.fixed_dictionaries(
    {"num_nodes": st.integers(1, 64), "ranks_per_node": st.integers(1, 72), "hardware": hardwares()}
)


def considered(collective: str, nbytes: int, **call) -> dict[tuple[str, str], Prediction]:
    rows = table(collective, nbytes, **call)
    return {(row.algorithm, row.protocol): row for row in rows}


@given(st.sampled_from(sorted(COLLECTIVES)), SIZES, CALLS)
def test_the_choice_is_the_quickest_that_is_considered(collective, nbytes, call):
    chosen = predict(collective, nbytes, **call)

    rows = considered(collective, nbytes, **call)
    assert chosen.seconds == min(row.seconds for row in rows.values())
    assert chosen.seconds >= 0
    assert rows[chosen.algorithm, chosen.protocol] == chosen


@given(st.sampled_from(sorted(COLLECTIVES)), st.tuples(SIZES, SIZES).map(sorted), CALLS)
def test_but_for_the_corrected_trees_nothing_gets_quicker_with_size(collective, sizes, call):
    before, after = (considered(collective, nbytes, **call) for nbytes in sizes)

    assert before.keys() == after.keys()
    for (algorithm, protocol), row in before.items():
        if algorithm not in ("Tree", "NVLSTree"):
            assert row.seconds <= after[algorithm, protocol].seconds


@given(SIZES, CALLS, channels())
def test_more_bandwidth_never_makes_the_choice_slower(nbytes, call, more):
    slow = call["hardware"].several_nodes
    faster = Channels(
        slow.count, slow.intra_bandwidth + more.intra_bandwidth, slow.inter_bandwidth + more.inter_bandwidth
    )
    call |= {"num_nodes": call["num_nodes"] + 1}

    before = predict("all_reduce", nbytes, **call)
    after = predict(
        "all_reduce", nbytes, **call | {"hardware": replace(call["hardware"], several_nodes=faster)}
    )

    assert after.seconds <= before.seconds


H100 = Hardware(
    "hopper",
    one_node=Channels.of(24, "20GB/s"),
    several_nodes=Channels.of(24, "20GB/s"),
    nvls_one_node=Channels.of(16, "20GB/s"),
    nvls_several_nodes=Channels.of(16, "20GB/s"),
)


COLLNET = replace(H100, collnet=Channels.of(8, "40GB/s"))
FEW = Channels.of(4, "30GB/s", "12GB/s")
NVLS = Channels.of(8, "40GB/s", "60GB/s")
POD = Hardware(
    "hopper", one_node=FEW, several_nodes=FEW, nvls_one_node=NVLS, nvls_several_nodes=NVLS, collnet=NVLS
)
SM100 = Hardware("blackwell", one_node=FEW, several_nodes=FEW, nvls_one_node=NVLS, nvls_several_nodes=NVLS)
SLOW = replace(SM100, nvls_several_nodes=Channels.of(8, "20GB/s", "5GB/s"))
FAR = replace(POD, net_latency_ps=10**6)
AMD = replace(POD, generation="ampere", nvls_one_node=None, nvls_several_nodes=None, cpu="amd")


@pytest.mark.parametrize(
    ("hardware", "num_nodes", "ranks_per_node", "collective", "pair", "latency", "bandwidth"),
    [  # microseconds, 10⁹ bytes per second
        (H100, 1, 8, "all_reduce", "Ring LL", 15, 141 * 8 / 14),
        (H100, 1, 8, "all_reduce", "Ring LL128", 14 + 14 * 1.9, 480 * 0.92 * 8 / 14),
        (H100, 1, 8, "all_reduce", "Ring Simple", 8.4 + 14 * 3.4, 480 * 8 / 14),
        (POD, 1, 8, "all_reduce", "NVLS Simple", 25, 8 * 40 * 0.85 * 7 / 8 * 2 * 8 / 14),
        (SM100, 1, 8, "all_reduce", "NVLS Simple", 25, 8 * 40 * 0.74 * 7 / 8 * 2 * 8 / 14),
        (POD, 1, 8, "all_gather", "NVLS Simple", 25, 8 * 40 * 0.85 * 7 / 8 * 7 / 8),
        (POD, 4, 8, "reduce_scatter", "NVLS Simple", 25 + 18, 8 * 40 * 0.85 * 7 / 8 * 7 / 8),
        (POD, 2, 8, "all_reduce", "NVLSTree Simple", 25 + 2 * 20.9, 8 * 57.7 * 16 / 30),
        (POD, 5, 8, "all_reduce", "NVLSTree Simple", 25 + 4 * 20.9, 8 * 45.5 * 40 / 78),
        (SLOW, 2, 8, "all_reduce", "NVLSTree Simple", 25 + 2 * 20.9, 8 * 10 * 16 / 30 * 0.5),
        (SLOW, 4, 8, "all_reduce", "NVLSTree Simple", 25 + 4 * 20.9, 8 * 5 * 32 / 62 * 0.5),
        (POD, 4, 8, "all_reduce", "CollNetDirect Simple", 2 * (3.7 + 7 * 0.4) + 31, 8 * 40 * 0.85 / 2),
        (POD, 4, 4, "all_reduce", "CollNetDirect Simple", 2 * (3.7 + 3 * 0.4) + 31, 320 / 0.75 * 0.85 / 2),
        (POD, 4, 8, "all_gather", "CollNetDirect Simple", 2 * (3.7 + 7 * 0.4) + 31, 8 * 40),
        (POD, 4, 8, "all_reduce", "CollNetChain Simple", 2 * 7 * 2.8 + 30, 320 / 2),
        (POD, 9, 1, "all_gather", "PAT Simple", 8 + 3 * 14 / 3.5 + 9 * 2.8, 4 * 12 * 0.75),
        (POD, 4, 8, "all_gather", "Ring Simple", 8.4 + 28 * 3.4 + 3 * 14, 4 * 12 * 32 / 31),
        (AMD, 4, 8, "all_gather", "Ring Simple", 8.4 + 28 * 6 + 3 * 14, 4 * 12 * 32 / 31),
        (AMD, 4, 8, "all_gather", "Ring LL", 6.6 + 28 * 2 + 3 * 2.7, 19 * 32 / 31),
        (POD, 2, 8, "all_gather", "Ring LL", 6.6 + 14 * 1 + 2.7, 39 * 16 / 15),
        (POD, 9, 1, "all_gather", "Ring LL", 6.6 + 8 * 5.0, 20.4 * 9 / 8),  # a tree's latency
        (POD, 4, 8, "broadcast", "Ring Simple", 8.4 + 14, 4 * 12),
        (replace(POD, same_channels=False), 1, 8, "reduce", "Ring Simple", 8.4 + 8 * 4.0, 4 * 30),
        (replace(POD, same_channels=False), 1, 8, "reduce", "Ring LL128", 14 + 8 * 1.9, 4 * 30 * 0.92),
        (FAR, 4, 8, "all_gather", "Ring Simple", 8.4 + 28 * 3.4 + 3 * 16, 1536 / 31),
        (FAR, 4, 8, "all_gather", "Ring LL", 6.6 + 28 + 3 * 3.7, 20.4 * 32 / 31),
        (POD, 4, 8, "all_reduce", "Tree LL", 6.8 + 2 * (7 * 0.6 + 2 * 5), 48 * 0.92 / 3.8 / 2 * 0.4),
        (
            POD,
            4,
            8,
            "all_reduce",
            "Tree LL128",
            14 + 2 * (7 * 1.25 + 2 * 8.5),
            48 * 0.92 * 120 / 128 / 2 * 0.6,
        ),
        (replace(POD, split_tree=False), 1, 8, "all_reduce", "Tree Simple", 8.4 + 56, 110.4 * 0.85 / 2 * 0.5),
    ],
)
def test_each_has_the_latency_and_bandwidth_of_the_source(
    hardware, num_nodes, ranks_per_node, collective, pair, latency, bandwidth
):
    rows = considered(
        collective, 2**18, num_nodes=num_nodes, ranks_per_node=ranks_per_node, hardware=hardware
    )
    row = rows[tuple(pair.split())]

    assert row.latency_seconds == pytest.approx(latency * 1e-6, rel=1e-12)
    assert row.bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-12)


def test_over_nodes_a_ring_with_simple_has_a_plateau_and_a_tree_has_none():
    def seconds(nbytes, algorithm):
        rows = considered("all_reduce", nbytes, num_nodes=4, ranks_per_node=8, hardware=H100)
        return rows[algorithm, "Simple"].latency_seconds

    edge = 64 * 48 * 32  # bytes, channels of the communicator, ranks
    ring = 8.4 + (62 - 6) * 3.4 + 6 * 14

    assert seconds(edge - 1, "Ring") == pytest.approx(ring * 1e-6, rel=1e-12)
    assert seconds(edge, "Ring") == pytest.approx(1.4 * ring * 1e-6, rel=1e-12)
    assert seconds(edge - 1, "Tree") == seconds(edge, "Tree")
    assert seconds(edge, "Tree") == pytest.approx((8.4 + 2 * (7 * 4.0 + 2 * 14)) * 1e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("collective", "num_nodes", "ranks_per_node", "hardware", "algorithms"),
    [
        ("all_reduce", 1, 8, H100, {"Tree", "Ring", "NVLS"}),
        ("all_reduce", 1, 2, H100, {"Tree", "Ring"}),  # NVLS wants more than two GPUs
        ("all_reduce", 4, 8, H100, {"Tree", "Ring", "NVLSTree"}),
        ("all_reduce", 4, 8, COLLNET, {"Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree"}),
        ("all_reduce", 2, 16, COLLNET, {"Tree", "Ring", "NVLS", "NVLSTree"}),
        ("all_gather", 1, 8, H100, {"Ring", "NVLS"}),
        ("all_gather", 1, 64, H100, {"Ring"}),
        ("all_gather", 8, 1, H100, {"Ring", "PAT"}),
        ("reduce_scatter", 4, 8, H100, {"Ring"}),
        ("broadcast", 4, 8, H100, {"Ring"}),
        ("reduce", 1, 8, H100, {"Ring"}),
        ("reduce", 1, 8, replace(H100, ll128=False), {"Ring"}),
        ("reduce", 2, 8, replace(H100, ll128=False), {"Ring"}),
        ("reduce", 1, 8, replace(H100, intra_link="pci"), {"Ring"}),
    ],
)
def test_what_is_considered_depends_on_nodes_ranks_and_hardware(
    collective, num_nodes, ranks_per_node, hardware, algorithms
):
    rows = considered(collective, 1024, num_nodes=num_nodes, ranks_per_node=ranks_per_node, hardware=hardware)

    assert {algorithm for algorithm, _ in rows} == algorithms
    near = hardware.intra_link == "nvlink" and (num_nodes == 1 or hardware.ll128)
    assert (("Ring", "LL128") in rows) == near


def test_eight_gpus_choose_by_size_and_one_needs_no_time():
    choices = [
        predict("all_reduce", nbytes, num_nodes=1, ranks_per_node=8, hardware=H100)
        for nbytes in (2**10, 2**20, 2**23, 2**25, 2**28)
    ]
    alone = predict("all_reduce", 2**30, num_nodes=1, ranks_per_node=1, hardware=H100)

    said = [f"{chosen.algorithm} {chosen.protocol}" for chosen in choices]
    assert said == ["Ring LL", "Ring LL", "NVLS Simple", "Ring LL128", "Ring Simple"]
    assert (alone.algorithm, alone.protocol, alone.seconds) == ("Ring", "Simple", 0.0)


def pod(**fields: Hardware | None) -> Topology:
    described = nodes(3, 4, 4, intra_latency="1us", nic_bandwidth="100Gbps", name="pod")
    return replace(described, **{"hardware": H100, **fields})


@pytest.mark.parametrize(
    ("hosts", "num_nodes", "ranks_per_node"),
    [
        (range(12), 3, 4), (range(4), 1, 4), ([0, 1, 8, 9], 2, 2), ([11, 10, 3, 2, 7, 6], 3, 2),
        ([0, 4, 8], 3, 1),
    ],
)  # fmt: skip
def test_on_a_topology_the_nodes_are_those_of_the_places(hosts, num_nodes, ranks_per_node):
    found = predict_on(pod(), hosts, "all_reduce", 2**20)

    assert found == predict(
        "all_reduce", 2**20, num_nodes=num_nodes, ranks_per_node=ranks_per_node, hardware=H100
    )


def ask(collective: str = "all_reduce", nbytes: int = 1, num_nodes: int = 1, hardware: Hardware = H100):
    return predict(collective, nbytes, num_nodes=num_nodes, ranks_per_node=8, hardware=hardware)


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        (lambda: ask("gather"), "NCCL's model does not know gather; it knows all_reduce, "),
        (lambda: ask(num_nodes=2, hardware=replace(H100, several_nodes=None)),
         "on 2 nodes: the hardware names no channels"),
        (lambda: ask(nbytes=-1), "nbytes must be at least 0, got -1"),
        (lambda: ask(num_nodes=0), "num_nodes must be at least 1, got 0"),
        (lambda: predict_on(pod(hardware=None), range(12), "all_reduce", 1),
         "on pod: the network says nothing of its hardware"),
        (lambda: predict_on(pod(), range(6), "all_reduce", 1), "on pod: node 0 has 4 ranks and node 1 has 2"),
        (lambda: predict_on(pod(), [0, 4, 1, 5], "all_reduce", 1), "on pod: the ranks of a node do not"),
    ],
)  # fmt: skip
def test_what_the_model_does_not_know_or_is_not_for_is_refused_by_name(predicted, said):
    with pytest.raises((NotSupportedError, ValueError), match=said):
        predicted()


def test_the_constants_can_be_others():
    slower = replace(
        NCCL_2_30,
        base_latency={**NCCL_2_30.base_latency, "Ring": {"LL": 100.0, "LL128": 100.0, "Simple": 100.0}},
    )

    chosen = predict("all_reduce", 1024, num_nodes=1, ranks_per_node=8, hardware=H100, constants=slower)

    assert chosen.algorithm == "Tree"
