"""Transfers against closed forms and against an independent fluid simulator, with ``==``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import TopologyError, UnitError
from sim.network import Network
from sim.topology import Topology
from sim.topology.link_sharing import LinkSharing
from sim.units import SECOND, transfer_ps
from tests.sim.fluid import fluid
from tests.sim.networks import networks, sharing_tables

MIB = 2**20
HOP = 2_000_000  # ps: the 2 us of `switch_100g`


def switch_100g(num_ranks: int) -> Topology:
    return Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")


def arrivals(topology: Topology, messages: list[tuple[int, int, int, int]]) -> list[int]:
    """Return when each message (time sent in ps, source, destination, bytes) arrives."""
    env = simpy.Environment()
    network = Network(env, topology)
    arrived = [-1] * len(messages)

    def send(number: int, sent_ps: int, source: int, destination: int, nbytes: int):
        yield env.timeout(sent_ps)
        yield network.transfer(source, destination, nbytes)
        arrived[number] = env.now

    for number, message in enumerate(messages):
        env.process(send(number, *message))
    env.run()
    return arrived


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Topology, list[tuple[int, int, int, int]]]:
    """Return a network, slow or fast, and messages that meet on it."""
    slow = draw(st.booleans())
    bandwidth = st.integers(1, 30) if slow else st.integers(10**9, 10**12)
    topology = draw(networks(bandwidth, max_ranks=7).filter(lambda own: own.num_ranks > 1))
    if draw(st.booleans()):
        each = [draw(bandwidth) for _ in range(topology.num_links)]
        topology = replace(topology, link_bandwidth=np.array(each))
    if draw(st.booleans()):
        classes = [(1, draw(sharing_tables())) for _ in range(topology.num_links)]
        topology = replace(topology, sharing=LinkSharing.of(classes, topology.routing))
    sent = st.integers(0, 4).map(lambda s: s * SECOND) if slow else st.integers(0, 10**9)
    nbytes = st.integers(0, 100 if slow else 2**26)
    pairs = st.tuples(st.integers(0, topology.num_ranks - 1), st.integers(1, topology.num_ranks - 1)).map(
        lambda pair: (pair[0], (pair[0] + pair[1]) % topology.num_ranks)
    )
    messages = draw(st.lists(st.tuples(sent, pairs, nbytes), min_size=1, max_size=12))
    return topology, [(when, *pair, size) for when, pair, size in messages]


@given(traffic())
def test_arrivals_equal_those_of_a_brute_force_fluid_simulator(case):
    topology, messages = case

    assert arrivals(topology, messages) == fluid(topology, messages)


@given(traffic())
def test_a_run_repeats_and_does_not_depend_on_the_order_of_calls(case):
    topology, messages = case

    assert arrivals(topology, messages[::-1])[::-1] == arrivals(topology, messages)


@given(nbytes=st.integers(0, 2**45), bandwidth=st.integers(1, 10**13), latency_ps=st.integers(0, 10**10))
def test_a_flow_alone_takes_its_latency_and_its_transfer_time(nbytes, bandwidth, latency_ps):
    topology = Topology.switch(num_ranks=2, bandwidth=bandwidth, latency=f"{latency_ps}ps")

    (end,) = arrivals(topology, [(0, 0, 1, nbytes)])

    assert end == 2 * latency_ps + transfer_ps(nbytes, bandwidth)


def test_an_end_that_moves_away_and_back_happens_once():
    topology = Topology.switch(num_ranks=2, bandwidth=10, latency=0)
    messages = [(s * SECOND, 1, 0, nbytes) for s, nbytes in [(0, 20), (1, 88), (2, 28), (2, 50)]]

    assert arrivals(topology, messages) == fluid(topology, messages)


def test_an_empty_message_pays_only_latency():
    assert arrivals(switch_100g(2), [(5, 0, 1, 0)]) == [5 + 2 * HOP]


def test_flows_that_end_together_are_delivered_in_the_order_sent():
    env = simpy.Environment()
    network = Network(env, switch_100g(9))
    delivered: list[int] = []

    for source in (5, 3, 8, 1, 7):
        event = network.transfer(source, source - 1, MIB)
        event.callbacks.append(lambda _, source=source: delivered.append(source))
    env.run()

    assert delivered == [5, 3, 8, 1, 7]


def test_numbers_of_numpy_are_as_good_as_ints():
    nbytes = 2**40
    message = np.array([0, 0, 1, nbytes])

    assert arrivals(switch_100g(2), [tuple(message)]) == arrivals(switch_100g(2), [(0, 0, 1, nbytes)])


def test_link_bytes_count_what_crosses_each_link():
    env = simpy.Environment()
    network = Network(env, switch_100g(3))

    network.transfer(0, 1, 100)
    network.transfer(0, 2, 10)
    network.transfer(0, 2, 1)
    env.run()

    assert network.link_bytes.dtype == np.int64
    assert network.link_bytes.tolist() == [111, 0, 0, 0, 100, 11]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((0, 0, 1), TopologyError, "to itself"),
        ((0, 3, 1), TopologyError, "rank 3: switch has ranks 0 to 2"),
        ((-1, 0, 1), TopologyError, "rank -1"),
        ((0, 1, -5), UnitError, "has -5 bytes"),
    ],
)
def test_an_impossible_message_is_refused(arguments, error, said):
    network = Network(simpy.Environment(), switch_100g(3))

    with pytest.raises(error, match=said):
        network.transfer(*arguments)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
def test_unequal_flows_on_one_link_waste_no_time(sizes):
    topology = Topology.switch(num_ranks=2, bandwidth=10**9, latency=0)

    ends = arrivals(topology, [(0, 0, 1, size) for size in sizes])

    exact = transfer_ps(sum(sizes), 10**9)
    assert exact <= max(ends) <= exact + len(sizes)  # each end is rounded up to a picosecond
