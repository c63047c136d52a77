"""Unmodified torch code as the ranks of a cluster in virtual time, in one process."""

from collectives.virtual.computation import compute
from collectives.virtual.run import VirtualRun, run_virtual

__all__ = ["VirtualRun", "compute", "run_virtual"]
