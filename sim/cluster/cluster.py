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
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import simpy

from sim.cluster.rank_thread import RankThread, RankUnwound, current_rank_thread
from sim.errors import DeadlockError, LinkFailedError, RankError, SimulationError
from sim.scenario import Scenario
from sim.units import format_time

if TYPE_CHECKING:
    from sim.scenario.conditions import Condition
    from sim.topology import Topology
    from sim.trace import Trace

__all__ = ["Cluster", "RankContext", "RankThread", "RankUnwound"]

T = TypeVar("T")

_JOIN_SECONDS = 5.0
_INTERRUPT_SECONDS = 0.1
_SHOWN_STATES = 16


class RankContext(Protocol):
    """What the process has once and every rank needs for itself, such as a random generator.

    What belongs to a rank stays in place until another rank runs, or the run ends.  So it is there
    while the engine runs, too, which must not depend on it.
    """

    def enter(self, rank: int) -> None:
        """Put in place what belongs to *rank*, which is about to run."""

    def leave(self, rank: int) -> None:
        """Keep what belongs to *rank*, and put back what was there before; in any thread."""

    def switch(self, before: int, after: int) -> None:
        """Leave *before* and enter *after*, without putting back what was there in between."""


class Cluster:
    """The ranks of a topology, one network between them, and one virtual time.

    Attributes:
        topology: the network's shape; it has ``num_ranks`` ranks.
        compute: picoseconds per kind of work, as `RankThread.charge` names it.
        contexts: what is swapped at every switch between ranks.
        trace: where computations that are charged are recorded, if anywhere.
        scenario: the topology under the conditions that hold.
        env: the SimPy environment; its time is in integer picoseconds.
        network: carries the messages between ranks.
        shared: what code of different ranks shares, by keys of its own.
        deaths_ps: when ranks are killed, by rank; from the start of the simulation, in picoseconds.
        remark: says more of a rank in an error, such as in which iteration it is.
        where: says, in lines, where in their code ranks are that have not finished.
        explain: says more of a deadlock, in lines, while the ranks still wait.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        compute: Mapping[str, int] | None = None,
        contexts: Sequence[RankContext] = (),
        trace: Trace | None = None,
        conditions: Sequence[Condition] = (),
    ) -> None:
        self.topology = topology
        self.compute = dict(compute or {})
        self.contexts = tuple(contexts)
        self.trace = trace
        self.env = simpy.Environment(initial_time=0)
        self.scenario = Scenario.of(topology, conditions)
        self.network = self.scenario.network(self.env)
        self.shared: dict[Any, Any] = {}
        self.deaths_ps: dict[int, int] = {}
        self.remark: Callable[[RankThread], str] = lambda rank: ""
        self.where: Callable[[], Sequence[str]] = lambda: ()
        self.explain: Callable[[], Sequence[str]] = lambda: ()
        self._ranks: list[RankThread] = []
        self._runnable: list[tuple[int, int]] = []
        self._unnoticed: list[BaseException] = []
        self._engine_turn = threading.Lock()
        self._engine_turn.acquire()
        self._running: RankThread | None = None
        self._in_place: RankThread | None = None
        self._unwinding = False

    @staticmethod
    def current() -> RankThread | None:
        """Return the rank whose thread this is, or None in a thread that is no rank's."""
        return current_rank_thread()

    @property
    def ranks(self) -> tuple[RankThread, ...]:
        """The rank threads of the last run, in order."""
        return tuple(self._ranks)

    @property
    def times_ps(self) -> tuple[int, ...]:
        """The local time of each rank of the last run."""
        return tuple(rank.now_ps() for rank in self._ranks)

    @property
    def computed_ps(self) -> tuple[int, ...]:
        """How much of the time of each rank of the last run was computation."""
        return tuple(rank.computed_ps for rank in self._ranks)

    def run(self, fn: Callable[[int], T]) -> list[T]:
        """Run ``fn(rank)`` on every rank; return what the ranks returned, in order of rank.

        A cluster can run again after a run that succeeded: time goes on from where it was.

        Raises:
            RankError: a rank raised; the message names it, ``__cause__`` is what it raised, and a note says
                what the other ranks were doing.
            DeadlockError: ranks wait for what will never happen; the message says for what.
            SimulationError: called on a rank of a cluster, or after a run that failed.
        """
        if current_rank_thread() is not None:
            raise SimulationError("a rank cannot run a cluster; call Cluster.run outside of the ranks")
        if self._unwinding:
            raise SimulationError("this cluster's last run failed and left it half-way; make a new Cluster")
        num_ranks = self.topology.num_ranks
        times = [max(now_ps, int(self.env.now)) for now_ps in self.times_ps] or [0] * num_ranks
        times = [now_ps + self.scenario.delays_ps.get(rank, 0) for rank, now_ps in enumerate(times)]
        self._ranks = [RankThread(self, rank, now_ps) for rank, now_ps in enumerate(times)]
        self._runnable = sorted((rank.now_ps(), rank.rank) for rank in self._ranks)
        for rank, death_ps in self.deaths_ps.items():
            delay_ps = max(0, death_ps - int(self.env.now))
            self.env.timeout(delay_ps).callbacks.append(self._ranks[rank]._meet_death)
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
        finally:
            self._enter(None)
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
            try:
                advanced = self._advance()
            except LinkFailedError as error:
                error.add_note("\n".join(self._states()))
                raise
            if not advanced:
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
            failure = RankError(rank.rank, message)
            failure.add_note("\n".join(self._states()))
            raise failure from error

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

    def _enter(self, rank: RankThread | None) -> None:
        """Put in place what belongs to *rank*; for None, what was there before the run."""
        before, self._in_place = self._in_place, rank
        if before is rank:
            return
        if before is not None and rank is not None:
            for context in self.contexts:
                context.switch(before.rank, rank.rank)
        elif before is not None:
            for context in reversed(self.contexts):
                context.leave(before.rank)
        elif rank is not None:
            for context in self.contexts:
                context.enter(rank.rank)

    def _make_runnable(self, rank: RankThread) -> None:
        heapq.heappush(self._runnable, (rank._now_ps, rank.rank))

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

    def _states(self) -> list[str]:
        """Return in lines what ranks that have not raised are doing; of many, the first and the dead."""
        told = [rank for rank in self._ranks if rank._error is None]
        shown = [rank for number, rank in enumerate(told) if number < _SHOWN_STATES or rank.is_dead]
        more = [f"and {len(told) - len(shown)} more ranks"] if len(told) > len(shown) else []
        return [*(rank._state() for rank in shown), *more, *self.where()]

    def _deadlock_report(self) -> str:
        waiting = [rank for rank in self._ranks if not rank._finished]
        time_ps = max(int(self.env.now), *(rank._now_ps for rank in waiting))
        killed = any(rank.is_dead for rank in self._ranks)
        advice = "" if killed else "; every rank must make the same calls in the same order"
        head = (
            f"deadlock at {format_time(time_ps)}: {len(waiting)} of {len(self._ranks)} ranks wait for "
            f"what will never happen{advice}"
        )
        return "\n  ".join([head, *self._states(), *self.explain()])
