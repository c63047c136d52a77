"""The rule by which sends are awaited: in the simulation as in `collectives.transports.gloo`.

Both run the same program on one rank whose peers are not there: what it receives has arrived when it waits
for it, and what it sends is taken when it waits for that and not before.  Of every send is noted for which
step the rank has waited for it, and how many it had posted by then, which tells before a step from after it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import simpy
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

from collectives import NotSupportedError
from collectives.algorithms import ALGORITHMS
from collectives.execution.call import Call
from collectives.execution.execute import execute
from collectives.execution.transport_model import TRANSPORT_MODELS
from collectives.program import Algorithm, Send
from collectives.program.chunking import Buffer
from collectives.program.contracts import CONTRACTS
from collectives.simulation.engines.sends_under_way import SendsUnderWay
from collectives.simulation.engines.simulated_port import SimulatedPort
from collectives.transports.gloo import GlooTransport

Awaited = set[tuple[int, int, int]]
"""Of each send: its number, the step for which it was awaited, how many had been posted."""


class NoPeers:
    """A process group, and the reports of its ranks, in which nobody else is there."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.ranks = rank, world_size
        self.awaited: Awaited = set()
        self.posted = 0
        self.step = lambda: 0

    def rank(self) -> int:
        return self.ranks[0]

    def size(self) -> int:
        return self.ranks[1]

    def recv(self, tensors: Any, peer: int, tag: int) -> Any:
        return Taken(lambda: None)

    def send(self, tensors: Any, peer: int, tag: int) -> Any:
        number, self.posted = self.posted, self.posted + 1
        return Taken(lambda: self.awaited.add((number, self.step(), self.posted)))

    def any_failed(self) -> bool:
        return False

    def break_off(self) -> None:
        raise AssertionError

    def explain(self, report: Any, error: Exception, seconds: float) -> Any:
        raise error


class Taken:
    """What is over as soon as somebody waits for it."""

    def __init__(self, note: Any) -> None:
        self.note = note

    def wait(self, timeout: timedelta) -> None:
        self.note()


def over_gloo(algorithm: Algorithm, rank: int, world_size: int, buffer: Buffer) -> Awaited:
    peers: Any = NoPeers(rank, world_size)
    transport = GlooTransport(peers, 0, 30.0, peers)
    call = Call(0, algorithm.collective, str(algorithm), 0, "float32")
    work = transport.start(execute(algorithm, buffer, transport, 1), call)
    peers.step = lambda: work.step
    work.wait()
    awaited: Awaited = peers.awaited
    return awaited


class Recorded(SendsUnderWay[Any]):
    """Sends that are taken as soon as something waits for them."""

    def __init__(self, port: SimulatedPort) -> None:
        super().__init__()
        self.port = port
        self.numbers: dict[Any, int] = {}
        self.awaited_for: Awaited = set()

    def add(self, send: Any, span: tuple[int, int], *, noticed: bool = True) -> None:
        self.numbers[send] = len(self.numbers)
        super().add(send, span, noticed=noticed)

    def when_taken(self, written: Any, then: Any) -> None:
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
        self.dead: set[int] = set()

    def post(self, rank: int, operation: Any, fingerprint: int, side: Any) -> None:
        if not isinstance(operation, Send):
            self.env.timeout(0).callbacks.append(side[0].complete_one)


def simulated(algorithm: Algorithm, rank: int, world_size: int, buffer: Buffer) -> Awaited:
    meeting_point: Any = NobodyThere(world_size)
    port = SimulatedPort(meeting_point, rank)
    port.program.sends = sends = Recorded(port)
    for done in execute(algorithm, Buffer(buffer.chunking), port, 1):
        meeting_point.env.run(done)
    return sends.awaited_for


@given(st.sampled_from(ALGORITHMS), st.integers(2, 9), st.integers(0, 60), st.data())
def test_a_send_is_awaited_for_the_same_step_as_over_gloo(
    algorithm: Algorithm, world_size: int, count: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, world_size - 1))
    if CONTRACTS[algorithm.collective].equal_parts:
        count -= count % world_size
    try:
        buffer = Buffer.for_program(algorithm, world_size, torch.zeros(count), 4)
        expected = over_gloo(algorithm, rank, world_size, buffer)
    except NotSupportedError:
        reject()

    assert simulated(algorithm, rank, world_size, buffer) == expected
