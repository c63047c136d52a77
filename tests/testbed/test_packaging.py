"""Promises of an installed copy before anything runs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import testbed

PROVED = "from testbed.cli import app; app(['verify', 'ring', '--ranks', '2'], standalone_mode=False)"


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        *((f"import {name}", {"torch"}) for name in ("collectives", "sim", "ddp", "testbed")),
        ("import testbed.cli", {"matplotlib", "numpy", "simpy", "torch"}),
        (PROVED, {"torch"}),
    ],
)
def test_only_what_needs_them_imports_large_packages(code: str, heavy: set[str]) -> None:
    imported = f"import sys; print({heavy!r} & {{*sys.modules}})"

    finished = subprocess.run(
        [sys.executable, "-c", f"{code}; {imported}"], capture_output=True, text=True, timeout=60, check=False
    )

    assert finished.stdout.endswith("set()\n"), finished.stdout + finished.stderr


def test_the_version_is_the_distributions() -> None:
    try:
        installed = importlib.metadata.version("collective-testbed")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("run from a checkout that is not installed")

    assert testbed.__version__ == installed
