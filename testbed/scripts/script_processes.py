"""A script for real: a process for each rank, with our algorithms, whatever backend it asks for.

This module is also what each process runs: it makes ``testbed`` the backend of all process groups
and then becomes the script.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.scripts.launch import launch

_ALGORITHM = "TESTBED_ALGORITHM"


def run_processes(
    script: str, arguments: Sequence[str], num_ranks: int, *, module: bool, algorithm: str
) -> None:
    """Run *script* in *num_ranks* processes of this machine.

    Args:
        script: its path, or with *module* its name as of a module.
        arguments: of the script.
        num_ranks: number of processes.
        module: whether *script* is a module.
        algorithm: of its collectives, as on the command line.

    Raises:
        UsageError: there is no such script.
        RankExitError: a rank failed.
        CollectiveError: there is no such algorithm.
    """
    if not module and not Path(script).is_file():
        raise UsageError(f"{script}: there is no such script")
    from collectives.catalogue.selectors import check_choice
    from testbed.scripts.virtual_script import parse_algorithm

    check_choice(parse_algorithm(algorithm))
    what = f"{num_ranks} process{'es' * (num_ranks != 1)}"
    print(f"For real: {what} of this machine, backend testbed, {algorithm}.", file=sys.stderr, flush=True)
    how = ["-m", script] if module else [script]
    command = [sys.executable, "-u", "-m", "testbed.scripts.script_processes", *how, *arguments]
    launch(command, num_ranks, environment={_ALGORITHM: algorithm})


def _become_script() -> None:
    """Run the script that the arguments name, with our backend."""
    import torch.distributed.distributed_c10d as c10d

    from collectives.autoload import BACKEND, register
    from collectives.torch_backend import TestbedOptions
    from testbed.scripts.virtual_script import parse_algorithm

    register()
    options = TestbedOptions(parse_algorithm(os.environ.pop(_ALGORITHM, "ring")))
    helper = c10d._new_process_group_helper

    @functools.wraps(helper)
    def make(size: int, rank: int, ranks: list[int], backend: Any, *rest: Any, **more: Any) -> Any:
        more["backend_options"] = options
        return helper(size, rank, ranks, c10d.Backend(BACKEND), *rest, **more)

    own: Any = c10d
    own._new_process_group_helper = make
    own.default_pg_nccl_timeout = own.default_pg_timeout  # unset where torch has no NCCL
    _, *arguments = sys.argv
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    _become_script()
