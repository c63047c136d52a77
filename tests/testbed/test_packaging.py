"""Promises of an installed copy before anything runs."""

import importlib.metadata
import subprocess
import sys

import pytest

import testbed
from collectives.docstrings import docstring_of
from testbed.cli import COMMANDS

RUN = "from testbed.cli import app; app({}, standalone_mode=False)"
HELP = RUN.format(["--help"])
NETWORK = RUN.format(["network", "dgx-h100"])
PROVED = RUN.format(["verify", "direct", "--collective", "gather", "--ranks", "2"])
SPREAD = "from testbed.tasks.spread import results; list(results(abs, [1, 2], workers=2))"
HEAVY = {"distributed", "matplotlib", "networkx", "numpy", "pydantic", "rich", "simpy", "torch"}


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import collectives, sim, ddp, testbed", {"torch"}),
        ("import sim", {"numpy", "pydantic", "simpy"}),
        ("from sim import Topology", {"pydantic", "simpy"}),
        (HELP, HEAVY | {f"testbed.commands.{name}" for name in COMMANDS}),
        (NETWORK, {"networkx", "simpy", "torch"}),
        (PROVED, {"torch"}),
        (SPREAD, {"dask", "distributed", "torch"}),
    ],
)
def test_only_what_needs_them_imports_large_packages(code, heavy):
    imported = f"import sys; print({heavy!r} & {{*sys.modules}})"

    finished = subprocess.run(
        [sys.executable, "-c", f"{code}; {imported}"], capture_output=True, text=True, timeout=60, check=False
    )

    assert finished.stdout.endswith("set()\n"), finished.stdout + finished.stderr


def test_help_says_what_commands_say_of_themselves_and_python_has_them_all():
    said = {name: str(docstring_of(getattr(testbed, name))).partition("\n\n")[0] for name in COMMANDS}

    assert {name: " ".join(text.split()) for name, text in said.items()} == COMMANDS
    assert sorted([*COMMANDS, "cost", "fused"]) == testbed.__all__


def test_the_version_is_the_distributions():
    try:
        installed = importlib.metadata.version("collective-testbed")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("run from a checkout that is not installed")

    assert testbed.__version__ == installed
