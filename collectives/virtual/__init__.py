"""Unmodified torch code as the ranks of a cluster in virtual time, in one process."""

from collectives.torch_backend.script import Module
from collectives.virtual.computation import Charges, ComputeModel, Measured, Recorded, Roofline, compute
from collectives.virtual.faults import (
    AbortedGroup,
    ClockJump,
    CrossedGroups,
    DeadRank,
    FailingCode,
    MessageDelay,
    SlowStore,
)
from collectives.virtual.iterations import end_iteration
from collectives.virtual.report import VirtualReport
from collectives.virtual.setting import VirtualRun
from collectives.virtual.virtual_run import run, run_virtual

__all__ = [
    "AbortedGroup",
    "Charges",
    "ClockJump",
    "ComputeModel",
    "CrossedGroups",
    "DeadRank",
    "FailingCode",
    "Measured",
    "MessageDelay",
    "Module",
    "Recorded",
    "Roofline",
    "SlowStore",
    "VirtualReport",
    "VirtualRun",
    "compute",
    "end_iteration",
    "run",
    "run_virtual",
]
