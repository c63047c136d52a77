"""A cluster in virtual time: each rank is a thread, and exactly one thing runs at any moment.

That one thing is a rank, or the engine (SimPy, in the thread that called `Cluster.run`).  Each rank
has a local time, which only `RankThread.charge` and waiting advance.  A rank that must wait hands
control back; of the ranks that can go on, the one with the lowest (local time, rank) does.  Only
when no rank can go on does the engine advance the common time, until some rank's event has fired,
and then to the end of that instant.  So the common time never passes a rank that can still act,
no cause comes after its effect, and a run repeats exactly.

    cluster        the ranks, the network between them, and a run from its start to its end (open first)
    rank_thread    what a rank can do: compute, wait, poll, start processes, die
    scheduler      who runs next, and how threads end when a run fails
    order          who is first where time does not say it
    surroundings   what a rank shares with the others

Not every rank needs a thread.  Where ranks do the same, one thread can say what all of them do, and
whoever lets them do it in virtual time notes in `Cluster.played` when they end.

When the engine has nothing left to do and ranks still wait, nobody will ever wake them: that is a
deadlock, reported with what each rank waits for.

Threads rather than greenlets, because PyTorch's autograd keeps its state per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import simpy

from sim.cluster.order import Choices, Order
from sim.cluster.rank_thread import RankThread, current_rank_thread
from sim.cluster.scheduler import RankContext, Scheduler
from sim.cluster.surroundings import ProcessFailures
from sim.errors import DeadlockError, RankError, SimulationError, WaitTimeoutError
from sim.scenario import Scenario
from sim.scenario.conditions import Condition
from sim.topology import Topology
from sim.trace import Trace
from sim.units import format_time

T = TypeVar("T")

_SHOWN_STATES = 16


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
        threads: the ranks that have a thread.
        order: who is first where time does not say it; None: the least rank.
        played: of ranks whose thread does not say it: their time at the end, and how much they computed.
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
        threads: Sequence[int] | None = None,
        order: Order | None = None,
    ) -> None:
        self.topology = topology
        self.threads = tuple(range(topology.num_ranks) if threads is None else sorted(threads))
        self.compute = dict(compute or {})
        self.contexts = tuple(contexts)
        self.trace = trace
        self.env = simpy.Environment(initial_time=0)
        self.scenario = Scenario.of(topology, conditions)
        self.network = self.scenario.network(self.env)
        self.network.takes_time = order is None or not order.at_any_speed
        self.shared: dict[Any, Any] = {}
        self.played: dict[int, tuple[int, int]] = {}
        self.deaths_ps: dict[int, int] = {}
        self.remark: Callable[[RankThread], str] = lambda rank: ""
        self.where: Callable[[], Sequence[str]] = lambda: ()
        self.explain: Callable[[], Sequence[str]] = lambda: ()
        self._scheduler = Scheduler(self.env, self.contexts, order)
        self._scheduler.describe_standstill = self._standstill
        self._failures = ProcessFailures()
        self._ranks: tuple[RankThread, ...] = ()
        self._by_rank: dict[int, RankThread] = {}

    @property
    def choices(self) -> Choices | None:
        """Of this run, where an order was given; else the least rank is first."""
        return self._scheduler.choices

    @staticmethod
    def current() -> RankThread | None:
        """Return the rank whose thread this is, or None in a thread that is no rank's."""
        return current_rank_thread()

    @property
    def ranks(self) -> tuple[RankThread, ...]:
        """The rank threads of the last run, in order."""
        return self._ranks

    def thread_of(self, rank: int) -> RankThread | None:
        """Return the thread of *rank* in the last run; None if it has none."""
        return self._by_rank.get(rank)

    @property
    def times_ps(self) -> tuple[int, ...]:
        """The local time of each rank of the last run."""
        return tuple(now_ps for now_ps, _ in self._ends())

    @property
    def computed_ps(self) -> tuple[int, ...]:
        """How much of the time of each rank of the last run was computation."""
        return tuple(computed_ps for _, computed_ps in self._ends())

    def _ends(self) -> Iterator[tuple[int, int]]:
        """Yield of each rank of the last run its time and how much of it was computation."""
        if not self._ranks:
            return
        own = {rank.rank: (rank.now_ps(), rank.computed_ps) for rank in self._ranks}
        for rank in range(self.topology.num_ranks):
            yield self.played.get(rank) or own.get(rank, (0, 0))

    def run(self, fn: Callable[[int], T]) -> list[T]:
        """Run ``fn(rank)`` on every rank that has a thread; return what the ranks returned, in order of rank.

        A rank without a thread has returned None.

        A cluster can run again after a run that succeeded: time goes on from where it was.

        Raises:
            RankError: a rank raised; the message names it, ``__cause__`` is what it raised, and a note says
                what the other ranks were doing.
            DeadlockError: ranks wait for what will never happen; the message says for what.
            SimulationError: called on a rank of a cluster, or after a run that failed.
        """
        if current_rank_thread() is not None:
            raise SimulationError("a rank cannot run a cluster; call Cluster.run outside of the ranks")
        if self._scheduler.is_unwinding:
            raise SimulationError("this cluster's last run failed and left it half-way; make a new Cluster")
        self._ranks = self._make_ranks()
        self._by_rank = {rank.rank: rank for rank in self._ranks}
        results: list[Any] = [None] * self.topology.num_ranks

        def body(rank: RankThread) -> Callable[[], None]:
            def run() -> None:
                results[rank.rank] = rank.run(fn)

            return run

        with self._scheduler.threads([body(rank) for rank in self._ranks]):
            self._run_to_the_end()
        return results

    def release(self) -> None:
        """Let go of what ranks had of their own and of what they raised, once none will run again.

        Caches of libraries keep process groups, which know their cluster; what ranks have made must not
        last as long.
        """
        self.contexts = ()
        self._scheduler.release()

    def _make_ranks(self) -> tuple[RankThread, ...]:
        """Return the ranks of a new run; they go on where those of the last one ended."""
        began_ps = int(self.env.now)
        times = [max(now_ps, began_ps) for now_ps in self.times_ps] or [0] * self.topology.num_ranks
        turns = self._scheduler.make_turns(
            {rank: times[rank] + self.scenario.delays_ps.get(rank, 0) for rank in self.threads}
        )
        factors = self.scenario.factors
        ranks = tuple(
            RankThread(self, turn, self._failures, charges=self.compute, slowness=factors.get(turn.number))
            for turn in turns
        )
        for rank in ranks:
            if rank.rank in self.deaths_ps:
                rank.die_at(self.deaths_ps[rank.rank])
        return ranks

    def _run_to_the_end(self) -> None:
        """Run the ranks until all have finished, and what they have started until nothing is left."""
        try:
            raised = self._scheduler.run()
        except Exception as error:  # such as a link that failed, or sizes that do not fit each other
            self._show_waiting()
            error.add_note("\n".join(self._states(self._ranks)))
            raise

        waiting = [rank for rank in self._ranks if not rank.has_finished]
        if waiting:
            self._show_waiting()
        if raised is not None:
            cause, rank = raised.error, raised.number
            if deadlock := _deadlock_behind(cause):
                raise DeadlockError(deadlock) from cause
            failure = RankError(rank, f"rank {rank} raised {type(cause).__name__}: {cause}")
            others = [other for other in self._ranks if other.rank != rank]
            failure.add_note("\n".join(self._states(others)))
            raise failure from cause
        if waiting:
            raise DeadlockError(self._deadlock_report(waiting))

        self.env.run()
        if self._failures.first is not None:
            raise self._failures.first

    def _show_waiting(self) -> None:
        """Show in the trace what ranks still wait for when the run has failed."""
        if self.trace is not None:
            for rank in self._ranks:
                if not rank.is_dead and (awaited := rank.awaited) is not None:
                    self.trace.unfinished(rank.rank, "communication", awaited, rank.now_ps())

    def _states(self, ranks: Sequence[RankThread]) -> list[str]:
        """Return in lines what *ranks* are doing; of many, the first and the dead."""
        shown = [rank for number, rank in enumerate(ranks) if number < _SHOWN_STATES or rank.is_dead]
        hidden = len(ranks) - len(shown)
        more = [f"and {hidden} more ranks"] if hidden else []
        return [*(rank.describe() + self.remark(rank) for rank in shown), *more, *self.where()]

    def _standstill(self) -> str:
        """Return what all ranks wait for, of which one is about to give up."""
        return self._deadlock_report([rank for rank in self._ranks if not rank.has_finished])

    def _deadlock_report(self, waiting: Sequence[RankThread]) -> str:
        """Return what each rank waits for, while they still do."""
        time_ps = max(int(self.env.now), *(rank.now_ps() for rank in waiting))
        killed = any(rank.is_dead for rank in self._ranks)
        advice = "" if killed else "; every rank must make the same calls in the same order"
        head = (
            f"deadlock at {format_time(time_ps)}: {len(waiting)} of {len(self._ranks)} ranks wait for "
            f"what will never happen{advice}"
        )
        return "\n  ".join([head, *self._states(self._ranks), *self.explain()])


def _deadlock_behind(error: BaseException | None) -> str:
    """Return the deadlock that a rank was in when it gave up waiting, if that is what *error* comes from."""
    while error is not None:
        if isinstance(error, WaitTimeoutError):
            return error.deadlock
        error = error.__cause__
    return ""
