"""Promises of an installed copy before anything runs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import testbed


@pytest.mark.parametrize("module", ["collectives", "sim", "ddp", "testbed"])
def test_importing_a_package_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)

    assert finished.returncode == 0, finished.stderr.decode()


def test_the_version_is_the_distributions() -> None:
    try:
        installed = importlib.metadata.version("collective-testbed")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("run from a checkout that is not installed")

    assert testbed.__version__ == installed


def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    code = "import sys, testbed.cli; print({'matplotlib', 'numpy', 'simpy', 'torch'} & {*sys.modules})"

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)

    assert finished.stdout.decode().strip() == "set()", finished.stderr.decode()
