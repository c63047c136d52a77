"""A cluster in virtual time: each rank is a thread, and exactly one thing runs at any moment.

That one thing is a rank, or the engine (SimPy, in the thread that called `Cluster.run`).  Each rank
has a local time, which only `RankThread.charge` and waiting advance.  A rank that must wait hands
control back; of the ranks that can go on, the one with the lowest (local time, rank) does.  Only
when no rank can go on does the engine advance the common time, until some rank's event has fired,
and then to the end of that instant.  So the common time never passes a rank that can still act,
no cause comes after its effect, and a run repeats exactly.

When the engine has nothing left to do and ranks still wait, nobody will ever wake them: that is a
deadlock, reported with what each rank waits for.

Threads rather than greenlets, because PyTorch's autograd keeps its state per thread.
"""

from __future__ import annotations

import ctypes
import heapq
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import simpy
from simpy.events import EventPriority

from sim.errors import DeadlockError, RankError, SimulationError
from sim.network import Network
from sim.units import format_time

if TYPE_CHECKING:
    from sim.topology import Topology
    from sim.trace import Trace

T = TypeVar("T")

_AFTER_ALL_ELSE = EventPriority(99)  # also after the network's, which settles late in an instant
_JOIN_SECONDS = 5.0
_INTERRUPT_SECONDS = 0.1


class RankContext(Protocol):
    """What the process has once and every rank needs for itself, such as a random generator.

    Both methods are called in the rank's own thread, at every switch from one rank to another.
    """

    def enter(self, rank: int) -> None:
        """Put in place what belongs to *rank*, which is about to run."""

    def leave(self, rank: int) -> None:
        """Keep what belongs to *rank*, which stops running, and put back what was there before."""


class RankUnwound(BaseException):
    """Raised where a rank waits when its run is over because of an error elsewhere.

    Not an `Exception`, so that a rank's ``except Exception`` does not swallow it.
    """


class RankThread:
    """One rank of a `Cluster`, as the code that runs on it sees it; it is a clock.

    Attributes:
        rank: from 0.
        cluster: the cluster it belongs to.
    """

    def __init__(self, cluster: Cluster, rank: int, now_ps: int) -> None:
        self.rank = rank
        self.cluster = cluster
        self._now_ps = now_ps
        self._turn = threading.Lock()
        self._turn.acquire()
        self._describe: Callable[[], str] | None = None
        self._finished = False
        self._error: BaseException | None = None

    def now_ps(self) -> int:
        """Return this rank's local time in picoseconds."""
        return self._now_ps

    def charge(self, work: str) -> None:
        """Let the time pass that the cluster's compute model gives for *work*; 0 if it has none."""
        began_ps = self._now_ps
        self.charge_ps(self.cluster.compute.get(work, 0))
        if self.cluster.trace is not None and self._now_ps > began_ps:
            self.cluster.trace.span(self.rank, "compute", work, began_ps, self._now_ps)

    def charge_ps(self, duration_ps: int) -> None:
        """Advance this rank's local time by *duration_ps* picoseconds of computation.

        Raises:
            ValueError: the duration is negative.
        """
        if duration_ps < 0:
            raise ValueError(f"a rank's time cannot run backwards: charged {duration_ps} ps")
        self._now_ps += duration_ps

    def spawn(self, generator: Generator[simpy.Event, Any, T]) -> simpy.Process:
        """Start *generator* as a SimPy process at this rank's local time.

        The process is an event that fires with the generator's value.  Should it fail and no rank
        ever wait for it, the run fails with its error at the end.
        """
        env = self.cluster.env
        delay = self._now_ps - int(env.now)
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
        self._check_thread()
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
        self._check_thread()
        if event.callbacks is not None:
            env = self.cluster.env
            reached = simpy.Event(env)
            reached._ok, reached._value = True, None
            assert reached.callbacks is not None
            reached.callbacks.append(self._wake)
            env.schedule(reached, _AFTER_ALL_ELSE, self._now_ps - env.now)
            self._block(lambda: "the engine to reach its local time")
        return event.processed

    def _block(self, describe: Callable[[], str]) -> None:
        """Hand control to the engine until `_wake`."""
        self._describe = describe
        self._leave_contexts()
        self.cluster._take_turn()
        self._turn.acquire()
        self._enter_contexts()
        self._describe = None
        if self.cluster._unwinding:
            raise RankUnwound

    def _wake(self, event: simpy.Event) -> None:
        """Engine: the event that this rank waits for has fired."""
        event.defused = True
        self._now_ps = max(self._now_ps, int(self.cluster.env.now))
        heapq.heappush(self.cluster._runnable, (self._now_ps, self.rank))

    def _check_thread(self) -> None:
        if Cluster.current() is not self:
            here = threading.current_thread().name
            raise SimulationError(f"rank {self.rank} can wait only in its own thread, not in {here!r}")
        if self.cluster._unwinding:
            raise RankUnwound

    def _enter_contexts(self) -> None:
        for context in self.cluster.contexts:
            context.enter(self.rank)

    def _leave_contexts(self) -> None:
        for context in reversed(self.cluster.contexts):
            context.leave(self.rank)

    def _run(self, fn: Callable[[int], Any], results: list[Any]) -> None:
        """The thread of this rank, from its first turn to its last."""
        _current.rank_thread = self
        self._turn.acquire()
        try:
            if not self.cluster._unwinding:
                self._enter_contexts()
                try:
                    results[self.rank] = fn(self.rank)
                finally:
                    self._leave_contexts()
        except RankUnwound:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._finished = True
            self.cluster._take_turn()

    def _state(self) -> str:
        at = format_time(self._now_ps)
        if self._finished:
            return f"rank {self.rank}: has finished, at {at}"
        assert self._describe is not None
        return f"rank {self.rank}: waits since {at} for {self._describe()}"


class Cluster:
    """The ranks of a topology, one network between them, and one virtual time.

    Attributes:
        topology: the network's shape; it has ``num_ranks`` ranks.
        compute: picoseconds per kind of work, as `RankThread.charge` names it.
        contexts: what is swapped at every switch between ranks.
        trace: where computations that are charged are recorded, if anywhere.
        env: the SimPy environment; its time is in integer picoseconds.
        network: carries the messages between ranks.
        shared: what code of different ranks shares, by keys of its own.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        compute: Mapping[str, int] | None = None,
        contexts: Sequence[RankContext] = (),
        trace: Trace | None = None,
    ) -> None:
        self.topology = topology
        self.compute = dict(compute or {})
        self.contexts = tuple(contexts)
        self.trace = trace
        self.env = simpy.Environment(initial_time=0)
        self.network = Network(self.env, topology)
        self.shared: dict[Any, Any] = {}
        self._ranks: list[RankThread] = []
        self._runnable: list[tuple[int, int]] = []
        self._unnoticed: list[BaseException] = []
        self._engine_turn = threading.Lock()
        self._engine_turn.acquire()
        self._running: RankThread | None = None
        self._unwinding = False

    @staticmethod
    def current() -> RankThread | None:
        """Return the rank whose thread this is, or None in a thread that is no rank's."""
        return getattr(_current, "rank_thread", None)

    @property
    def times_ps(self) -> tuple[int, ...]:
        """The local time of each rank of the last run."""
        return tuple(rank.now_ps() for rank in self._ranks)

    def run(self, fn: Callable[[int], T]) -> list[T]:
        """Run ``fn(rank)`` on every rank; return what the ranks returned, in order of rank.

        A cluster can run again after a run that succeeded: time goes on from where it was.

        Raises:
            RankError: a rank raised; the message names it and ``__cause__`` is what it raised.
            DeadlockError: ranks wait for what will never happen; the message says for what.
            SimulationError: called on a rank of a cluster, or after a run that failed.
        """
        if Cluster.current() is not None:
            raise SimulationError("a rank cannot run a cluster; call Cluster.run outside of the ranks")
        if self._unwinding:
            raise SimulationError("this cluster's last run failed and left it half-way; make a new Cluster")
        times = [max(now_ps, int(self.env.now)) for now_ps in self.times_ps] or [0] * self.topology.num_ranks
        self._ranks = [RankThread(self, rank, now_ps) for rank, now_ps in enumerate(times)]
        self._runnable = [(rank.now_ps(), rank.rank) for rank in self._ranks]
        results: list[Any] = [None] * len(self._ranks)
        threads = [
            threading.Thread(target=rank._run, args=(fn, results), name=f"rank {rank.rank}", daemon=True)
            for rank in self._ranks
        ]
        for thread in threads:
            thread.start()
        try:
            self._schedule()
        except BaseException:
            self._unwind(threads)
            raise
        for thread in threads:
            thread.join()
        return results

    def _schedule(self) -> None:
        """Give turns to ranks and to the engine until every rank has finished."""
        while True:
            while self._runnable:
                self._give_turn(self._ranks[heapq.heappop(self._runnable)[1]])
            if all(rank._finished for rank in self._ranks):
                break
            if not self._advance():
                raise DeadlockError(self._deadlock_report())
        self.env.run()
        if self._unnoticed:
            raise self._unnoticed[0]

    def _give_turn(self, rank: RankThread) -> None:
        self._running = rank
        rank._turn.release()
        self._engine_turn.acquire()
        self._running = None
        if rank._error is not None:
            error = rank._error
            message = f"rank {rank.rank} raised {type(error).__name__}: {error}"
            raise RankError(rank.rank, message) from error

    def _advance(self) -> bool:
        """Advance time to the end of the first instant in which a rank can go on; False if there is none."""
        env, never = self.env, float("inf")
        while not self._runnable:
            if env.peek() == never:
                return False
            env.step()
        while env.peek() == env.now:
            env.step()
        return True

    def _unwind(self, threads: Sequence[threading.Thread]) -> None:
        """End every rank that has not finished, one at a time, by an exception where it waits."""
        self._unwinding = True
        interrupted = self._running
        for rank in sorted(self._ranks, key=lambda rank: rank is not interrupted):
            thread = threads[rank.rank]
            if rank._turn.locked():
                rank._turn.release()
            thread.join(_INTERRUPT_SECONDS if rank is interrupted else _JOIN_SECONDS)
            if thread.ident is not None and thread.is_alive():  # it computes: stop it where it is
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(RankUnwound)
                )
                thread.join(_JOIN_SECONDS)

    def _take_turn(self) -> None:
        """Rank: hand control to the engine, which no longer waits for it when ranks are unwound."""
        if not self._unwinding:
            self._engine_turn.release()

    def _note_failure(self, event: simpy.Event) -> None:
        """Engine: keep a spawned process's failure until the rank that waits for it gets it."""
        if not event.ok:
            assert isinstance(event.value, BaseException)
            event.defused = True
            self._unnoticed.append(event.value)

    def _notice(self, error: BaseException) -> None:
        """Rank: *error* has been raised in it; so have, within it, the failures that led to it."""
        cause: BaseException | None = error
        while cause is not None:
            self._unnoticed = [other for other in self._unnoticed if other is not cause]
            cause = cause.__cause__

    def _deadlock_report(self) -> str:
        waiting = sum(not rank._finished for rank in self._ranks)
        lines = [
            f"deadlock at {format_time(int(self.env.now))}: {waiting} of {len(self._ranks)} ranks wait for "
            "what will never happen; every rank must make the same calls in the same order"
        ]
        return "\n  ".join([*lines, *(rank._state() for rank in self._ranks)])


def _delayed(
    env: simpy.Environment, delay: int, generator: Generator[simpy.Event, Any, T]
) -> Generator[simpy.Event, Any, T]:
    yield env.timeout(delay)
    return (yield from generator)


_current = threading.local()
