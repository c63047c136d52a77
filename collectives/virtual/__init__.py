"""Unmodified torch code as the ranks of a cluster in virtual time, in one process."""

from collectives.virtual.computation import compute
from collectives.virtual.iterations import end_iteration
from collectives.virtual.report import VirtualReport
from collectives.virtual.virtual_run import VirtualRun, run, run_virtual

__all__ = ["VirtualReport", "VirtualRun", "compute", "end_iteration", "run", "run_virtual"]
