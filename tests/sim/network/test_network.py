"""Transfers against closed forms, with ``==``; whatever else happens is `test_link_events`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.topology import Topology
from sim.units import SECOND, transfer_ps
from tests.given import switch
from tests.sim.fluid import fluid
from tests.sim.sending import arrivals, network_on


@given(nbytes=st.integers(0, 2**45), bandwidth=st.integers(1, 10**13), latency_ps=st.integers(0, 10**10))
def test_a_flow_alone_takes_its_latency_and_its_transfer_time(nbytes, bandwidth, latency_ps):
    topology = Topology.switch(num_ranks=2, bandwidth=bandwidth, latency=f"{latency_ps}ps")

    (end,) = arrivals(network_on(topology), [(5, 0, 1, nbytes)])

    assert end == 5 + 2 * latency_ps + transfer_ps(nbytes, bandwidth)


def test_an_end_that_moves_away_and_back_happens_once():
    topology = Topology.switch(num_ranks=2, bandwidth=10, latency=0)
    messages = [(s * SECOND, 1, 0, nbytes) for s, nbytes in [(0, 20), (1, 88), (2, 28), (2, 50)]]

    assert arrivals(network_on(topology), messages) == fluid(topology, messages)


def test_flows_that_end_together_are_delivered_in_the_order_sent():
    network = network_on(switch(9))
    delivered = []

    for source in (5, 3, 8, 1, 7):
        event = network.transfer(source, source - 1, 2**20)
        event.callbacks.append(lambda _, source=source: delivered.append(source))
    network.env.run()

    assert delivered == [5, 3, 8, 1, 7]


def test_numbers_of_numpy_are_as_good_as_ints():
    message = (0, 0, 1, 2**40)

    of_numpy, of_python = (
        arrivals(network_on(switch(2)), [own]) for own in (tuple(np.array(message)), message)
    )

    assert of_numpy == of_python


def test_link_bytes_count_what_crosses_each_link():
    network = network_on(switch(3))

    arrivals(network, [(0, 0, 1, 100), (0, 0, 2, 10), (0, 0, 2, 1)])

    assert network.link_bytes.dtype == np.int64
    assert network.link_bytes.tolist() == [111, 0, 0, 0, 100, 11]
