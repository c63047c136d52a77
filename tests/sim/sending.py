"""Messages sent one by one on a network, and when they arrive."""

from collections.abc import Sequence

import simpy

from sim import Network, Topology
from sim.network.recorder import Recorder
from tests.sim.fluid import Message


def network_on(topology: Topology, recorder: Recorder | None = None) -> Network:
    """Return the network of *topology*, at the time 0."""
    return Network(simpy.Environment(initial_time=0), topology, recorder)


def arrivals(network: Network, messages: Sequence[Message]) -> list[int]:
    """Return when each message arrives, and stop then, whatever else happens later."""
    arrived = [-1] * len(messages)

    def send(number, sent_ps, source, destination, nbytes):
        yield network.env.timeout(sent_ps)
        yield network.transfer(source, destination, nbytes)
        arrived[number] = int(network.env.now)

    sends = [network.env.process(send(number, *message)) for number, message in enumerate(messages)]
    network.env.run(network.env.all_of(sends))
    return arrived
