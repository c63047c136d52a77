"""A recorder knows how full every link is, and changes nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network import Network
from sim.network.recorder import WHOLE, Recorder
from sim.topology import Topology
from sim.units import transfer_ps
from tests.sim.networks import networks

Transfers = list[tuple[int, int, int, int]]


def run(topology: Topology, transfers: Transfers, recorder: Recorder | None) -> tuple[Network, list[int]]:
    """Send (source, destination, bytes, when) each; return the network, and when they arrive."""
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology, recorder)
    arrivals = [-1] * len(transfers)

    def send(number: int, source: int, destination: int, nbytes: int, start_ps: int) -> Any:
        yield env.timeout(start_ps)
        yield network.transfer(source, destination, nbytes)
        arrivals[number] = int(env.now)

    for number, transfer in enumerate(transfers):
        env.process(send(number, *transfer))
    env.run()
    return network, arrivals


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, Transfers]:
    topology = draw(networks(bandwidth=st.integers(1, 10**6)).filter(lambda own: own.num_ranks > 1))
    ranks = st.integers(0, topology.num_ranks - 1)
    pairs = st.tuples(ranks, ranks).filter(lambda pair: pair[0] != pair[1])
    rest = st.tuples(st.integers(1, 1000), st.sampled_from([0, 1, 10**6, 10**12]))
    transfers = draw(st.lists(st.tuples(pairs, rest), min_size=1, max_size=12))
    return topology, [(*pair, *other) for pair, other in transfers]


@given(cases())
def test_bytes_and_ends_are_those_of_the_network(case: tuple[Topology, Transfers]) -> None:
    topology, transfers = case
    recorder = Recorder(topology)

    network, arrivals = run(topology, transfers, recorder)

    assert arrivals == run(topology, transfers, None)[1]
    assert recorder.link_bytes.tolist() == network.link_bytes.tolist()


@given(cases())
def test_a_link_is_never_more_than_full_and_empty_at_the_end(case: tuple[Topology, Transfers]) -> None:
    topology, transfers = case
    recorder = Recorder(topology)

    _, arrivals = run(topology, transfers, recorder)

    for link, nbytes in enumerate(recorder.link_bytes.tolist()):
        timeline = recorder.timeline(link)
        assert all(0 <= filled <= WHOLE for _, filled in timeline)
        assert all(old[0] < new[0] and old[1] != new[1] for old, new in pairwise(timeline))
        assert timeline[-1][1] == 0
        assert timeline[-1][0] <= max(arrivals)
        least = transfer_ps(nbytes, int(topology.link_bandwidth[link]))
        assert recorder.saturated_ps[link] <= least + len(transfers)


@given(cases())
def test_a_message_alone_saturates_its_narrowest_links(case: tuple[Topology, Transfers]) -> None:
    topology, ((source, destination, nbytes, start_ps), *_) = case
    recorder = Recorder(topology)

    run(topology, [(source, destination, nbytes, start_ps)], recorder)

    route = topology.route(source, destination)
    narrowest = min(int(topology.link_bandwidth[link]) for link in route)
    expected = [
        transfer_ps(nbytes, narrowest) if link in route and bandwidth == narrowest else 0
        for link, bandwidth in enumerate(topology.link_bandwidth.tolist())
    ]
    assert recorder.saturated_ps.tolist() == expected


def test_links_fill_and_empty_as_flows_come_and_go() -> None:
    topology = Topology.switch(num_ranks=3, bandwidth=3 * 10**6, latency="0s")
    recorder = Recorder(topology)

    run(topology, [(0, 2, 3, 0), (1, 2, 3, 10**6)], recorder)  # a byte takes 1/3 µs

    assert recorder.timeline(5) == [(0, WHOLE), (2 * 10**6, 0)]
    assert recorder.timeline(0) == [(0, WHOLE), (10**6, 0)]
    assert recorder.saturated_ps.tolist() == [10**6, 10**6, 0, 0, 0, 2 * 10**6]


@pytest.mark.parametrize("num_flows", [2, 3, 7])
def test_a_link_whose_shares_do_not_come_out_is_full_all_the_same(num_flows: int) -> None:
    topology = Topology.switch(num_ranks=num_flows + 1, bandwidth=10**6, latency="0s")
    recorder = Recorder(topology)

    _, arrivals = run(topology, [(rank, num_flows, 10, 0) for rank in range(num_flows)], recorder)

    assert recorder.saturated_ps[-1] == arrivals[0] == num_flows * 10**7
    assert recorder.timeline(0) == [(0, WHOLE // num_flows), (arrivals[0], 0)]
