"""Closed forms: token exchange in two levels, and reduction in the network."""

from dataclasses import replace
from itertools import combinations
from statistics import mean

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collectives import NotSupportedError, simulate
from collectives.timing.floor import floor_ps
from collectives.timing.formulas.in_network import ONE_SWITCH, SEVERAL_SWITCHES, in_network_ps
from collectives.timing.formulas.token_exchange import Exchanged, exchange_us
from sim import Topology, load_network
from sim.hardware import Channels, Hardware
from sim.topology.placement import neighbourhoods
from sim.units import transfer_ps
from tests.given import nodes as plain_nodes


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.data())
def test_copies_are_the_ranks_and_nodes_that_a_drawn_token_reaches(nodes, per_node, each, data):
    ranks = nodes * per_node
    experts = ranks * each
    chosen = data.draw(st.integers(1, experts))

    own = Exchanged(1, 64, chosen, experts, ranks, per_node)

    taken = list(combinations(range(experts), chosen))
    assert own.copies == pytest.approx(mean(len({e // each for e in one}) for one in taken))
    reached = mean(len({e // each // per_node for e in one}) for one in taken)
    assert own.leaving == pytest.approx(reached * (nodes - 1) / nodes)


def test_with_enough_multiprocessors_many_tokens_take_what_their_rail_takes():
    topology = load_network("dgx-h100").topology(32)
    own = Exchanged(1 << 20, 7168, 8, 256, 32, 8)
    rail = min(int(topology.link_bandwidth[link]) for link in topology.route(0, 8))

    seconds = exchange_us("combine", own, topology, 132) / 1e6

    assert seconds == pytest.approx(own.leaving * 2 * 7168 * own.tokens / (0.91 * rail), rel=1e-3)


def test_what_does_not_divide_and_what_is_no_known_gpu_is_refused():
    with pytest.raises(NotSupportedError, match="10 experts of which a token takes 2, on 4 ranks"):
        Exchanged(1, 64, 2, 10, 4, 2)
    with pytest.raises(NotSupportedError, match="hopper or blackwell, got ampere"):
        exchange_us("dispatch", Exchanged(1, 64, 2, 8, 8, 8), load_network("dgx-a100").topology(8), 24)


CHANNELS = Channels.of(8, "40GB/s")
HOPPER = Hardware("hopper", CHANNELS, nvls_one_node=CHANNELS)
BLACKWELL = Hardware("blackwell", CHANNELS, nvls_one_node=CHANNELS)


def switch(num_ranks: int, rate: int = 450 * 10**9, **fields) -> Topology:
    flat = Topology.switch(num_ranks=num_ranks, bandwidth=rate, latency="300ns")
    return replace(flat, **{"in_network_reduction": True, **fields})


def nodes(num_nodes: int, ranks_per_node: int, nics_per_node: int = 1, **fields) -> Topology:
    own = {"intra_bandwidth": "450GB/s", "intra_latency": "300ns", "nic_bandwidth": "50GB/s"}
    flat = plain_nodes(num_nodes, ranks_per_node, nics_per_node, nic_latency="1us", **own)
    return replace(flat, **{"in_network_reduction": True, **fields})


@pytest.mark.parametrize(
    ("collective", "passes", "amount"),
    [("all_reduce", 2, 1001 + 126), *((name, 1, 1001) for name in ONE_SWITCH if name != "all_reduce")],
)
@pytest.mark.parametrize(("hardware", "percent"), [(None, 100), (HOPPER, 85), (BLACKWELL, 74)])
def test_on_one_switch_a_buffer_passes_once_and_in_an_all_reduce_a_part_more(
    collective, passes, amount, hardware, percent
):
    topology = switch(8, rate=10**9, hardware=hardware)

    assert in_network_ps(collective, 1001, topology, range(8)) == passes * 600_000 + transfer_ps(
        amount, 10**7 * percent
    )


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**9)), min_size=2, max_size=8))
def test_the_slowest_link_and_the_longest_wires_up_and_down_count(links):
    latency, rate = np.array(links * 2, dtype=np.int64).T
    latency[len(links) :] = latency[: len(links)][::-1] * 3
    topology = replace(switch(len(links)), link_latency=latency, link_bandwidth=rate)

    time = in_network_ps("reduce_scatter", 10**6, topology, range(len(links)))

    up = max(latency[: len(links)])
    assert time == up + 3 * up + transfer_ps(10**6, int(min(rate)))


def test_over_nodes_parts_are_scattered_in_the_node_go_round_by_the_cards_and_are_gathered():
    topology = nodes(4, 8, nics_per_node=4, hardware=HOPPER)
    in_node = 600_000 + transfer_ps(2**30, 450 * 10**9 * 85 // 100)
    ring_step = 2_000_000 + transfer_ps(2 * 2**30 // 8 // 4, 50 * 10**9)  # two ranks share a card

    def time(collective):
        return in_network_ps(collective, 2**30, topology, range(32))

    assert time("reduce_scatter") == time("all_gather") == in_node + 3 * ring_step
    assert time("all_reduce") == 2 * (in_node + 3 * ring_step)


@given(st.sampled_from(SEVERAL_SWITCHES), st.integers(1, 10**9), st.integers(2, 9))
def test_with_one_rank_in_each_node_it_is_our_ring(collective, nbytes, num_nodes):
    topology = nodes(num_nodes, 1)

    time = in_network_ps(collective, nbytes, topology, range(num_nodes))

    assert time == simulate("ring", nbytes=nbytes, topology=topology, collective=collective).time_ps


def leaves(num_leaves: int, ranks_per_leaf: int, num_spines: int, **fields) -> Topology:
    rates = {"bandwidth": "100Gbps", "uplink_bandwidth": "200Gbps", "latency": "2us"}
    shape = {"num_ranks": num_leaves * ranks_per_leaf, "hosts_per_leaf": ranks_per_leaf}
    flat = Topology.leaf_spine(**shape, num_spines=num_spines, **rates)
    return replace(flat, **{"in_network_reduction": True, **fields})


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topology, list[int]]:
    """Return a network that reduces, and places on it: equally many of each node or leaf."""
    hardware = draw(st.sampled_from([None, HOPPER, BLACKWELL]))
    kind = draw(st.sampled_from(["switch", "leaves", "nodes"]))
    if kind == "switch":
        topology = switch(draw(st.integers(1, 12)), rate=draw(st.integers(1, 10**12)), hardware=hardware)
        size = draw(st.integers(1, topology.num_ranks))
        return topology, draw(st.permutations(range(topology.num_ranks)))[:size]
    num_nodes, per_card, cards = draw(st.tuples(*[st.integers(1, 4)] * 3))
    per_node = per_card * cards
    topology = nodes(num_nodes, per_node, cards, hardware=hardware)
    if kind == "leaves":
        topology = leaves(num_nodes, per_node, num_spines=cards, hardware=hardware)
    used = draw(st.permutations(range(num_nodes)))[: draw(st.integers(1, num_nodes))]
    size = draw(st.integers(1, per_node))
    hosts = [node * per_node + k for node in used for k in draw(st.permutations(range(per_node)))[:size]]
    return topology, draw(st.permutations(hosts))


@given(groups(), st.sampled_from(ONE_SWITCH), st.integers(0, 10**12), st.integers(0, 10**9))
def test_it_is_never_below_the_floor_and_never_quicker_for_more_bytes(group, collective, nbytes, more):
    topology, hosts = group
    on_switches = len(set(neighbourhoods(topology)[hosts].tolist()))
    assume(collective in SEVERAL_SWITCHES or on_switches == 1)
    time = in_network_ps(collective, nbytes, topology, hosts)

    for root in {0, len(hosts) - 1}:
        assert time >= floor_ps(collective, nbytes, topology, root, hosts, in_network=True)
    assert time <= in_network_ps(collective, nbytes + more, topology, hosts)


@pytest.mark.parametrize(
    ("preset", "num_gpus", "nbytes", "microseconds"),
    [  # published all-reduce times; see docs/modelling_nccl.md
        ("dgx-h100", 8, 17179869184, 62239),
        ("aws-p6-b200", 8, 17179869184, 35551.4),
        ("gb200-nvl72", 4, 8589934592, 19424),
    ],
)
def test_on_the_presets_measured_all_reduces_of_one_nvlink_domain_are_met_within_five_percent(
    preset, num_gpus, nbytes, microseconds
):
    topology = load_network(preset).topology(num_gpus)

    time = in_network_ps("all_reduce", nbytes, topology, range(num_gpus))

    assert time / 1e6 == pytest.approx(microseconds, rel=0.05)


def test_one_rank_or_no_bytes_take_no_time_and_fewer_are_refused():
    assert in_network_ps("all_reduce", 100, switch(8), [3]) == 0
    assert in_network_ps("all_reduce", 0, switch(8), range(8)) == 0
    with pytest.raises(ValueError, match="nbytes must be at least 0, got -1"):
        in_network_ps("all_reduce", -1, switch(8), range(8))


AMPERE = Hardware("ampere", CHANNELS)

RING = replace(Topology.ring(num_ranks=8, bandwidth=1, latency=0), in_network_reduction=True)


@pytest.mark.parametrize(
    ("collective", "topology", "num_ranks", "message"),
    [
        ("all_reduce", switch(8, in_network_reduction=False), 8, "its switches do not reduce; use an alg"),
        ("all_to_all", switch(8), 8, "on one switch, only all_reduce, reduce_scatter, all_gather, broad"),
        ("broadcast", nodes(2, 4), 8, "on 2 switches, only all_reduce, reduce_scatter, all_gather are"),
        ("all_reduce", nodes(2, 4), 6, "4 ranks on one switch and 2 on another"),
        ("all_reduce", switch(8, hardware=AMPERE), 8, "ampere GPUs have no switches that reduce"),
        ("all_reduce", RING, 8, "its ranks hang on no switch"),
        ("all_reduce", replace(RING, ranks_per_node=4), 8, "the ranks at places 0, 1, 2, 3 hang on no comm"),
    ],
)
def test_what_it_is_not_for_is_refused_by_name(collective, topology, num_ranks, message):
    with pytest.raises(NotSupportedError, match=f"in-network {collective} on {topology.name}: {message}"):
        in_network_ps(collective, 1, topology, range(num_ranks))


@given(st.integers(0, 10**6), st.sampled_from(["dgx-h100", "aws-p6-b200"]))
def test_on_a_network_of_gpus_its_kernel_is_launched_once(nbytes: int, network: str) -> None:
    description = load_network(network)
    launched = simulate("nvls", nbytes=nbytes, network=description, num_ranks=8, step_overhead="9us")

    assert (
        launched.time_ps
        == simulate("nvls", nbytes=nbytes, topology=description.topology(8)).time_ps + 9 * 10**6
    )
