"""Coflows against the same messages one by one through the network, with ``==``."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network import Network
from sim.network.coflow import MAX_CLASSES, Coflow
from sim.topology import Topology
from sim.units import transfer_ps
from tests.given import switch
from tests.sim.networks import sharing_networks


def ends_one_by_one(topology: Topology, coflow: Coflow, sizes: list[int]) -> list[int]:
    """Send so that all messages reach their links at one time; return how long each occupies them."""
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology)
    together = int(coflow.latency_ps.max())
    ends = [-1] * len(coflow)

    def send(number: int):
        yield env.timeout(together - int(coflow.latency_ps[number]))
        yield network.transfer(int(coflow.source[number]), int(coflow.destination[number]), sizes[number])
        ends[number] = env.now - together

    for number in range(len(coflow)):
        env.process(send(number))
    env.run()
    return ends


@st.composite
def coflows(draw: st.DrawFn) -> tuple[Topology, Coflow, list[int]]:
    topology = draw(
        sharing_networks(st.integers(100, 10**12)).filter(lambda topology: topology.num_ranks > 1)
    )
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
    return topology, Coflow.between(topology, source, destination), sizes


@given(coflows())
def test_a_coflow_ends_as_its_messages_do_one_by_one(case: tuple[Topology, Coflow, list[int]]) -> None:
    topology, coflow, sizes = case

    durations = coflow.durations_ps(np.array(sizes))

    if durations is not None:
        assert durations.tolist() == ends_one_by_one(topology, coflow, sizes)


@given(coflows())
def test_equal_sizes_may_be_given_as_one_number(case: tuple[Topology, Coflow, list[int]]) -> None:
    _, coflow, sizes = case
    one, each = coflow.durations_ps(sizes[0]), coflow.durations_ps(np.full(len(coflow), sizes[0]))

    assert (one is None and each is None) or np.array_equal(one, each)


def all_pairs(num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(s, d) for s in range(num_ranks) for d in range(num_ranks) if s != d]
    source, destination = np.array(pairs).T
    return source, destination


def test_an_all_to_all_whose_last_part_is_shorter_ends_in_two_phases() -> None:
    coflow = Coflow.between(switch(64), *all_pairs(64))
    sizes = np.where(coflow.destination == 63, 500_000, 1_000_000)

    durations = coflow.durations_ps(sizes)

    assert durations is not None
    assert set(durations[sizes == 500_000]) == {transfer_ps(500_000 * 63, 12_500_000_000)}
    assert set(durations[sizes == 1_000_000]) == {transfer_ps(1_000_000 * 63, 12_500_000_000)}


def test_messages_without_symmetry_have_no_common_answer() -> None:
    sizes = np.arange(1, 2 * MAX_CLASSES)
    zeros = np.zeros_like(sizes)

    assert Coflow.between(switch(2), zeros, zeros + 1).durations_ps(sizes) is None


@pytest.mark.parametrize("num_ranks", [2, 9])
def test_messages_that_share_no_link_take_to_them_whenever_they_like(num_ranks: int) -> None:
    ring = np.arange(num_ranks)
    coflow = Coflow.between(switch(num_ranks), ring, (ring + 1) % num_ranks)

    assert not coflow.shares
    assert coflow.is_together(ring)


def test_messages_on_one_link_are_together_only_at_one_time() -> None:
    coflow = Coflow.between(switch(3), np.array([0, 0, 1]), np.array([1, 2, 2]))

    assert coflow.is_together(np.array([5, 5, 5]))
    assert not coflow.is_together(np.array([5, 6, 6]))
