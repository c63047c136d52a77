"""One rank of a virtual cluster: a thread with a clock of its own that waits in virtual time.

`sim.cluster.scheduler` decides who runs; here is what a rank can do while it does: let time pass, start
processes, wait and poll.  Waiting and polling are the only places where control changes hands.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NoReturn, Protocol, TypeVar

import simpy
from simpy.events import EventPriority

from sim.cluster.scheduler import RankUnwound, Turn
from sim.cluster.surroundings import ProcessFailures, Surroundings
from sim.errors import SimulationError, WaitTimeoutError
from sim.units import format_time

T = TypeVar("T")

_PATIENCE = 10_000
"""Looks in vain at one time, before a rank that looks is taken to wait."""
_MORE_LOOKS = 100
"""Looks before it waits again."""
_AFTER_ALL_ELSE = EventPriority(99)  # also after the network's, which settles late in an instant


class OtherThreads(Protocol):
    """Threads that a rank has started, which run while one of them waits."""

    def wait(
        self, comes: Callable[[], bool], describe: Callable[[], str], deadline_ps: int | None
    ) -> str | None:
        """Let the others run until *comes* is true, or the deadline over: then return `Turn.standstill`."""

    def may_call(self) -> None:
        """Let an order choose another thread before this one makes a call."""

    def numbers(self) -> Sequence[int]:
        """Return those that can go on, as `Turn.numbers` does."""


class RankThread:
    """One rank of a `Cluster`, as the code that runs on it sees it; it is a clock.

    Attributes:
        rank: from 0.
        cluster: the cluster it belongs to, as far as ranks share it.
        charges: picoseconds per kind of work, as `charge` names it; at first the cluster's.
        computed_ps: how much of its time it has computed.
        waited_ps: how much of its time it has waited.
        thread_id: of its thread, once that runs; ``sys._current_frames`` knows threads by it.
        is_dead: whether it was killed.
        has_left: whether its thread is over although the rank goes on, as others do the same.
        on_death: called when it is killed, so that nothing goes on in its name.
        meter: returns what it has computed since it was last asked, in picoseconds, if that is measured.
        before_waiting: called before it waits for anything, if given; it may advance what waits for it.
        others: its threads, once it has started some.
        must_be_charged: computation takes only the time that is charged for it.
    """

    must_be_charged = True

    def __init__(
        self,
        cluster: Surroundings,
        turn: Turn,
        failures: ProcessFailures,
        *,
        charges: Mapping[str, int],
        slowness: Fraction | None,
    ) -> None:
        self.rank = turn.number
        self.cluster = cluster
        self.charges = charges
        self.computed_ps = self.waited_ps = 0
        self.thread_id: int | None = None
        self.is_dead = self.has_left = False
        self.on_death: list[Callable[[], None]] = []
        self.meter: Callable[[], int] | None = None
        self.before_waiting: Callable[[], None] | None = None
        self.others: OtherThreads | None = None
        self._turn = turn
        self._alone: simpy.Event | None = None
        self._failures = failures
        self._slowness = slowness
        self._dies_ps: int | None = None
        self._interrupts: list[tuple[simpy.Event, Callable[[], None]]] = []
        self._looks = (0, 0)  # how many there were in vain, at which time

    @property
    def has_finished(self) -> bool:
        """Whether its thread is over, be it that it was killed."""
        return self._turn.is_over

    @property
    def is_waiting(self) -> bool:
        """Whether it waits in virtual time, so that others may run."""
        return self._turn.waits_for is not None

    @property
    def awaited(self) -> str | None:
        """What it waits for, in words; None: it does not wait."""
        return None if self._turn.waits_for is None else self._turn.waits_for()

    def now_ps(self) -> int:
        """Return this rank's local time in picoseconds."""
        if self.meter is not None and current_rank_thread() is self:
            self._read_meter(self.meter)
        return self._turn.now_ps

    def _read_meter(self, meter: Callable[[], int]) -> None:
        """Charge what has been measured since the last time."""
        self.compute(meter(), "measured")

    def charge(self, work: str) -> None:
        """Let the time pass that `charges` gives for *work*; 0 if it has none."""
        self.compute(self.charges.get(work, 0), work)

    def compute(self, duration_ps: int, work: str | None = None) -> None:
        """Compute what takes *duration_ps* on a rank that is not slow; a slow one takes its factor as long.

        The trace shows it under the name *work*; None: whoever charges shows it.
        """
        began_ps = self._turn.now_ps
        self.charge_ps(duration_ps if self._slowness is None else math.ceil(duration_ps * self._slowness))
        ended_ps = self._turn.now_ps
        if work is not None and self.cluster.trace is not None and ended_ps > began_ps:
            self.cluster.trace.span(self.rank, "compute", work, began_ps, ended_ps)

    def charge_ps(self, duration_ps: int) -> None:
        """Advance this rank's local time by exactly *duration_ps* picoseconds of computation.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ps < 0:
            raise ValueError(f"a rank's time cannot run backwards: charged {duration_ps} ps")
        while self._interrupts and duration_ps and current_rank_thread() is self:
            duration_ps -= self._compute_until_interrupted(duration_ps)
        if self._dies_ps is not None and self._turn.now_ps + duration_ps >= self._dies_ps:
            lived_ps = max(0, self._dies_ps - self._turn.now_ps)
            self._turn.now_ps += lived_ps
            self.computed_ps += lived_ps
            self.die()
        self._turn.now_ps += duration_ps
        self.computed_ps += duration_ps

    def stand_at(self, time_ps: int) -> None:
        """Let its local time be *time_ps*, which somebody else keeps, if that is later."""
        self._turn.now_ps = max(self._turn.now_ps, time_ps)

    def die_at(self, time_ps: int) -> None:
        """Engine: have this rank killed at *time_ps*, or at once if that is over."""
        self._dies_ps = time_ps
        env = self.cluster.env
        env.timeout(max(0, time_ps - int(env.now))).callbacks.append(self._meet_death)

    def die(self) -> NoReturn:
        """End this rank here as a process that is killed ends: without a word to the others.

        All that happens in the cluster up to this rank's local time happens first.  What Python cannot leave
        out are the ``finally`` blocks on the way; in them nothing can be waited for.
        """
        self.poll(self.cluster.env.event())
        self._kill()
        raise RankUnwound

    def leave(self) -> NoReturn:
        """End this rank's thread here, as what the rank does from now on another thread does for it.

        The others see no difference: nothing that it has started ends.
        """
        self.has_left = True
        raise RankUnwound

    def interrupt(self, event: simpy.Event, handler: Callable[[], None]) -> None:
        """Call *handler* in this rank's thread when *event* fires, should the rank compute then.

        The computation that was charged goes on afterwards.  What fires while the rank waits for something
        else is handled when it computes again.
        """
        self._interrupts.append((event, handler))

    def spawn(self, generator: Generator[simpy.Event, Any, T]) -> simpy.Process:
        """Start *generator* as a SimPy process at this rank's local time.

        The process is an event that fires with the generator's value.  Should it fail and no rank
        ever wait for it, the run fails with its error at the end.
        """
        env = self.cluster.env
        delay = self.now_ps() - int(env.now)
        process = env.process(_delayed(env, delay, generator) if delay else generator)
        assert process.callbacks is not None
        process.callbacks.append(self._failures.keep)
        return process

    def wait(
        self,
        event: simpy.Event,
        describe: Callable[[], str],
        timeout_ps: int | None = None,
        alone: bool = False,
    ) -> Any:
        """Wait in virtual time until *event* has fired, and return its value.

        *describe* says what is waited for, and is called only when a deadlock is reported, or a time-out.
        Other threads of the rank run meanwhile, unless it waits *alone*, for what will surely happen.

        Raises:
            Exception: the event failed; its own exception.
            WaitTimeoutError: it has not fired within *timeout_ps*.
            SimulationError: called from another thread than this rank's.
        """
        self.check_thread()
        if event.callbacks is not None:
            event.callbacks.append(self._wake)
            standstill = self._block(event, describe, timeout_ps, alone)
            if standstill is not None:
                event.callbacks.remove(self._wake)
                assert timeout_ps is not None
                raise WaitTimeoutError(f"timed out after {format_time(timeout_ps)}: {describe()}", standstill)
        if event.ok:
            return event.value
        assert isinstance(event.value, BaseException)
        self._failures.notice(event.value)
        raise event.value

    def poll(self, event: simpy.Event) -> bool:
        """Return whether *event* has fired by this rank's local time.

        All that happens in the cluster up to and including that time happens first.
        """
        self.check_thread()
        if event.callbacks is not None:
            env = self.cluster.env
            reached = simpy.Event(env)
            reached._ok, reached._value = True, None
            assert reached.callbacks is not None
            reached.callbacks.append(self._wake)
            env.schedule(reached, _AFTER_ALL_ELSE, self._turn.now_ps - env.now)
            alone = self.cluster.choices is None
            self._block(reached, lambda: "the engine to reach its local time", alone=alone)
        return event.processed

    def look_again(self, event: simpy.Event, describe: Callable[[], str]) -> None:
        """Note that the rank has looked whether *event* has fired, and will look again: it has not.

        Looking takes no time, so who does nothing else would look for ever.  After many looks at one time the
        rank waits until the next thing happens in the cluster, or for *event* where nothing else will; then
        sooner, until it does something that takes time.
        """
        at_ps, times = self._looks
        self._looks = self._turn.now_ps, times + 1 if at_ps == self._turn.now_ps else 1
        if self._looks[1] > _PATIENCE and not event.processed:
            env = self.cluster.env
            next_ps = env.peek()
            pause = event if next_ps == math.inf else env.timeout(next_ps - env.now)
            self.wait(pause, describe)
            self._looks = self._turn.now_ps, _PATIENCE - _MORE_LOOKS  # it has done nothing else

    def check_thread(self) -> None:
        """Go no further where this rank cannot act: it is over, or this is another thread.

        Raises:
            SimulationError: called from another thread than this rank's.
        """
        if current_rank_thread() is not self:
            here = threading.current_thread().name
            raise SimulationError(f"rank {self.rank} can wait only in its own thread, not in {here!r}")
        self._end_if_over()
        if self.meter is not None:
            self._read_meter(self.meter)

    def describe(self) -> str:
        """Return in a line what this rank is doing, or waits for."""
        at = format_time(self._turn.now_ps)
        if self.is_dead:
            return f"rank {self.rank}: was killed, at {at}"
        if self.has_left:
            return f"rank {self.rank}: does as another rank since {at}"
        if self.has_finished:
            return f"rank {self.rank}: has finished, at {at}"
        awaited = self.awaited
        if awaited is None:
            return f"rank {self.rank}: can go on, at {at}"
        return f"rank {self.rank}: waits since {at} for {awaited}"

    def run(self, fn: Callable[[int], T]) -> T | None:
        """Return ``fn(rank)``, with this as the current rank; None where it is killed or leaves meanwhile."""
        _current.rank_thread = self
        self.thread_id = threading.get_ident()
        try:
            self.charge_ps(0)  # it may be dead by now
            return fn(self.rank)
        except BaseException:
            if self.is_dead or self.has_left:
                return None
            raise

    @contextmanager
    def adopting(self) -> Iterator[None]:
        """Let this thread be the rank's, too, in the body; only one of its threads may run at once."""
        _current.rank_thread = self
        try:
            yield
        finally:
            _current.rank_thread = None

    def _compute_until_interrupted(self, duration_ps: int) -> int:
        """Compute for *duration_ps*, or until the first interrupt; handle it, and return for how long."""
        began_ps = self._turn.now_ps

        if not any(event.processed for event, _ in self._interrupts):
            self.check_thread()
            env = self.cluster.env
            computed = env.timeout(began_ps + duration_ps - int(env.now))
            first = env.any_of([computed, *(event for event, _ in self._interrupts)])
            assert first.callbacks is not None
            first.callbacks.append(self._wake)
            try:
                self._block(first, lambda: "the end of a computation", alone=True)
            finally:
                self.computed_ps += self._turn.now_ps - began_ps
                self.waited_ps -= self._turn.now_ps - began_ps

        passed_ps = self._turn.now_ps - began_ps
        fired = [handler for event, handler in self._interrupts if event.processed]
        self._interrupts = [own for own in self._interrupts if not own[0].processed]
        for handler in fired:
            handler()
        return passed_ps

    def pause(self, waits_for: Callable[[], str], deadline_ps: int | None, is_ready: bool) -> int:
        """Hand control to the engine for all threads of the rank, and return the number of the chosen."""
        self._turn.numbers = lambda: (self.rank,) if self.others is None else self.others.numbers()
        self._turn.wait(waits_for, deadline_ps, is_ready)
        return self._turn.chosen

    @property
    def standstill(self) -> str | None:
        """What `Turn.standstill` says of its last wait."""
        return self._turn.standstill

    @property
    def is_ending(self) -> bool:
        """Whether its threads are to end where they are."""
        return self.is_dead or self.has_left or self._turn.is_unwound

    def _block(
        self,
        event: simpy.Event,
        waits_for: Callable[[], str],
        timeout_ps: int | None = None,
        alone: bool = False,
    ) -> str | None:
        """Hand control on until *event*, which calls `_wake`, or for as long as is given.

        Returns:
            The standstill that has ended the wait, if its time was over; else None.
        """
        if self.before_waiting is not None:
            self.before_waiting()
        began_ps, spent_ps = self._turn.now_ps, self.computed_ps + self.waited_ps
        deadline_ps = None if timeout_ps is None else began_ps + timeout_ps
        if alone or self.others is None:
            self._alone = event
            self._turn.wait(waits_for, deadline_ps)
            self._alone, standstill = None, self._turn.standstill
        else:
            standstill = self.others.wait(lambda: event.processed, waits_for, deadline_ps)
        spent_ps = self.computed_ps + self.waited_ps - spent_ps  # by other threads, meanwhile
        self.waited_ps += max(0, self._turn.now_ps - began_ps - spent_ps)
        if self.meter is not None:
            self.meter()  # what the cluster itself has taken is no computation
        self._end_if_over()
        return standstill

    def _end_if_over(self) -> None:
        if self.is_ending:
            raise RankUnwound

    def _wake(self, event: simpy.Event) -> None:
        """Engine: the event that this rank waits for has fired."""
        event.defused = True
        if not self.is_dead and self._alone in (None, event):
            self._turn.wake(int(self.cluster.env.now))

    def _kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            for callback in self.on_death:
                callback()

    def _meet_death(self, _: simpy.Event) -> None:
        """Engine: the time has come at which this rank, which waits, is killed."""
        if not self.has_finished:
            now_ps = int(self.cluster.env.now)
            self._kill()
            self._turn.wake(now_ps)
            self._turn.now_ps = now_ps


def current_rank_thread() -> RankThread | None:
    """Return the rank whose thread this is, or None in a thread that is no rank's."""
    return getattr(_current, "rank_thread", None)


def _delayed(
    env: simpy.Environment, delay: int, generator: Generator[simpy.Event, Any, T]
) -> Generator[simpy.Event, Any, T]:
    yield env.timeout(delay)
    return (yield from generator)


_current = threading.local()
