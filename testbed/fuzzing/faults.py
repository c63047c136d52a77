"""Kinds of faults: what a fuzzer may do to a run, and what may come of it.

A fault is drawn as shares, not as times: ``when`` is a share of the time that the same run takes without
faults, ``amount`` says how much of it.  So what is drawn needs to know nothing of the run, and a fault
becomes a condition when that time is known.  Faults that only change time or order must not change results;
all others may end the run in an error instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collectives.virtual.faults import VirtualCondition
    from sim.topology import Topology


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
        return FAULTS[self.kind].only_time


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


@dataclass(frozen=True)
class FaultKind:
    """A kind of faults.

    Attributes:
        name: as ``--faults`` takes it.
        only_time: it changes nothing but time and order, so results must stay.
        condition: what makes the condition of a fault, given the run without faults.
        meaning: in words.
    """

    name: str
    only_time: bool
    condition: Callable[[Fault, Calm], VirtualCondition]
    meaning: str


def draw_fault(kind: str, ranks: int, random: Random) -> Fault:
    """Return a fault of *kind* in a world of so many ranks."""
    return Fault(
        kind,
        random.randrange(ranks),
        round(random.random(), 3),
        round(random.random(), 3),
        random.randrange(1000),
    )


def _time(picoseconds: float) -> str:
    return f"{max(1, round(picoseconds))}ps"


def _kill(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import DeadRank

    if calm.iterations and fault.amount < 0.5:
        return DeadRank(fault.rank, iteration=int(fault.when * (calm.iterations + 1)))
    return DeadRank(fault.rank, at=_time(fault.when * calm.time_ps))


def _slow(fault: Fault, calm: Calm) -> VirtualCondition:
    from sim.scenario.conditions import Straggler

    delay = _time(fault.when * calm.time_ps / 4) if fault.seed % 2 else 0
    return Straggler(fault.rank, 1 + round(fault.amount * 9, 1), delay)


def _delay(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import MessageDelay

    return MessageDelay(_time(fault.amount**3 * calm.time_ps / 4), seed=fault.seed)


def _degrade(fault: Fault, calm: Calm) -> VirtualCondition:
    from sim.scenario.conditions import LinkChange

    return LinkChange(
        _link_of(fault, calm.topology), _time(fault.when * calm.time_ps), round(0.05 + 0.9 * fault.amount, 3)
    )


def _cut(fault: Fault, calm: Calm) -> VirtualCondition:
    from sim.scenario.conditions import LinkFailure

    return LinkFailure(_link_of(fault, calm.topology), _time(fault.when * calm.time_ps))


def _jitter(fault: Fault, calm: Calm) -> VirtualCondition:
    from sim.scenario.conditions import Jitter

    return Jitter(_time(fault.amount**3 * calm.time_ps / 10), seed=fault.seed)


def _traffic(fault: Fault, calm: Calm) -> VirtualCondition:
    from sim.scenario.conditions import Background

    other = (fault.rank + 1 + fault.seed % (calm.topology.num_ranks - 1)) % calm.topology.num_ranks
    return Background(fault.rank, other, nbytes=1 + int(fault.amount * 2**20))


def _store(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import SlowStore

    return SlowStore(_time(fault.amount**3 * calm.time_ps), seed=fault.seed)


def _exception(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import FailingCode

    return FailingCode(fault.rank, _iteration(fault, calm))


def _hook(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import FailingCode

    return FailingCode(fault.rank, _iteration(fault, calm), "hook")


def _abort(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import AbortedGroup

    return AbortedGroup(fault.rank, _iteration(fault, calm))


def _groups(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import CrossedGroups

    return CrossedGroups(fault.rank, _iteration(fault, calm))


def _clock(fault: Fault, calm: Calm) -> VirtualCondition:
    from collectives.virtual.faults import ClockJump

    return ClockJump(fault.rank, round((fault.amount - 0.5) * 7200, 3), _iteration(fault, calm))


def _iteration(fault: Fault, calm: Calm) -> int:
    """Return after how many iterations a fault comes; a script without any is not reached by it."""
    return 1 + int(fault.when * max(0, calm.iterations - 1))


def _link_of(fault: Fault, topology: Topology) -> str:
    """Return a link of the topology, the same for the same fault: any of them."""
    return topology.link_name((fault.rank * 1000 + fault.seed) % topology.num_links)


FAULTS: Mapping[str, FaultKind] = {
    kind.name: kind
    for kind in (
        FaultKind("delay", True, _delay, "messages are late at random"),
        FaultKind("slow", True, _slow, "a rank is slow, or late"),
        FaultKind("jitter", True, _jitter, "ranks pause at random before steps"),
        FaultKind("degrade", True, _degrade, "a link carries less from some time on"),
        FaultKind("traffic", True, _traffic, "other traffic between two ranks"),
        FaultKind("store", True, _store, "calls of the store are slow at random"),
        FaultKind("kill", False, _kill, "a rank is killed"),
        FaultKind("cut", False, _cut, "a link carries nothing from some time on"),
        FaultKind("exception", False, _exception, "an exception on a rank, after a step"),
        FaultKind("hook", False, _hook, "an exception on a rank, in a hook of its backward pass"),
        FaultKind("abort", False, _abort, "a rank aborts its process groups"),
        FaultKind("groups", False, _groups, "a rank makes new groups in another order"),
        FaultKind("clock", False, _clock, "the clock of a rank is set"),
    )
}
"""All kinds, by name."""


def condition_of(fault: Fault, calm: Calm) -> Any:
    """Return the condition that *fault* is in a run that takes without it what *calm* says."""
    return FAULTS[fault.kind].condition(fault, calm)
