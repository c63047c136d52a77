"""Sends that ranks await over Gloo and in its simulation, and rows in a steady state."""

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import simpy
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from collectives import Algorithm, NotExactError, NotSupportedError, Send, resolve_algorithm
from collectives.algorithms import ALGORITHMS
from collectives.execution.call import Call
from collectives.execution.execute import execute
from collectives.execution.transport_model import TRANSPORT_MODELS
from collectives.program.channels import in_channels
from collectives.program.chunking import Buffer, Chunking
from collectives.program.contracts import CONTRACTS
from collectives.timing.ranks.sends_under_way import SendsUnderWay
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.timing.rows.coflow_times import CoflowTimes
from collectives.timing.rows.makespan import Makespan
from collectives.transports.gloo import GlooTransport
from sim import Topology, load_network
from sim.units import Int64Array

Awaited = set[tuple[int, int, int]]
"""Of each send: its number, the step for which it was awaited, how many had been posted."""


class NoPeers:
    """A process group, and the reports of its ranks, in which nobody else is there."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.ranks = rank, world_size
        self.awaited = set()
        self.posted = 0
        self.step = lambda: 0

    def rank(self) -> int:
        return self.ranks[0]

    def size(self) -> int:
        return self.ranks[1]

    def recv(self, tensors, peer: int, tag: int):
        return Taken(lambda: None)

    def send(self, tensors, peer: int, tag: int):
        number, self.posted = self.posted, self.posted + 1
        return Taken(lambda: self.awaited.add((number, self.step(), self.posted)))

    def any_failed(self) -> bool:
        return False

    def break_off(self) -> None:
        raise AssertionError

    def explain(self, report, error: Exception, seconds: float):
        raise error


class Taken:
    """What is over as soon as somebody waits for it."""

    def __init__(self, note) -> None:
        self.note = note

    def wait(self, timeout: timedelta) -> None:
        self.note()


def over_gloo(algorithm: Algorithm, rank: int, world_size: int, buffer: Buffer) -> Awaited:
    peers = NoPeers(rank, world_size)
    transport = GlooTransport(peers, 0, 30.0, peers)
    call = Call(0, algorithm.collective, str(algorithm), 0, "float32")
    work = transport.start(execute(algorithm, buffer, transport, 1), call)
    peers.step = lambda: work.step
    work.wait()
    return peers.awaited


class Recorded(SendsUnderWay[Any]):
    """Sends that are taken as soon as something waits for them."""

    def __init__(self, port: SimulatedPort) -> None:
        super().__init__()
        self.port = port
        self.numbers = {}
        self.awaited_for = set()

    def add(self, send, span: tuple[int, int], *, noticed: bool = True) -> None:
        self.numbers[send] = len(self.numbers)
        super().add(send, span, noticed=noticed)

    def when_taken(self, written, then) -> None:
        super().when_taken(written, then)
        step = self.port.step + (written is None)
        for send in self.awaited:
            self.awaited_for.add((self.numbers[send], step, len(self.numbers)))
            self.end(send)


class NobodyThere:
    """A meeting point at which what is received has arrived, and what is sent waits."""

    def __init__(self, world_size: int) -> None:
        self.network = self
        self.matching = self
        self.env = simpy.Environment(initial_time=0)
        self.hosts = range(world_size)
        self.transport_model = TRANSPORT_MODELS["gloo"]
        self.observer = None
        self.dead = set()

    def post(self, rank: int, operation, fingerprint: int, side) -> None:
        if not isinstance(operation, Send):
            self.env.timeout(0).callbacks.append(side[0].complete_one)


def simulated(algorithm: Algorithm, rank: int, world_size: int, buffer: Buffer) -> Awaited:
    meeting_point = NobodyThere(world_size)
    port = SimulatedPort(meeting_point, rank)
    port.program.sends = sends = Recorded(port)
    for done in execute(algorithm, Buffer(buffer.chunking), port, 1):
        meeting_point.env.run(done)
    return sends.awaited_for


@given(st.sampled_from(ALGORITHMS), st.integers(2, 9), st.integers(0, 60), st.data())
def test_a_send_is_awaited_for_the_same_step_as_over_gloo(algorithm, world_size, count, data):
    rank = data.draw(st.integers(0, world_size - 1))
    if CONTRACTS[algorithm.collective].equal_parts:
        count -= count % world_size
    try:
        buffer = Buffer.for_program(algorithm, world_size, torch.zeros(count), 4)
        expected = over_gloo(algorithm, rank, world_size, buffer)
    except NotSupportedError:
        reject()

    assert simulated(algorithm, rank, world_size, buffer) == expected


ALL_GATHER = resolve_algorithm("ring", "all_gather")


@pytest.mark.parametrize("network", ["dgx-h100", "ethernet-10g"])
@settings(max_examples=15, deadline=None)
@given(data=st.data(), num_ranks=st.sampled_from([16, 24, 64]), channels=st.sampled_from([1, 2, 8]))
def test_rows_that_are_skipped_take_what_they_would_have_taken(network, data, num_ranks, channels):
    algorithm = in_channels(ALL_GATHER, channels).with_parameters(ranks_per_node=8)
    topology = load_network(network).topology(num_ranks)
    nbytes = num_ranks * data.draw(st.integers(1, 100_000))
    start = np.zeros(num_ranks, dtype=np.int64)
    for rank, late in data.draw(
        st.dictionaries(st.integers(0, num_ranks - 1), st.integers(0, 10**8))
    ).items():
        start[rank] = late

    skipped = _outcome(topology, algorithm, nbytes, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoflowTimes, "advance_repeatedly", _one_by_one)
        row_by_row = _outcome(topology, algorithm, nbytes, start)

    assert skipped == row_by_row


def _one_by_one(times: CoflowTimes, ready, nbytes, busy_until: Int64Array, count: int):
    for _ in range(count):
        ready = times.advance(ready, nbytes, busy_until)
    return ready


def _outcome(topology: Topology, algorithm: Algorithm, nbytes: int, start: Int64Array):
    """Return when ranks are through and links free, or why that is not known."""
    makespan = Makespan(topology)
    try:
        chunking = Chunking.of(algorithm, len(start), nbytes, 1)
        return makespan.run(algorithm, chunking, start).tolist(), makespan._busy_until.tolist()
    except NotExactError as error:
        return str(error)
