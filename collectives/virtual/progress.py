"""Progress on calls in virtual time: what a rank has in flight goes on when the rank calls, as over Gloo.

The rule is that of `collectives.transports.progress`, where there is no thread.  A collective is posted when
it starts, at once, whatever is in flight before it.  A rank that computes advances nothing.  When it starts a
collective, tests one, or a hook of the backward pass polls, all that is in flight advances as far as it goes
without waiting.  A rank that waits advances the first execution of the lane that it waits in, and all others
while collectives are in flight elsewhere.

What is over is written, reduced and followed by the next step in the call, so the rank itself takes the time
of that.  A poll knows that a message has arrived, but not that one has been taken: a step that writes to what
an earlier send has read goes on when the rank waits for it or tests it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import simpy

from collectives.execution.call import Call
from collectives.execution.transport import Execution
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.timing.ranks.step_in_flight import CalledProgram
from sim.cluster import RankThread
from sim.scenario.step_overheads import StepOverheads

TOGETHER = frozenset({"all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter"})
"""Collectives after which every rank has something of every other, so that it waits for all to call."""

MIN_RANKS = 3
"""Ranks from which on those that wait are told whose call they wait for."""


class RankProgress:
    """What one rank has in flight, in all its groups, in the order of its start."""

    def __init__(self, rank_thread: RankThread) -> None:
        self.rank_thread = rank_thread
        self.in_flight: list[CalledExecution] = []
        self._awaited: list[Sequence[CalledExecution]] = []  # by the rank's threads that wait

    def start(self, execution: CalledExecution, steps: Execution) -> None:
        """Post the first of the *steps* of *execution*, after all else has advanced."""
        self.poll()
        self._catch_up()
        self.in_flight.append(execution)
        self._finish_move(execution, lambda: execution.begin(steps))
        self._advance(execution, observing=False)

    def poll(self, observing: bool = False) -> None:
        """Advance all that is in flight without waiting; if *observing*, what sends hold up, too."""
        if not self.in_flight:
            return
        self._catch_up()
        for execution in tuple(self.in_flight):
            self._advance(execution, observing)

    def wait(
        self,
        executions: Sequence[CalledExecution],
        describe: Callable[[], str],
        timeout_ps: int | None = None,
    ) -> None:
        """Wait until one of *executions* is over.

        Raises:
            WaitTimeoutError: none is within *timeout_ps*.
        """
        self._catch_up()
        if any(execution.is_over for execution in executions):
            return
        self._awaited.append(executions)
        try:
            env = self.rank_thread.cluster.env
            env.timeout(0).callbacks.append(lambda _: self.go_on())
            ends = [execution.done for execution in executions]
            self.rank_thread.wait(ends[0] if len(ends) == 1 else env.any_of(ends), describe, timeout_ps)
        finally:
            self._awaited.remove(executions)

    def go_on(self) -> None:
        """Engine: let what the rank's waiting advances go on."""
        for execution in tuple(self.in_flight):
            if execution.program.held is not None and self.may_go_on(execution):
                execution.program.move()

    def may_go_on(self, execution: CalledExecution) -> bool:
        """Return whether the rank waits, and that advances *execution*."""
        if not self._awaited_lanes():
            return False
        return self._waits_beside_others() or self.is_driven(execution)

    def is_driven(self, execution: CalledExecution) -> bool:
        """Return whether the rank waits in *execution* itself, which is the first of the lane awaited."""
        if execution.lane not in self._awaited_lanes() or self._waits_beside_others():
            return False
        return execution is next((own for own in self.in_flight if own.lane == execution.lane), None)

    def _awaited_lanes(self) -> set[Hashable]:
        """Return the lanes in which the rank waits for what is not over."""
        return {
            awaited.lane
            for executions in self._awaited
            if all(awaited.completed_ps is None for awaited in executions)
            for awaited in executions
        }

    def _waits_beside_others(self) -> bool:
        """Return whether collectives are in flight that waiting in one lane would not advance."""
        lanes = self._awaited_lanes()
        return any(own.call.lane is None and own.lane not in lanes for own in self.in_flight)

    def _advance(self, execution: CalledExecution, observing: bool) -> None:
        """Advance *execution* as far as it goes without waiting."""
        while execution.program.held is not None:
            if observing:
                execution.port.program.sends.notice()
            if not execution.program.held.is_free():
                return
            self._finish_move(execution, execution.program.move)

    def _finish_move(self, execution: CalledExecution, move: Callable[[], None]) -> None:
        """Let *execution* move, and the rank's time pass until its next step is posted."""
        env = self.rank_thread.cluster.env
        moved = execution.program.moved = simpy.Event(env)
        env.timeout(0).callbacks.append(lambda _: move())  # by the engine: what it computes is not the rank's
        self.rank_thread.wait(moved, lambda: f"{execution.call} to be posted", alone=True)

    def _catch_up(self) -> None:
        """Let all happen that happens up to this rank's local time."""
        self.rank_thread.poll(simpy.Event(self.rank_thread.cluster.env))


class CalledExecution:
    """One execution that goes on when its rank calls.

    Attributes:
        lane: of the call, in its group.
        port: the rank's side of the meeting point for this execution alone.
        program: what of it goes on when the rank calls.
        done: fires when the execution is over.
        completed_ps: when that was; None before.
    """

    def __init__(
        self,
        progress: RankProgress,
        meeting_point: MeetingPoint,
        rank: int,
        call: Call,
        overheads: StepOverheads | None,
    ) -> None:
        self.call = call
        self.lane = id(meeting_point), call.lane
        env = meeting_point.network.env
        drives, lets_go_on = partial(progress.is_driven, self), partial(progress.may_go_on, self)
        self.program = CalledProgram(env, drives, lets_go_on)
        self.port = SimulatedPort(meeting_point, rank)
        self.port.begin(str(call), overheads, self.program)
        if call.collective in TOGETHER and len(meeting_point.hosts) >= MIN_RANKS:
            meeting_point.come(rank, call.fingerprint())
            self.port.progress = partial(meeting_point.absent, call.fingerprint())
        self.done = simpy.Event(env)
        self.completed_ps: int | None = None
        self._progress = progress
        self._env = env

    def begin(self, steps: Execution) -> None:
        """Post the first of *steps*."""
        self._env.process(self._run(steps))

    @property
    def is_over(self) -> bool:
        """Whether the result is in place."""
        return self.done.processed

    def _run(self, steps: Execution) -> Execution:
        yield from steps
        self.completed_ps = int(self._env.now)
        self._progress.in_flight.remove(self)
        self.program.offered()
        self.done.succeed()
        self._progress.go_on()
