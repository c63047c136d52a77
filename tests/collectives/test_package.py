import inspect
import pkgutil
import subprocess
import sys

import pytest

import collectives
import sim
import testbed


def test_names_are_listed_and_imported_by_a_star():
    names = {}

    exec("from collectives import *", names)

    assert {*collectives.__all__} <= names.keys()
    assert dir(collectives) == collectives.__all__
    assert not any(inspect.ismodule(names[name]) for name in collectives.__all__)
    assert "Send" in collectives.__all__


@pytest.mark.parametrize("package", [collectives, sim, testbed])
def test_an_unknown_name_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=rf"module '{package.__name__}' has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


def test_no_module_has_the_name_of_something_public():
    modules = {module.name for module in pkgutil.iter_modules(collectives.__path__)}

    assert modules.isdisjoint(collectives.__all__)


PROVES_AND_SIMULATES = """
import sys
from collectives import verify

verify("ring", 4)
print([name for name in ("torch", "simpy", "sim", "pydantic") if name in sys.modules])

from collectives import simulate

for options in ({"engine": "makespan"}, {"engine": "events"}, {"model": "nccl"}):
    simulate("ring", nbytes=64, network="dgx-h100", num_ranks=8, **options)
print([name for name in ("torch",) if name in sys.modules])
"""


def test_proving_imports_neither_torch_nor_the_simulator_and_simulating_no_torch():
    command = [sys.executable, "-c", PROVES_AND_SIMULATES]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split("\n") == ["[]", "[]", ""]
