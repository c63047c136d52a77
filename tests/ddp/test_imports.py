"""What decides must not depend on what carries out."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "ddp",
        "ddp.reduction.reducer",
        "ddp.reduction.overlap",
        "ddp.reduction.bucketing",
        "ddp.profiles.profile",
        "ddp.errors",
    ],
)
def test_the_core_imports_neither_torch_nor_the_simulator(module: str) -> None:
    program = (
        f"import sys, {module}\n"
        "print([name for name in ('torch', 'numpy', 'simpy', 'sim', 'collectives') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def test_the_simulated_driver_imports_no_torch() -> None:
    program = "import sys, ddp; ddp.simulate_step; print('torch' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "False"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import ddp

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ddp.Nothing  # noqa: B018
