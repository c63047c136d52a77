"""Arrival times of given messages, on a network with nothing else on it."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

import simpy

from sim.network.network import Network
from sim.topology import Topology
from sim.units import Quantity, parse_time, to_seconds


def transfer_times(transfers: Iterable[tuple[int, int, int, Quantity]], *, topology: Topology) -> list[float]:
    """Return when each of *transfers* arrives, in seconds.

    Args:
        transfers: source, destination, bytes, and when it is sent (seconds, or text such as ``"2us"``).
        topology: the network; messages share its links as `sim.Network` says.

    Raises:
        TopologyError: a rank that does not exist, or sends to itself.
        UnitError: a size or a time that is negative or cannot be read.
    """
    env = simpy.Environment(initial_time=0)
    network = Network(env, topology)
    arrivals: list[float] = []

    def send(number: int, source: int, destination: int, nbytes: int, start: Quantity) -> Any:
        yield env.timeout(parse_time(start, f"start of transfer {number}"))
        yield network.transfer(source, destination, nbytes)
        arrivals[number] = to_seconds(int(env.now))

    for number, (source, destination, nbytes, start) in enumerate(transfers):
        arrivals.append(0.0)
        env.process(send(number, index(source), index(destination), index(nbytes), start))
    env.run()
    return arrivals
