"""Ranks of torch's suite as processes, whose groups are ours over Gloo; a driver.

The harness is torch's own: it starts a process for each rank, which makes its group and runs the test, and
looks at how all of them end.  Only that they are forked, since an import of torch takes two seconds, and that
every group is ours, whichever backend is asked for.

Nearly all tests are those that torch runs on Gloo.  The suite has ``all_to_all`` for MPI alone, and one test
of the name under which the backend goes.
"""

from __future__ import annotations

import functools
import os
import unittest
from types import ModuleType

import torch

from _collective_testbed_entry import BACKEND, register_backend
from collectives.torch_backend.every_group import every_group_ours
from tools.torch_suite import driver

SECONDS = 120
"""Within which a test ends, if torch gives it no other time."""


def gate_of(test: str) -> str:
    """Return the backend that the suite is imported for."""
    if test == "test_get_backend":
        return BACKEND
    return "mpi" if "all_to_all" in test else "gloo"


@functools.cache
def case_of(module: ModuleType) -> type[unittest.TestCase]:
    """Return the suite's class with a forked process for each rank."""
    if module.BACKEND == "mpi":  # decorators have seen it; torch has no groups of MPI
        module.BACKEND = "gloo"  # type: ignore[attr-defined]

    class Processes(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore
        """Each test in as many processes as the world has ranks."""

        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Processes


def main() -> None:
    """Let every new group be ours, then run what the command line asks for."""
    register_backend()
    for owner, name, value in every_group_ours(BACKEND):
        setattr(owner, name, value)
    driver.main(gate_of, case_of)


if __name__ == "__main__":
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS)
    torch.set_num_threads(1)  # threads would not survive a fork
    main()
