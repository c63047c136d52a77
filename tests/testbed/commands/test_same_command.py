"""Tests of ``testbed same`` and of ``testbed run --check``, as users call them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from testbed.cli import app

SCRIPT = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group()
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    torch.manual_seed(step)
    model(torch.randn(8, 4).chunk(world)[rank]).square().mean().backward()
    for parameter in model.parameters():
        if step == 0 or "forgets" not in sys.argv:
            dist.all_reduce(parameter.grad)
            if "sums" not in sys.argv:
                parameter.grad /= world
    optimizer.step()
    optimizer.zero_grad()
print("done")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def _invoke(*arguments):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.costly
def test_one_training_on_one_and_on_several_ranks_is_the_same(script):
    result = _invoke("same", script, "--ranks", "1,2,4", "--json")

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["same"]
    assert [(row["ranks"], row["same"], row["parameters_compared"]) for row in document["rows"]] == [
        (2, True, 2),
        (4, True, 2),
    ]


def test_where_it_parts_step_parameter_and_line_are_named(script):
    result = _invoke("same", script, "--ranks", "1,2", "--", "sums")

    assert result.exit_code == 1
    assert "1 and 2 ranks part in step 1 (train.py:19): Linear, gradient of" in result.stderr
    assert "its gradient there is 2 times the first run's" in result.stderr


@pytest.mark.costly
def test_replicas_that_part_end_a_run_with_exit_code_1(script):
    assert "Replicas stayed alike" in _invoke("run", "--ranks", "2", "--check", "replicas", script).stderr

    result = _invoke("run", "--ranks", "2", "--check", "replicas", "--json", script, "forgets")

    assert result.exit_code == 1
    assert "Linear: replicas part in step 2 (train.py:19)" in result.stderr
    assert not json.loads(result.stdout)["replicas"]["holds"]
