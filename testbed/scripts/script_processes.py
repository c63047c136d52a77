"""Scripts for real: a process for each rank, with our algorithms, whatever backend the script asks for.

This module is also what each process runs: it makes ``testbed`` the backend of all process groups
and then becomes the script.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from _collective_testbed_entry import BACKEND, PACKAGES, register_backend
from testbed.options.arguments import parse_algorithm
from testbed.scripts.launch import launch, leave_current_folder, own_module
from testbed.scripts.script import check_script

if TYPE_CHECKING:
    from collectives.torch_backend.script import Script


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
    check_script(script, is_module=module)
    from collectives.catalogue.selectors import check_choice
    from testbed.options.evidence import evidence_for

    choice = parse_algorithm(algorithm)
    check_choice(choice)
    evidence_for([choice], [(num_ranks, num_ranks)])
    what = "1 process" if num_ranks == 1 else f"{num_ranks} processes"
    print(f"For real: {what} of this machine, backend testbed, {algorithm}.", file=sys.stderr, flush=True)

    named = ["-m", script] if module else [script]
    launch([*own_module("testbed.scripts.script_processes"), algorithm, *named, *arguments], num_ranks)


def _become_script() -> None:
    """Run the script that the arguments name, with our backend."""
    from collectives.torch_backend import TestbedOptions
    from collectives.torch_backend.every_group import every_group_ours
    from collectives.torch_backend.nccl_options import let_options_of_nccl_be_found
    from collectives.torch_backend.script import Module, Script
    from testbed.scripts.loopback import listen_on_loopback

    _, algorithm, *arguments = sys.argv
    listen_on_loopback(for_good=True)
    register_backend()
    options = TestbedOptions(parse_algorithm(algorithm))
    for owner, name, value in every_group_ours(BACKEND, options=options):
        setattr(owner, name, value)
    let_options_of_nccl_be_found()

    leave_current_folder()
    if arguments[0] == "-m":
        script = Script(Module(arguments[1]), arguments[2:])
    else:
        script = Script(Path(arguments[0]), arguments[1:])
    with script.as_main() as main:
        try:
            script.run(main)
        except (AttributeError, ImportError) as error:
            _explain(error, script)
            raise


def _explain(error: AttributeError | ImportError, script: Script) -> None:
    """Say with *error* which module of the script's own has the name of a package of ours, if that is it."""
    what = error.name if isinstance(error, ImportError) else getattr(error.obj, "__name__", None)
    top = str(what).partition(".")[0]
    spec = PathFinder.find_spec(top, [str(script.folder)]) if top in PACKAGES else None
    if spec is not None:
        where = spec.origin or next(iter(spec.submodule_search_locations or ()))
        error.add_note(
            f"{where} has the name of a package of the testbed, which ranks that are processes have loaded: "
            "rename it, or leave out --processes"
        )


if __name__ == "__main__":
    _become_script()
