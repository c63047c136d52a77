"""Step of a rank in flight: what it still awaits, and what has to happen before it is complete.

The rule is the transport model's (`collectives.execution.transport_model`).  Where sends are awaited late, a
plain receive waits before its step is posted, until no earlier send reads the memory that it replaces; what
is reduced, copied, or received where the step itself sends from waits before it is written.  Steps that go on
while the call only starts are posted at once, and all they receive waits before it is written.  That is what
`collectives.transports.gloo` does in a rank that waits, with buffers in host memory.

Where bytes are reduced while they arrive, a rank reduces one message after another, each from its first byte
on; so reducing ends with the last byte, or later if it is slower than the wire on the whole of a message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import simpy

from collectives.execution.execute import land
from collectives.execution.transport_model import TransportModel
from collectives.program import Local, Operation, RecvReduce, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_message
from collectives.timing.ranks.sends_under_way import SendsUnderWay, Span
from sim.scenario.step_overheads import StepOverheads


class CalledProgram:
    """A program that goes on when its rank calls, and what it holds until then.

    Whether the rank's waiting advances it is decided by whoever queues the rank's programs: one rank thread's
    `collectives.virtual.progress`, or `collectives.timing.ranks.called_queue` for all ranks together.

    Args:
        env: whose time it is.
        drives: returns whether the rank waits in this program now.
        lets_go_on: returns whether the rank waits, and that advances this program.

    Attributes:
        held: what goes on when the rank calls, if anything is there to.
        moved: fires when the next step has been posted, or all is over.
    """

    def __init__(
        self, env: simpy.Environment, drives: Callable[[], bool], lets_go_on: Callable[[], bool]
    ) -> None:
        self.held: Held | None = None
        self.moved = simpy.Event(env)
        self._drives = drives
        self._lets_go_on = lets_go_on

    @property
    def is_driving(self) -> bool:
        """Whether the rank waits in this program now."""
        return self._drives()

    def hold(self, held: Held) -> None:
        """Let *held* go on, now if the rank's waiting advances it, or in a later call."""
        self.held = held
        if self._lets_go_on():
            self.move()
        else:
            self.offered()

    def move(self) -> None:
        """Let what is held go on."""
        held, self.held = self.held, None
        assert held is not None
        held.go_on()

    def offered(self) -> None:
        """Note that the rank has done what it can: what it is to post is posted, or all is over."""
        if not self.moved.triggered:
            self.moved.succeed()


@dataclass(eq=False)
class ProgramOnRank:
    """A program that a rank runs.

    Attributes:
        env: whose time it is.
        rank: that runs it.
        transport_model: how a step is completed.
        what: the collective and its algorithm, for errors.
        overheads: what ranks add to their time.
        sends: what peers have yet to take, by step and position in it, where sends are awaited late.
        caller: decides when the program goes on; None: it does by itself.
        wire: what is sent of each operation, where that is less than the buffer has; None: all.
        has_waited: whether the program has come to where its rank waits.  The first steps go on without
            waiting while the call starts, and the rank then waits to the end, if there is no caller.
    """

    env: simpy.Environment
    rank: int
    transport_model: TransportModel
    what: str = ""
    overheads: StepOverheads | None = None
    sends: SendsUnderWay[tuple[StepInFlight, int]] = field(default_factory=SendsUnderWay)
    caller: CalledProgram | None = None
    wire: Buffer | None = None
    has_waited: bool = False

    @property
    def is_driving(self) -> bool:
        """Whether the rank waits in this program now."""
        return self.has_waited if self.caller is None else self.caller.is_driving


class StepInFlight:
    """A step that has been posted; ``done`` fires when it is complete."""

    __slots__ = (
        "buffer",
        "done",
        "incoming",
        "number",
        "program",
        "reduced_until_ps",
        "reducing_ps",
        "remaining",
        "step",
        "unmatched",
    )

    def __init__(self, program: ProgramOnRank, number: int, step: Step, buffer: Buffer) -> None:
        self.program = program
        self.number = number
        self.step = step
        self.buffer = buffer
        self.incoming: dict[int, Any] = {
            n: buffer.source(operation, step)
            for n, operation in enumerate(step)
            if isinstance(operation, Local)
        }
        self.unmatched = {n for n in range(len(step)) if n not in self.incoming}
        self.remaining = len(self.unmatched)
        if program.transport_model.late_sends:
            self.remaining -= sum(isinstance(operation, Send) for operation in step)
        self.reducing_ps = self._reducing_ps()
        self.reduced_until_ps = 0
        self.done = simpy.Event(program.env)

    @property
    def rank(self) -> int:
        """Whose step it is."""
        return self.program.rank

    def describe(self, position: int) -> tuple[str, str]:
        """Return the collective, and the message of the `Send` at *position*."""
        send = self.step[position]
        assert isinstance(send, Send)
        return self.program.what, spell_message(self.number, self.rank, send.peer, self.buffer.nbytes(send))

    def sets_out(self, position: int, latency_ps: int) -> None:
        """Note that the message at *position* sets out; its first byte arrives after *latency_ps*."""
        overheads = self.program.overheads
        if overheads is not None and self.step[position].reduces and self._reduces_on_arrival:
            first_ps = max(self.reduced_until_ps, int(self.program.env.now) + latency_ps)
            nbytes = self.buffer.nbytes(self.step[position])
            self.reduced_until_ps = first_ps + overheads.reduction(self.rank, nbytes)

    def on_arrival(self) -> Callable[[simpy.Event], None]:
        """Return what is to be called when the last byte of a message to this rank has arrived."""
        overheads = self.program.overheads
        arrival_ps = 0 if overheads is None else overheads.arrival(self.rank)
        if not arrival_ps:
            return self.complete_one
        return lambda _: self.program.env.timeout(arrival_ps).callbacks.append(self.complete_one)

    def on_taken(self, position: int) -> Callable[[simpy.Event], None]:
        """Return what is to be called when a peer has taken the message that is sent at *position*."""
        if self.program.transport_model.late_sends:
            return lambda _: self.program.sends.end((self, position))
        return self.complete_one

    def complete_one(self, _: simpy.Event) -> None:
        """Note that one of the messages that the step awaits is over."""
        self.remaining -= 1
        if not self.remaining:
            self.complete()

    def complete(self) -> None:
        """Note that everything that the step awaits has arrived."""
        if self.program.caller is None:
            self.program.has_waited |= not self.is_free()
            self.go_on()
        else:
            self.program.caller.hold(self)

    def is_free(self) -> bool:
        """Return whether the rank knows that no send reads what the step writes."""
        return self.program.sends.are_over(self._written())

    def go_on(self) -> None:
        """Write what has arrived, once nothing reads there any more; then the step is done."""
        if self.program.sends:
            self.program.sends.when_taken(self._written(), self._reduce)
        else:
            self._reduce()

    def _written(self) -> list[Span]:
        return [span_of(self.buffer, own) for own in self.step if not isinstance(own, Send)]

    def _reduce(self) -> None:
        """Let the time pass that reducing takes beyond the arrival of the messages."""
        env = self.program.env
        delay_ps = max(0, self.reduced_until_ps - int(env.now)) + self.reducing_ps
        if delay_ps:
            env.timeout(delay_ps).callbacks.append(self._finish)
        else:
            self._finish()

    def _finish(self, _: simpy.Event | None = None) -> None:
        if self.buffer.data is not None:
            land(self.step, self.buffer, self.incoming)
        self.done.succeed()

    @property
    def _reduces_on_arrival(self) -> bool:
        return self.program.transport_model.reduces == "arriving"

    def _reducing_ps(self) -> int:
        """Return how long the rank reduces after the last message."""
        overheads = self.program.overheads
        if overheads is None:
            return 0
        on_arrival = self._reduces_on_arrival
        reduced = sum(
            self.buffer.nbytes(operation)
            for operation in self.step
            if operation.reduces and not (on_arrival and isinstance(operation, RecvReduce))
        )
        return overheads.reduction(self.rank, reduced)


class Drain:
    """The sends that are left at the end of a *program*; ``done`` fires when peers have taken them."""

    def __init__(self, program: ProgramOnRank) -> None:
        self._sends = program.sends
        self.done = simpy.Event(program.env)

    def is_free(self) -> bool:
        """Return whether the rank knows that all are over."""
        return self._sends.are_over(None)

    def go_on(self) -> None:
        """Wait for them."""
        self._sends.when_taken(None, self.done.succeed)


Held: TypeAlias = StepInFlight | Drain
"""What awaits nothing from the network any more, and goes on when its rank calls."""


def span_of(buffer: Buffer, operation: Operation) -> Span:
    """Return the elements that *operation* reads (`Send`) or writes (all others)."""
    return buffer.chunking.span(operation.chunk, operation.num_chunks)
