"""`examples/demo.py`: what it promises to check, it checks; the training is tested with its own example."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

DEMO = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "demo.py"))


def trained(weight: float, accuracy: float = 0.97) -> dict[str, Any]:
    return {"parameters": {"weight": torch.tensor([weight, 1.0], dtype=torch.float64)}, "accuracy": accuracy}


@pytest.mark.parametrize(
    ("virtual", "single", "accuracy", "held"),
    [
        (1.0, 1.0 + 1e-12, 0.97, [True, True, True]), (1.0 + 2**-52, 1.0, 0.97, [False, True, True]),
        (1.0, 1.0 + 1e-9, 0.97, [True, False, True]), (1.0, 1.0, 0.95, [True, True, False]),
    ],
)  # fmt: skip
def test_results_that_do_not_agree_are_told(virtual, single, accuracy, held):
    checks = DEMO["agreements"](trained(1.0, accuracy), trained(virtual), trained(single))

    assert [holds for *_, holds in checks] == held


def test_a_sign_of_zero_is_a_difference_in_bits():
    identical, close, accurate = DEMO["agreements"](trained(0.0), trained(-0.0), trained(0.0))

    assert [identical[2], close[2], accurate[2]] == [False, True, True]
