"""Port of a rank to a meeting point: the steps of its programs, posted and awaited."""

from __future__ import annotations

from collections.abc import Callable

import simpy

from collectives.program import Local, Recv, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_operation
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.step_in_flight import CalledProgram, Drain, ProgramOnRank, StepInFlight, span_of
from sim.scenario.step_overheads import StepOverheads


class SimulatedPort:
    """One rank's side of a meeting point: enough to run a program.

    Attributes:
        progress: says what this rank waits for, where its steps are not posted here but carried out
            together with those of all other ranks; nothing where it waits for messages.
    """

    def __init__(self, meeting_point: MeetingPoint, rank: int) -> None:
        self.meeting_point = meeting_point
        self.rank = rank
        self.world_size = len(meeting_point.hosts)
        self.begin("")

    def begin(
        self, what: str, overheads: StepOverheads | None = None, caller: CalledProgram | None = None
    ) -> None:
        """Number the steps of the next program from 0.

        Args:
            what: the collective and its algorithm, for errors.
            overheads: what ranks add to their time.
            caller: decides when the program goes on; None: it does by itself.
        """
        self.current: StepInFlight | None = None
        self.step = -1
        self.progress: Callable[[], str] | None = None
        env, model = self.meeting_point.network.env, self.meeting_point.transport_model
        self.program = ProgramOnRank(env, self.rank, model, what, overheads, caller=caller)

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> simpy.Event:
        """Start all operations of *step*; the event fires when it is complete."""
        self.step += 1
        in_flight = self.current = StepInFlight(self.program, self.step, step, buffer)
        if self.program.sends and self.program.is_driving:
            replaced = [span_of(buffer, operation) for operation in step if isinstance(operation, Recv)]
            self.program.sends.when_taken(replaced, lambda: self._pause(in_flight, fingerprint))
        else:
            self._pause(in_flight, fingerprint)
        return in_flight.done

    def _pause(self, in_flight: StepInFlight, fingerprint: int) -> None:
        """Let the time pass that the rank takes before the messages of a step; then offer them."""
        pause_ps = 0
        if self.program.overheads is not None:
            moving = [in_flight.step[position] for position in in_flight.unmatched]
            receivers = [message.peer for message in moving if isinstance(message, Send)]
            pause_ps = self.program.overheads.before(self.rank, len(moving), receivers)
        if self.meeting_point.observer is not None:
            self.meeting_point.observer.posted(
                self.rank, in_flight.number, pause_ps, in_flight.reducing_ps, in_flight.done
            )
        if pause_ps:
            self.program.env.timeout(pause_ps).callbacks.append(lambda _: self._offer(in_flight, fingerprint))
        else:
            self._offer(in_flight, fingerprint)

    def _offer(self, in_flight: StepInFlight, fingerprint: int) -> None:
        """Let peers find the messages of a step; without any to await, it is complete."""
        if self.rank in self.meeting_point.dead:
            return
        if self.program.transport_model.late_sends:
            for position, operation in enumerate(in_flight.step):
                if isinstance(operation, Send):
                    span, noticed = span_of(in_flight.buffer, operation), self.program.caller is None
                    self.program.sends.add((in_flight, position), span, noticed=noticed)
        if in_flight.remaining:
            self.program.has_waited = True
        else:
            in_flight.complete()
        for position, operation in enumerate(in_flight.step):
            if not isinstance(operation, Local):
                met = self.meeting_point.matching.post(
                    self.rank, operation, fingerprint, (in_flight, position)
                )
                if met is not None:
                    self.meeting_point.start_transfer(*met)
        if self.program.caller is not None:
            self.program.caller.offered()

    def drain(self, fingerprint: int) -> simpy.Event | None:
        """Return an event that fires when peers have taken all that was sent; None if they have."""
        if self.program.sends.are_over(None):
            return None
        drain = Drain(self.program)
        if self.program.caller is None:
            drain.go_on()
        else:
            self.program.caller.hold(drain)
        return drain.done

    def doing(self) -> str:
        """Return in words what the step in flight waits for."""
        if self.progress is not None and (said := self.progress()):
            return said
        if self.current is None:
            return "not begun"
        awaited = self.program.sends.awaited
        waiting = awaited or [(self.current, position) for position in sorted(self.current.unmatched)]
        if not waiting:
            return f"step {self.step}, messages under way"
        operations = (
            spell_operation(step.step[at]) + (f" of step {step.number}" if step is not self.current else "")
            for step, at in waiting
        )
        return f"step {self.step}, {', '.join(operations)}"
