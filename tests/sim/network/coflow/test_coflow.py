"""Flights against the same messages one by one through the network, with ``==``."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network import Network
from sim.network.coflow import MAX_CLASSES, Flight
from sim.topology import Topology
from sim.units import transfer_ps
from tests.sim.networks import networks


def ends_one_by_one(topology: Topology, flight: Flight, sizes: list[int]) -> list[int]:
    """Send so that all messages reach their links at one time; return how long each occupies them."""
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology)
    together = int(flight.latency_ps.max())
    ends = [-1] * len(flight)

    def send(number: int):
        yield env.timeout(together - int(flight.latency_ps[number]))
        yield network.transfer(int(flight.source[number]), int(flight.destination[number]), sizes[number])
        ends[number] = env.now - together

    for number in range(len(flight)):
        env.process(send(number))
    env.run()
    return ends


@st.composite
def flights(draw: st.DrawFn) -> tuple[Topology, Flight, list[int]]:
    topology = draw(networks().filter(lambda topology: topology.num_ranks > 1))
    p = topology.num_ranks
    shifts = st.lists(st.integers(1, p - 1), min_size=1, max_size=3)
    if draw(st.booleans()):
        pairs = [(rank, (rank + shift) % p) for shift in draw(shifts) for rank in range(p)]
    else:
        pair = st.tuples(st.integers(0, p - 1), st.integers(1, p - 1))
        pairs = [(rank, (rank + ahead) % p) for rank, ahead in draw(st.lists(pair, min_size=1, max_size=12))]
    usual = draw(st.integers(0, 10**6))
    size = st.just(usual) | st.integers(0, 10**6) if draw(st.booleans()) else st.just(usual)
    sizes = draw(st.lists(size, min_size=len(pairs), max_size=len(pairs)))
    source, destination = np.array(pairs).T
    return topology, Flight.between(topology, source, destination), sizes


@given(flights())
def test_a_flight_ends_as_its_messages_do_one_by_one(case: tuple[Topology, Flight, list[int]]) -> None:
    topology, flight, sizes = case

    durations = flight.durations_ps(np.array(sizes))

    if durations is not None:
        assert durations.tolist() == ends_one_by_one(topology, flight, sizes)


@given(flights())
def test_equal_sizes_may_be_given_as_one_number(case: tuple[Topology, Flight, list[int]]) -> None:
    _, flight, sizes = case
    one, each = flight.durations_ps(sizes[0]), flight.durations_ps(np.full(len(flight), sizes[0]))

    assert (one is None and each is None) or np.array_equal(one, each)


def switch(num_ranks: int) -> Topology:
    return Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")


def all_pairs(num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(s, d) for s in range(num_ranks) for d in range(num_ranks) if s != d]
    source, destination = np.array(pairs).T
    return source, destination


def test_an_all_to_all_whose_last_part_is_shorter_ends_in_two_phases() -> None:
    flight = Flight.between(switch(64), *all_pairs(64))
    sizes = np.where(flight.destination == 63, 500_000, 1_000_000)

    durations = flight.durations_ps(sizes)

    assert durations is not None
    assert set(durations[sizes == 500_000]) == {transfer_ps(500_000 * 63, 12_500_000_000)}
    assert set(durations[sizes == 1_000_000]) == {transfer_ps(1_000_000 * 63, 12_500_000_000)}


def test_messages_without_symmetry_have_no_common_answer() -> None:
    sizes = np.arange(1, 2 * MAX_CLASSES)
    zeros = np.zeros_like(sizes)

    assert Flight.between(switch(2), zeros, zeros + 1).durations_ps(sizes) is None


@pytest.mark.parametrize("num_ranks", [2, 9])
def test_messages_that_share_no_link_take_to_them_whenever_they_like(num_ranks: int) -> None:
    ring = np.arange(num_ranks)
    flight = Flight.between(switch(num_ranks), ring, (ring + 1) % num_ranks)

    assert not flight.shares
    assert flight.is_together(ring)


def test_messages_on_one_link_are_together_only_at_one_time() -> None:
    flight = Flight.between(switch(3), np.array([0, 0, 1]), np.array([1, 2, 2]))

    assert flight.is_together(np.array([5, 5, 5]))
    assert not flight.is_together(np.array([5, 6, 6]))
