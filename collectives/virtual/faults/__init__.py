"""Faults of a virtual cluster that are no matter of its network.  Open `kinds` first."""

from collectives.virtual.faults.faults import Faults
from collectives.virtual.faults.kinds import (
    AbortedGroup,
    ClockJump,
    CrossedGroups,
    DeadRank,
    FailingCode,
    MessageDelay,
    RankFault,
    SlowStore,
    VirtualCondition,
)

__all__ = [
    "AbortedGroup",
    "ClockJump",
    "CrossedGroups",
    "DeadRank",
    "FailingCode",
    "Faults",
    "MessageDelay",
    "RankFault",
    "SlowStore",
    "VirtualCondition",
]
