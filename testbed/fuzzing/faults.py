"""Kinds of faults: what a fuzzer may do to a run, and what may come of it.

A fault is drawn as shares, not as times: ``when`` is a share of the time that the same run takes without
faults, ``amount`` says how much of it.  So what is drawn needs to know nothing of the run, and a fault
becomes a condition when that time is known.  Faults that only change time or order must not change results;
all others may end the run in an error instead.  A function that runs as ranks of a test gets the former
alone, beside those of the test (`draw_of_time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Self

from sim.cluster import RandomOrder
from sim.scenario import conditions
from sim.topology import Topology
from testbed.fuzzing.values import digest

if TYPE_CHECKING:
    from collectives.virtual import VirtualRun
    from collectives.virtual.faults import VirtualCondition


@dataclass(frozen=True)
class Fault:
    """A fault, as it is drawn.

    Attributes:
        kind: one of `FAULTS`.
        rank: to which it happens, or whose link it is.
        when: share of the run's time without faults, from 0 to 1.
        amount: how much, from 0 to 1; what that means is the kind's.
        seed: of what is random in it.
    """

    kind: str
    rank: int
    when: float
    amount: float
    seed: int

    @property
    def only_time(self) -> bool:
        """Whether it changes nothing but time and order."""
        return self.kind in ONLY_TIME


class Drawn:
    """What draws of scripts and of programs have in common: dataclasses with `faults`."""

    faults: tuple[Fault, ...]

    @property
    def only_time(self) -> bool:
        """Whether nothing but time and order is changed, so that results must stay."""
        return all(fault.only_time for fault in self.faults)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return what `to_json` was made of."""
        own = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        return cls(**{**own, "faults": tuple(Fault(**fault) for fault in fields["faults"])})


@dataclass(frozen=True)
class Calm:
    """The run without faults, as far as a fault needs to know it.

    Attributes:
        topology: its network.
        time_ps: how long it takes.
        iterations: how many iterations rank 0 finishes.
    """

    topology: Topology
    time_ps: int
    iterations: int


ONLY_TIME = {
    "delay": "messages are late at random",
    "slow": "a rank is slow, or late",
    "jitter": "ranks pause at random before steps",
    "degrade": "a link carries less from some time on",
    "traffic": "other traffic between two ranks",
    "store": "calls of the store are slow at random",
}
"""Kinds that change only time and order, so that results must stay, each with what happens."""
FAULTS: Mapping[str, str] = {
    **ONLY_TIME,
    "kill": "a rank is killed",
    "cut": "a link carries nothing from some time on",
    "exception": "an exception on a rank, after a step",
    "hook": "an exception on a rank, in a hook of its backward pass",
    "abort": "a rank aborts its process groups",
    "groups": "a rank makes new groups in another order",
    "clock": "the clock of a rank is set",
}
"""All kinds, by name, as ``--faults`` takes it."""


def draw_fault(kind: str, ranks: int, random: Random) -> Fault:
    """Return a fault of *kind* in a world of so many ranks."""
    rank, when, amount = random.randrange(ranks), round(random.random(), 3), round(random.random(), 3)
    return Fault(kind, rank, when, amount, random.randrange(1000))


def draw_faults(
    kinds: Sequence[str], numbers: Sequence[int], ranks: int, random: Random
) -> tuple[Fault, ...]:
    """Return a fault of each of some of *kinds*, of which there are as many as one of *numbers*."""
    if not kinds:
        return ()
    chosen = random.sample(list(kinds), min(random.choice(numbers), len(kinds)))
    return tuple(draw_fault(kind, ranks, random) for kind in chosen)


def condition_of(fault: Fault, calm: Calm) -> VirtualCondition:
    """Return the condition that *fault* is in a run that takes without it what *calm* says."""
    from collectives.virtual import faults

    rank, amount, topology = fault.rank, fault.amount, calm.topology
    at = _time(fault.when * calm.time_ps)
    iteration = 1 + int(fault.when * max(0, calm.iterations - 1))  # a script without any is not reached
    match fault.kind:
        case "delay":
            return faults.MessageDelay(_time(amount**3 * calm.time_ps / 4), seed=fault.seed)
        case "slow":
            delay = _time(fault.when * calm.time_ps / 4) if fault.seed % 2 else 0
            return conditions.Straggler(rank, 1 + round(amount * 9, 1), delay)
        case "jitter":
            return conditions.Jitter(_time(amount**3 * calm.time_ps / 10), seed=fault.seed)
        case "degrade":
            return conditions.LinkChange(_link_of(fault, topology), at, round(0.05 + 0.9 * amount, 3))
        case "traffic":
            other = (rank + 1 + fault.seed % (topology.num_ranks - 1)) % topology.num_ranks
            return conditions.Background(rank, other, nbytes=1 + int(amount * 2**20))
        case "store":
            return faults.SlowStore(_time(amount**3 * calm.time_ps), seed=fault.seed)
        case "kill" if calm.iterations and amount < 0.5:
            return faults.DeadRank(rank, iteration=int(fault.when * (calm.iterations + 1)))
        case "kill":
            return faults.DeadRank(rank, at=at)
        case "cut":
            return conditions.LinkFailure(_link_of(fault, topology), at)
        case "exception":
            return faults.FailingCode(rank, iteration)
        case "hook":
            return faults.FailingCode(rank, iteration, "hook")
        case "abort":
            return faults.AbortedGroup(rank, iteration)
        case "groups":
            return faults.CrossedGroups(rank, iteration)
        case "clock":
            return faults.ClockJump(rank, round((amount - 0.5) * 7200, 3), iteration)
    raise ValueError(f"no such kind of faults: {fault.kind}; expected one of {', '.join(FAULTS)}")


def _time(picoseconds: float) -> str:
    return f"{max(1, round(picoseconds))}ps"


def _link_of(fault: Fault, topology: Topology) -> str:
    """Return a link of the topology, the same for the same fault: any of them."""
    return topology.link_name((fault.rank * 1000 + fault.seed) % topology.num_links)


_MOST_FAULTS = 3


def draw_of_time(
    seed: int, run: VirtualRun, given: Sequence[VirtualCondition], *, is_timed: bool
) -> tuple[tuple[VirtualCondition, ...], RandomOrder]:
    """Return the conditions and the order of events that *seed* means for a function.

    Args:
        seed: from which they are drawn.
        run: of the function, without them.
        given: conditions that hold anyway; none of their kinds is drawn.
        is_timed: whether computation takes time; else there are seeds under which messages take none.
    """
    random = Random(f"function {seed}")
    topology = run.cluster.topology
    calm = Calm(topology, max(1, *run.times_ps), len(run.report.iterations))
    kinds = list(ONLY_TIME)
    if topology.num_ranks < 2:
        kinds.remove("traffic")
    chosen = random.sample(kinds, random.randrange(_MOST_FAULTS + 1))
    drawn = [condition_of(draw_fault(kind, topology.num_ranks, random), calm) for kind in chosen]
    held = {type(condition) for condition in given}
    conditions = tuple(condition for condition in drawn if type(condition) not in held)
    at_any_speed = not (conditions or given or is_timed)
    return (*given, *conditions), RandomOrder(random.randrange(1 << 16), at_any_speed=at_any_speed)


def parted(own: Iterable[object], others: Iterable[object]) -> str:
    """Return in words which rank returned something else than in another run; nothing if none did."""
    for rank, (result, other) in enumerate(zip(own, others, strict=True)):
        if digest(result) != digest(other):
            return f"rank {rank} returned {_short(result)}, without faults {_short(other)}"
    return ""


def _short(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:79] + "…"
