"""`examples/demo.py`: what it promises to check, it checks; the training is tested with its own example."""

import runpy
from pathlib import Path

import pytest
import torch

DEMO = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "demo.py"))


def trained(weight, accuracy=0.97):
    return {"parameters": {"weight": torch.tensor([weight, 1.0], dtype=torch.float64)}, "accuracy": accuracy}


@pytest.mark.parametrize(
    ("real", "virtual", "single", "accuracy", "held"),
    [
        (1.0, 1.0, 1.0 + 1e-12, 0.97, [True, True, True]),
        (1.0, 1.0 + 2**-52, 1.0, 0.97, [False, True, True]),
        (1.0, 1.0, 1.0 + 1e-9, 0.97, [True, False, True]),
        (1.0, 1.0, 1.0, 0.95, [True, True, False]),
        (0.0, -0.0, 0.0, 0.97, [False, True, True]),
    ],
)
def test_results_that_do_not_agree_be_it_in_the_sign_of_zero_are_told(real, virtual, single, accuracy, held):
    checks = DEMO["agreements"](trained(real, accuracy), trained(virtual), trained(single))

    assert [holds for *_, holds in checks] == held
