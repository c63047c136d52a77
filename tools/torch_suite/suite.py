"""Torch's own suite of tests of ``torch.distributed``, which the installed torch brings along.

Its decorators look at two environment variables when the file is imported: ``BACKEND``, here called the
*gate*, decides which tests are skipped, and ``WORLD_SIZE``.  So a process imports it for one world size, and
once for each gate, as a module of its own.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

FILE = Path(torch.__file__).parent / "testing" / "_internal" / "distributed" / "distributed_test.py"


def load(gate: str, world_size: int) -> ModuleType:
    """Return the suite's module for the backend *gate*; some decorators ask again when a test is called."""
    os.environ.update(BACKEND=gate, WORLD_SIZE=str(world_size))
    return _imported(gate)


@functools.cache
def _imported(gate: str) -> ModuleType:
    name = f"torch_suite_for_{gate}"
    spec = importlib.util.spec_from_file_location(name, FILE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    real = dist.is_mpi_available
    dist.is_mpi_available = lambda: gate == "mpi"
    try:
        spec.loader.exec_module(module)
    finally:
        dist.is_mpi_available = real
    return module


def tests_of(module: ModuleType) -> list[str]:
    """Return the names of all tests of `DistributedTest`, in the order of the alphabet."""
    return sorted(name for name in dir(module.DistributedTest._DistTestBase) if name.startswith("test"))


def uses_ddp(module: ModuleType, test: str) -> bool:
    """Return whether *test*, or a method that it calls, makes a DistributedDataParallel."""
    return _says(module, test, r"DistributedDataParallel\(")


def needs_three_ranks(module: ModuleType, test: str) -> bool:
    """Return whether *test* makes a group of the ranks 1 and 2, which no world of two has."""
    return _says(module, test, r"_init_group_test\(")


def _says(module: ModuleType, test: str, pattern: str) -> bool:
    """Return whether *pattern* is in the text of *test*, or of a method that it calls."""
    base = module.DistributedTest._DistTestBase
    seen, todo = set(), [test]
    while todo:
        name = todo.pop()
        method = getattr(base, name, None)
        if name in seen or not callable(method):
            continue
        seen.add(name)
        text = inspect.getsource(inspect.unwrap(method))
        if re.search(pattern, text):
            return True
        todo += re.findall(r"self\.(_?\w+)", text)
    return False


def put_our_ddp_in_place(module: ModuleType) -> None:
    """Let *module* and torch's own packages take our DistributedDataParallel for torch's."""
    import ddp

    ours: Any = ddp.DistributedDataParallel
    module.DistributedDataParallel = ours  # type: ignore[attr-defined]
    torch.nn.parallel.DistributedDataParallel = ours  # type: ignore[misc]
