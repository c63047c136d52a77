"""Messages launched together arrive as they do when each is sent by itself, whoever else comes along."""

from __future__ import annotations

from typing import Any

import numpy as np
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network import Network
from sim.network.coflow import Coflow, CoflowAccelerator, CoflowLaunch
from sim.topology import Topology
from tests.sim.networks import sharing_networks

Launch = tuple[int, list[tuple[int, int]], list[int], bool]
"""When (ps), the pairs, their sizes, and whether only every other message is sent."""


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Topology, list[Launch]]:
    bandwidth = st.sampled_from([10**9, 3 * 10**9]) | st.integers(10**9, 10**12)
    topology = draw(sharing_networks(bandwidth, max_ranks=20).filter(lambda topology: topology.num_ranks > 1))
    p = topology.num_ranks
    launches = []
    for _ in range(draw(st.integers(1, 4))):
        shifts = draw(st.lists(st.integers(1, p - 1), min_size=1, max_size=2))
        pairs = [(rank, (rank + shift) % p) for shift in shifts for rank in range(p)]
        pairs = pairs[: draw(st.sampled_from([1, 3, len(pairs), len(pairs)]))]
        usual = draw(st.integers(1, 10**6))
        sizes = [usual] * len(pairs)
        for _ in range(draw(st.integers(0, 2))):
            sizes[draw(st.integers(0, len(pairs) - 1))] = draw(st.integers(1, 10**6))
        launches.append((draw(st.integers(0, 3) | st.integers(0, 10**9)), pairs, sizes, draw(st.booleans())))
    return topology, launches


def messages_of(launch: Launch) -> list[int]:
    return list(range(0, len(launch[1]), 2 if launch[3] else 1))


def together(
    topology: Topology, launches: list[Launch], accelerated: bool
) -> tuple[list[dict[int, int]], list[int]]:
    """Return when each message of each launch arrives, and the bytes on each link."""
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology)
    if accelerated:
        network.accelerator = CoflowAccelerator(network, min_messages=2)
    arrivals: list[dict[int, int]] = [{} for _ in launches]

    def send(launch: Launch, arrival: dict[int, int]) -> Any:
        yield env.timeout(launch[0])
        source, destination = np.array(launch[1]).T
        some = np.array(messages_of(launch))
        sizes: Any = np.array(launch[2])[some]

        def arrived(numbers: Any) -> None:
            for number in some.tolist() if numbers is None else numbers.tolist():
                assert number not in arrival
                arrival[number] = int(env.now)

        if (sizes == sizes[0]).all():
            sizes = int(sizes[0])
        coflow = Coflow.between(topology, source, destination)
        network.launch(CoflowLaunch(coflow, sizes, arrived, some if launch[3] else None))

    for launch, arrival in zip(launches, arrivals, strict=True):
        env.process(send(launch, arrival))
    env.run()
    return arrivals, network.link_bytes.tolist()


def one_by_one(topology: Topology, launches: list[Launch]) -> tuple[list[dict[int, int]], list[int]]:
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology)
    arrivals: list[dict[int, int]] = [{} for _ in launches]

    def send(launch: Launch, number: int, arrival: dict[int, int]) -> Any:
        yield env.timeout(launch[0])
        yield network.transfer(*launch[1][number], launch[2][number])
        arrival[number] = int(env.now)

    for launch, arrival in zip(launches, arrivals, strict=True):
        for number in messages_of(launch):
            env.process(send(launch, number, arrival))
    env.run()
    return arrivals, network.link_bytes.tolist()


@given(traffic())
def test_messages_launched_together_arrive_as_those_sent_one_by_one(
    case: tuple[Topology, list[Launch]],
) -> None:
    topology, launches = case

    expected = one_by_one(topology, launches)

    assert together(topology, launches, accelerated=True) == expected
    assert together(topology, launches, accelerated=False) == expected
