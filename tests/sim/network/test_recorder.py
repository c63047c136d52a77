"""A recorder knows how full every link is, and changes nothing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.network.recorder import WHOLE, Recorder
from sim.topology import Topology
from sim.units import transfer_ps
from tests.sim.fluid import Message
from tests.sim.networks import networks, pairs_of
from tests.sim.sending import arrivals, network_on


@st.composite
def cases(draw: st.DrawFn) -> tuple[Topology, list[Message]]:
    topology = draw(networks(bandwidth=st.integers(1, 10**6)).filter(lambda own: own.num_ranks > 1))
    times, pairs = st.sampled_from([0, 1, 10**6, 10**12]), st.sampled_from(pairs_of(topology))
    messages = draw(st.lists(st.tuples(times, pairs, st.integers(1, 1000)), min_size=1, max_size=12))
    return topology, [(sent_ps, *pair, nbytes) for sent_ps, pair, nbytes in messages]


def recorded(topology: Topology, messages: list[Message]) -> tuple[Recorder, list[int]]:
    """Return what was recorded of *messages*, and when they arrive."""
    recorder = Recorder(topology)
    return recorder, arrivals(network_on(topology, recorder), messages)


@given(cases())
def test_a_link_is_never_more_than_full_and_empty_at_the_end(case):
    topology, messages = case

    recorder, ends = recorded(topology, messages)

    for link, nbytes in enumerate(recorder.link_bytes.tolist()):
        timeline = recorder.timeline(link)
        assert all(0 <= filled <= WHOLE for _, filled in timeline)
        assert all(old[0] < new[0] and old[1] != new[1] for old, new in pairwise(timeline))
        assert timeline[-1][1] == 0
        assert timeline[-1][0] <= max(ends)
        least = transfer_ps(nbytes, int(topology.link_bandwidth[link]))
        assert recorder.saturated_ps[link] <= least + len(messages)


@given(cases())
def test_a_message_alone_saturates_its_narrowest_links(case):
    topology, (message, *_) = case
    _, source, destination, nbytes = message

    recorder, _ = recorded(topology, [message])

    route = topology.route(source, destination)
    narrowest = min(int(topology.link_bandwidth[link]) for link in route)
    expected = [
        transfer_ps(nbytes, narrowest) if link in route and bandwidth == narrowest else 0
        for link, bandwidth in enumerate(topology.link_bandwidth.tolist())
    ]
    assert recorder.saturated_ps.tolist() == expected


def test_links_fill_and_empty_as_flows_come_and_go():
    topology = Topology.switch(num_ranks=3, bandwidth=3 * 10**6, latency="0s")

    recorder, _ = recorded(topology, [(0, 0, 2, 3), (10**6, 1, 2, 3)])  # a byte takes 1/3 µs

    assert recorder.timeline(5) == [(0, WHOLE), (2 * 10**6, 0)]
    assert recorder.timeline(0) == [(0, WHOLE), (10**6, 0)]
    assert recorder.saturated_ps.tolist() == [10**6, 10**6, 0, 0, 0, 2 * 10**6]


@pytest.mark.parametrize("num_flows", [2, 3, 7])
def test_a_link_whose_shares_do_not_come_out_is_full_all_the_same(num_flows):
    topology = Topology.switch(num_ranks=num_flows + 1, bandwidth=10**6, latency="0s")

    recorder, ends = recorded(topology, [(0, rank, num_flows, 10) for rank in range(num_flows)])

    assert recorder.saturated_ps[-1] == ends[0] == num_flows * 10**7
    assert recorder.timeline(0) == [(0, WHOLE // num_flows), (ends[0], 0)]
