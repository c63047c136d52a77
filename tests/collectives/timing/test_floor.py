"""Floors agree with counting, part by part, what must cross each cut; no program goes below them."""

from collections.abc import Iterator
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotExactError, NotSupportedError
from collectives.algorithms import ALGORITHMS
from collectives.program.chunking import Chunking
from collectives.program.contracts import CONTRACTS
from collectives.timing.floor import _crossing, floor_ps
from collectives.timing.rows.makespan import Makespan
from sim import Topology
from sim.units import SECOND
from tests.sim.networks import networks, sharing_networks

LINKS = {"bandwidth": "100Gbps", "latency": "2us"}
ROOTED = ("broadcast", "reduce", "gather", "scatter")
COLLECTIVES = sorted(CONTRACTS)


class Item(NamedTuple):
    """Bytes that ranks *sources* have, or have terms of, and ranks *sinks* need."""

    nbytes: int
    sources: set[int]
    sinks: set[int]


def items(collective: str, nbytes: int, num_ranks: int, root: int) -> Iterator[Item]:
    """Yield what a collective moves: part r of ceil(n/p) bytes is rank r's; the last ones are shorter."""
    share = -(-nbytes // num_ranks)
    everyone = set(range(num_ranks))
    for part in range(num_ranks):
        size = min((part + 1) * share, nbytes) - min(part * share, nbytes)
        match collective:
            case "all_reduce":
                yield Item(size, everyone, everyone)
            case "reduce_scatter":
                yield Item(size, everyone, {part})
            case "all_gather":
                yield Item(size, {part}, everyone)
            case "broadcast":
                yield Item(size, {root}, everyone)
            case "reduce":
                yield Item(size, everyone, {root})
            case "scatter":
                yield Item(size, {root}, {part})
            case "gather":
                yield Item(size, {part}, {root})
            case "all_to_all":
                yield from (Item(size, {source}, {part}) for source in everyone)


def counted_floor(
    collective: str, nbytes: int, topology: Topology, root: int, hosts: list[int], in_network: bool
) -> int:
    """Return the floor over all cuts, counted item by item."""
    bounds = [0]
    for cut in topology.routing.cuts():
        group = [int(cut.group_of[place]) for place in hosts]
        present = sorted({*group} - {-1})
        out, into = dict.fromkeys(present, 0), dict.fromkeys(present, 0)
        together = 0
        for size, sources, sinks in items(collective, nbytes, len(hosts), root):
            start, end = ({group[rank] for rank in ranks} for ranks in (sources, sinks))
            for number in present:
                out[number] += size * (number in start and bool(end - {number}))
                into[number] += size * (number in end and bool(start - {number}))
            crossings = len(start | end) - 1
            if collective == "all_reduce":
                crossings *= 2
            together += size * crossings
        rate = topology.link_bandwidth
        for number in present:
            for needed, links in ((out, cut.links_out), (into, cut.links_in)):
                width = sum(int(rate[link]) for link in links[number] if link >= 0)
                bounds.append(needed[number] * SECOND // width if needed[number] else 0)
        leaving = {int(link) for number in present for link in cut.links_out[number] if link >= 0}
        width = sum(int(rate[link]) for link in leaving)
        least = sum(out.values())
        if not in_network and -1 not in group:
            least = max(least, together)
        bounds.append(least * SECOND // width if least else 0)
    return max(bounds)


@given(
    topology=sharing_networks(max_ranks=10),
    collective=st.sampled_from(COLLECTIVES),
    nbytes=st.integers(1, 2**40),
    in_network=st.booleans(),
    data=st.data(),
)
def test_a_floor_is_that_of_counting_what_must_cross_or_the_latency(
    topology, collective, nbytes, in_network, data
):
    order = data.draw(st.permutations(range(topology.num_ranks)))
    hosts = order[: data.draw(st.integers(1, len(order)))]
    root = data.draw(st.integers(0, len(hosts) - 1))

    floor = floor_ps(collective, nbytes, topology, root, hosts, in_network=in_network)

    counted = counted_floor(collective, nbytes, topology, root, hosts, in_network)
    latency = floor_ps(collective, 1, topology, root, hosts, in_network=True)
    if len(hosts) == 1:
        assert floor == 0
    else:
        assert max(counted, 0) <= floor <= max(counted, latency)


@given(
    topology=networks(max_ranks=9),
    shipped=st.sampled_from(ALGORITHMS),
    nbytes=st.sampled_from([1, 1000, 2**20]),
    data=st.data(),
)
def test_no_program_is_below_the_floor_wherever_its_ranks_are(topology, shipped, nbytes, data):
    hosts = data.draw(st.permutations(range(topology.num_ranks)))[: data.draw(st.integers(1, 9))]
    start = np.zeros(len(hosts), dtype=np.int64)

    try:
        chunking = Chunking.of(shipped, len(hosts), nbytes, 1)
        done = Makespan(topology, hosts).run(shipped, chunking, start)
    except (NotSupportedError, NotExactError):
        return

    assert int(done.max()) >= floor_ps(shipped.collective, nbytes, topology, hosts=hosts)


def test_on_a_switch_the_floors_are_the_known_ones():
    switch = Topology.switch(num_ranks=8, **LINKS)
    nbytes = 8 * 12_500_000  # 8 ms at the rate of a link
    millisecond = SECOND // 1000
    known = {"all_reduce": 14, "broadcast": 8, "reduce": 8}  # 2(p-1)/p; of others (p-1)/p

    for collective in COLLECTIVES:
        assert floor_ps(collective, nbytes, switch) == known.get(collective, 7) * millisecond, collective
    assert floor_ps("all_reduce", nbytes, switch, in_network=True) == 8 * millisecond
    assert floor_ps("all_reduce", 8, switch) == 4_000_000


def test_latency_counts_on_the_quickest_path_though_no_route_takes_it():
    links = [("a", "b", 10**9, 10**9), ("b", "a", 10**9, 10**9)]
    relay = [(*ends, 10**9, 10**5) for ends in (("a", "c"), ("c", "a"), ("b", "c"), ("c", "b"))]
    graph = Topology.graph(ranks=["a", "b", "c"], links=links + relay)

    assert graph.link_latency[list(graph.route(0, 1))].sum() == 10**9
    assert floor_ps("broadcast", 1, graph) == 2 * 10**5
    assert floor_ps("broadcast", 1, Topology.graph(ranks=["a", "b"], links=links)) == 10**9


def test_latency_counts_away_from_the_root_or_towards_it():
    graph = Topology.graph(ranks=["a", "b"], links=[("a", "b", 10**9, 10**5), ("b", "a", 10**9, 10**6)])

    assert [floor_ps(collective, 1, graph) for collective in ROOTED] == [10**5, 10**6, 10**6, 10**5]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_the_floor_of_sixteen_thousand_ranks_is_reckoned_once_for_those_alike(collective):
    switch = Topology.switch(num_ranks=16_384, **LINKS)
    hosts = np.random.default_rng(0).permutation(16_384)

    with mock.patch("collectives.timing.floor._crossing", wraps=_crossing) as crossing:
        floor_ps(collective, 2**30 + 1, switch, hosts=hosts)

    assert 0 < crossing.call_count <= 3  # ranks alike, the last with less, and the root


def test_a_collective_without_a_floor_is_an_error():
    with pytest.raises(ValueError, match="no floor is known for gossip"):
        floor_ps("gossip", 1, Topology.switch(num_ranks=2, **LINKS))
