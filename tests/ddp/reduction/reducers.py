"""Reducers of several ranks in one order of events: what completes is what all ranks have launched."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ddp.reduction.events import (
    AwaitBucket,
    BackwardBegan,
    BackwardEnded,
    BucketReduced,
    Event,
    EverythingNeeded,
    FinishBackward,
    GradReady,
    LaunchBucket,
    OptimizerStepped,
    ParameterNeeded,
    UpdateBucket,
)
from ddp.reduction.reducer import Reducer
from ddp.reduction.strategies.plan import Plan, PlannedLaunch
from ddp.reduction.strategies.strategy import Barrier, Strategy
from sim.cluster import Choices, Order, Thing, Touch

IsReady = Callable[[], bool]


@dataclass
class Rank:
    """One rank: its reducer, and what it has been told to do.

    Attributes:
        launched: in this order.
        in_flight: of those, what it has not seen complete.
        updated: buckets, in the order of their updates.
        num_finished: how often its pass was over.
    """

    reducer: Reducer
    launched: list[PlannedLaunch] = field(default_factory=list)
    in_flight: list[PlannedLaunch] = field(default_factory=list)
    updated: list[int] = field(default_factory=list)
    num_finished: int = 0


class Reducers:
    """A training step of ranks that differ in the order of their gradients.

    Args:
        plan: of the buckets.
        strategy: lets them go.
        gradients: of each rank, its parameters in the order in which their gradients become ready.
    """

    def __init__(self, plan: Plan, strategy: Strategy, gradients: Sequence[Sequence[int]]) -> None:
        self._plan = plan
        self._strategy = strategy
        self._gradients = gradients
        self._choices: Choices
        self._launches = Counter()

    def step(self, order: Order) -> list[Rank]:
        """Carry the step out in *order*; return what became of the ranks."""
        self._choices = order.begin()
        self._launches.clear()
        ranks = [Rank(Reducer(self._plan, self._strategy)) for _ in self._gradients]
        turns = {number: self._live(ranks[number], number) for number in range(len(ranks))}
        ready = dict.fromkeys(turns, lambda: True)
        while turns:
            runnable = [number for number in turns if ready[number]()]
            assert runnable, f"ranks {list(turns)} wait for each other"
            number = self._choices.first("turn", runnable, 0)
            try:
                ready[number] = next(turns[number])
            except StopIteration:
                del turns[number]
        return ranks

    def _live(self, rank: Rank, number: int) -> Iterator[IsReady]:
        """Yield at the end of each turn when the next one can come."""
        for event in self._events(number):
            yield from self._look(rank)
            yield from self._tell(rank, event)
        yield from self._look(rank)

    def _events(self, number: int) -> Iterator[Event]:
        yield BackwardBegan()
        for parameter in self._gradients[number]:
            yield GradReady(parameter)
        yield BackwardEnded()
        if self._strategy.barrier is not Barrier.BACKWARD_END:
            yield OptimizerStepped()
        for parameter in reversed(self._gradients[number]):
            yield ParameterNeeded(parameter)
        yield EverythingNeeded()

    def _tell(self, rank: Rank, event: Event) -> Iterator[IsReady]:
        for command in rank.reducer.handle(event):
            match command:
                case LaunchBucket(bucket, collective):
                    launch = PlannedLaunch(bucket, collective)
                    self._choices.touch(self._thing(launch), Touch.CONTRIBUTE)
                    self._launches[launch] += 1
                    rank.launched.append(launch)
                    rank.in_flight.append(launch)
                case AwaitBucket(bucket):
                    launch = next(own for own in rank.in_flight if own.bucket == bucket)
                    yield lambda launch=launch: self._is_complete(launch)
                    yield from self._land(rank, launch)
                case UpdateBucket(bucket):
                    rank.updated.append(bucket)
                case FinishBackward():
                    rank.num_finished += 1

    def _look(self, rank: Rank) -> Iterator[IsReady]:
        """See what has completed, in the order of launches."""
        for launch in list(rank.in_flight):
            yield lambda: True
            self._choices.touch(self._thing(launch), Touch.READ)
            if launch not in rank.in_flight or not self._is_complete(launch):
                return
            yield from self._land(rank, launch)

    def _land(self, rank: Rank, launch: PlannedLaunch) -> Iterator[IsReady]:
        rank.in_flight.remove(launch)
        yield from self._tell(rank, BucketReduced(launch.bucket))

    def _is_complete(self, launch: PlannedLaunch) -> bool:
        return self._launches[launch] == len(self._gradients)

    def _thing(self, launch: PlannedLaunch) -> Thing:
        return Thing(f"{launch.collective} of bucket {launch.bucket}", contributions=len(self._gradients))
