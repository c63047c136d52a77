"""Packages: names that are imported when they are used, and what else an import brings."""

import ast
import inspect
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import collectives.errors
import ddp.errors
import sim
import testbed


def test_names_are_listed_and_imported_by_a_star():
    names = {}

    exec("from collectives import *", names)

    assert {*collectives.__all__} <= names.keys()
    assert dir(collectives) == collectives.__all__
    assert not any(inspect.ismodule(names[name]) for name in collectives.__all__)
    assert "Send" in collectives.__all__


def test_every_name_that_type_checkers_know_of_sim_is_found_where_it_is_defined():
    blocks = [block for block in ast.parse(inspect.getsource(sim)).body if isinstance(block, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    known = {alias.name: line.module for line in imports for alias in line.names}

    assert known == sim._HOME_OF
    assert sorted(known) == sim.__all__ == dir(sim)
    assert all(getattr(sim, name) is getattr(import_module(module), name) for name, module in known.items())


@pytest.mark.parametrize("package", [collectives, ddp, sim, testbed])
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


def test_no_module_has_the_name_of_something_public():
    modules = {module.name for module in pkgutil.iter_modules(collectives.__path__)}

    assert modules.isdisjoint(collectives.__all__)


DECIDES = "import ddp.errors, ddp.reduction.reducer, ddp.reduction.overlap, ddp.reduction.bucketing"
SIMULATES = """
from collectives import simulate
for options in ({"engine": "makespan"}, {"engine": "events"}, {"model": "nccl"}):
    simulate("ring", nbytes=64, network="dgx-h100", num_ranks=8, **options)
"""


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import sim", {"torch", "pydantic"}),
        ("from collectives import verify; verify('ring', 4)", {"torch", "simpy", "sim", "pydantic"}),
        (SIMULATES, {"torch"}),
        (f"{DECIDES}, ddp.profiles.profile", {"torch", "numpy", "simpy", "sim", "collectives.program"}),
        ("import ddp; ddp.simulate_step", {"torch"}),
    ],
)
def test_what_a_program_does_not_use_is_not_imported(program, absent):
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert absent.isdisjoint(done.stdout.split())


def test_what_ddp_does_not_support_is_caught_as_an_error_of_either_package():
    refusal = ddp.errors.NotSupportedError("no such option")

    assert isinstance(refusal, ddp.errors.DDPError)
    assert isinstance(refusal, collectives.errors.NotSupportedError)
