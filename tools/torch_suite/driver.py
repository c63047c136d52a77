"""Command line of a driver: a program that runs tests of the suite with all ranks in one place.

A place says how: `tools.torch_suite.processes`, `tools.torch_suite.threads`.  Each driver is a process of its
own, as the suite and what it replaces in torch are for one world size.
"""

from __future__ import annotations

import argparse
import time
import unittest
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType

from tools.torch_suite import suite
from tools.torch_suite.outcome import Outcome, write

CaseOf = Callable[[ModuleType], type[unittest.TestCase]]
"""Returns the class whose tests run on the ranks of a place, given the suite for one gate."""


def main(
    gate_of: Callable[[str], str],
    case_of: CaseOf,
    arguments: Sequence[str] | None = None,
    while_loading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Run the tests that the command line names, by default all, and write each outcome.

    Args:
        gate_of: returns for a test the backend that decorators shall see.
        case_of: makes the class of the place.
        arguments: of the command line; None: those of this process.
        while_loading: the context in which the suite is imported.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--ddp", choices=("torch", "ours"), default="torch")
    parser.add_argument("--out", type=Path, required=True, help="file to which outcomes are added")
    parser.add_argument("tests", nargs="*", help="names; by default all, or all that use DDP if it is ours")
    options = parser.parse_args(arguments)

    with while_loading():
        everything = suite.tests_of(suite.load(gate_of(""), options.world_size))
    for name in options.tests or everything:
        with while_loading():
            module = suite.load(gate_of(name), options.world_size)
        if options.ddp == "ours":
            if not options.tests and not suite.uses_ddp(module, name):
                continue
            suite.put_our_ddp_in_place(module)
        if options.world_size < 3 and suite.needs_three_ranks(module, name):
            write(options.out, Outcome(name, "skipped", "makes a group of the ranks 1 and 2"))
            continue
        write(options.out, run(case_of(module), name))


def run(case: type[unittest.TestCase], name: str) -> Outcome:
    """Run one test and return what became of it."""
    began = time.monotonic()
    result = unittest.TestResult()
    case(name).run(result)
    seconds = round(time.monotonic() - began, 1)

    failures = result.failures + result.errors
    if failures:
        return Outcome(name, "failed", "\n".join(text for _, text in failures), seconds)
    if result.skipped:
        return Outcome(name, "skipped", result.skipped[0][1], seconds)
    return Outcome(name, "passed", "", seconds)
