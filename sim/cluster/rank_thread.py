"""One rank of a virtual cluster: a thread with a clock of its own that waits in virtual time.

`sim.cluster.cluster` decides who runs; here is what a rank can do while it does: let time pass, start
processes, wait and poll.  Waiting and polling are the only places where control changes hands.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import simpy
from simpy.events import EventPriority

from sim.errors import SimulationError
from sim.units import format_time

if TYPE_CHECKING:
    from sim.cluster.cluster import Cluster

T = TypeVar("T")

_AFTER_ALL_ELSE = EventPriority(99)  # also after the network's, which settles late in an instant


class RankUnwound(BaseException):
    """Raised where a rank is when its run is over because of an error elsewhere, or it is killed.

    Not an `Exception`, so that a rank's ``except Exception`` does not swallow it.
    """


class RankThread:
    """One rank of a `Cluster`, as the code that runs on it sees it; it is a clock.

    Attributes:
        rank: from 0.
        cluster: the cluster it belongs to.
        charges: picoseconds per kind of work, as `charge` names it; at first the cluster's.
        computed_ps: how much of its time it has computed.
        waited_ps: how much of its time it has waited.
        thread_id: of its thread, once that runs; ``sys._current_frames`` knows threads by it.
        is_dead: whether it was killed.
        on_death: called when it is killed, so that nothing goes on in its name.
        meter: returns what it has computed since it was last asked, in picoseconds, if that is measured.
        must_be_charged: computation takes only the time that is charged for it.
    """

    must_be_charged = True

    def __init__(self, cluster: Cluster, rank: int, now_ps: int) -> None:
        self.rank = rank
        self.cluster = cluster
        self.charges: Mapping[str, int] = cluster.compute
        self.computed_ps = self.waited_ps = 0
        self.thread_id: int | None = None
        self.is_dead = False
        self.on_death: list[Callable[[], None]] = []
        self.meter: Callable[[], int] | None = None
        self._now_ps = now_ps
        self._ready = True
        self._turn = threading.Lock()
        self._turn.acquire()
        self._describe: Callable[[], str] | None = None
        self._interrupts: list[tuple[simpy.Event, Callable[[], None]]] = []
        self._finished = False
        self._error: BaseException | None = None

    @property
    def has_finished(self) -> bool:
        """Whether its thread is over, be it that it was killed."""
        return self._finished

    def now_ps(self) -> int:
        """Return this rank's local time in picoseconds."""
        if self.meter is not None and current_rank_thread() is self:
            self._read_meter(self.meter)
        return self._now_ps

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
        began_ps = self._now_ps
        factor = self.cluster.scenario.factors.get(self.rank)
        self.charge_ps(duration_ps if factor is None else math.ceil(duration_ps * factor))
        if work is not None and self.cluster.trace is not None and self._now_ps > began_ps:
            self.cluster.trace.span(self.rank, "compute", work, began_ps, self._now_ps)

    def charge_ps(self, duration_ps: int) -> None:
        """Advance this rank's local time by exactly *duration_ps* picoseconds of computation.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ps < 0:
            raise ValueError(f"a rank's time cannot run backwards: charged {duration_ps} ps")
        while self._interrupts and duration_ps and current_rank_thread() is self:
            duration_ps -= self._compute_until_interrupted(duration_ps)
        dies_ps = self.cluster.deaths_ps.get(self.rank)
        if dies_ps is not None and self._now_ps + duration_ps >= dies_ps:
            lived_ps = max(0, dies_ps - self._now_ps)
            self._now_ps += lived_ps
            self.computed_ps += lived_ps
            self.die()
        self._now_ps += duration_ps
        self.computed_ps += duration_ps

    def die(self) -> NoReturn:
        """End this rank here as a process that is killed ends: without a word to the others.

        All that happens in the cluster up to this rank's local time happens first.  What Python cannot leave
        out are the ``finally`` blocks on the way; in them nothing can be waited for.
        """
        self.poll(self.cluster.env.event())
        self._kill()
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
        process.callbacks.append(self.cluster._note_failure)
        return process

    def wait(self, event: simpy.Event, describe: Callable[[], str]) -> Any:
        """Wait in virtual time until *event* has fired, and return its value.

        *describe* says what is waited for, and is called only when a deadlock is reported.

        Raises:
            Exception: the event failed; its own exception.
            SimulationError: called from another thread than this rank's.
        """
        self.check_thread()
        if event.callbacks is not None:
            event.callbacks.append(self._wake)
            self._block(describe)
        if event.ok:
            return event.value
        assert isinstance(event.value, BaseException)
        self.cluster._notice(event.value)
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
            env.schedule(reached, _AFTER_ALL_ELSE, self._now_ps - env.now)
            self._block(lambda: "the engine to reach its local time")
        return event.processed

    def _compute_until_interrupted(self, duration_ps: int) -> int:
        """Compute for *duration_ps*, or until the first interrupt; handle it, and return for how long."""
        began_ps = self._now_ps
        if not any(event.processed for event, _ in self._interrupts):
            self.check_thread()
            env = self.cluster.env
            computed = env.timeout(began_ps + duration_ps - int(env.now))
            first = env.any_of([computed, *(event for event, _ in self._interrupts)])
            assert first.callbacks is not None
            first.callbacks.append(self._wake)
            try:
                self._block(lambda: "the end of a computation")
            finally:
                self.computed_ps += self._now_ps - began_ps
                self.waited_ps -= self._now_ps - began_ps
        passed_ps = self._now_ps - began_ps
        fired = [handler for event, handler in self._interrupts if event.processed]
        self._interrupts = [own for own in self._interrupts if not own[0].processed]
        for handler in fired:
            handler()
        return passed_ps

    def _block(self, describe: Callable[[], str]) -> None:
        """Hand control to the engine until `_wake`."""
        self._describe = describe
        self._ready = False
        self.cluster._take_turn()
        self._turn.acquire()
        self.cluster._enter(self)
        self._describe = None
        if self.meter is not None:
            self.meter()  # what the cluster itself has taken is no computation
        if self.cluster._unwinding or self.is_dead:
            raise RankUnwound

    def _wake(self, event: simpy.Event) -> None:
        """Engine: the event that this rank waits for has fired."""
        event.defused = True
        if not self.is_dead:
            self._make_ready()

    def _make_ready(self) -> None:
        now_ps = int(self.cluster.env.now)
        if now_ps > self._now_ps:
            self.waited_ps += now_ps - self._now_ps
            self._now_ps = now_ps
        if not self._ready:
            self._ready = True
            self.cluster._make_runnable(self)

    def _kill(self) -> None:
        if not self.is_dead:
            self.is_dead = True
            for callback in self.on_death:
                callback()

    def _meet_death(self, _: simpy.Event) -> None:
        """Engine: the time has come at which this rank, which waits, is killed."""
        if not self._finished:
            self._kill()
            self._make_ready()
            self._now_ps = int(self.cluster.env.now)

    def check_thread(self) -> None:
        """Go no further where this rank cannot act: it is over, or this is another thread.

        Raises:
            SimulationError: called from another thread than this rank's.
        """
        if current_rank_thread() is not self:
            here = threading.current_thread().name
            raise SimulationError(f"rank {self.rank} can wait only in its own thread, not in {here!r}")
        if self.cluster._unwinding or self.is_dead:
            raise RankUnwound
        if self.meter is not None:
            self._read_meter(self.meter)

    def _run(self, fn: Callable[[int], Any], results: list[Any]) -> None:
        """The thread of this rank, from its first turn to its last."""
        _current.rank_thread = self
        self.thread_id = threading.get_ident()
        self._turn.acquire()
        try:
            if not self.cluster._unwinding:
                self.cluster._enter(self)
                self.charge_ps(0)  # it may be dead by now
                results[self.rank] = fn(self.rank)
        except RankUnwound:
            pass
        except BaseException as error:
            if not self.is_dead:
                self._error = error
        finally:
            self._finished = True
            self.cluster._take_turn()

    def _state(self) -> str:
        at = format_time(self._now_ps)
        remark = self.cluster.remark(self)
        if self.is_dead:
            return f"rank {self.rank}: was killed, at {at}{remark}"
        if self._finished:
            return f"rank {self.rank}: has finished, at {at}{remark}"
        if self._describe is None:
            return f"rank {self.rank}: can go on, at {at}{remark}"
        return f"rank {self.rank}: waits since {at} for {self._describe()}{remark}"


def current_rank_thread() -> RankThread | None:
    """Return the rank whose thread this is, or None in a thread that is no rank's."""
    return getattr(_current, "rank_thread", None)


def _delayed(
    env: simpy.Environment, delay: int, generator: Generator[simpy.Event, Any, T]
) -> Generator[simpy.Event, Any, T]:
    yield env.timeout(delay)
    return (yield from generator)


_current = threading.local()
