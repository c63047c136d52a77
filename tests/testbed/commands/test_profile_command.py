"""`testbed profile`: an ordinary script is recorded unmodified, and its failures are its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from typer.testing import CliRunner

from ddp import Profile
from testbed.cli import app
from testbed.scripts.launch import launch

HEAD = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn

net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
def train(module, count):
    for number in range(count):
        module(torch.ones(3, 4)).sum().backward()
        print("step", number)
"""
PLAIN = "train(net, int(sys.argv[1]))\nprint('the end')"
STOCK_DDP = """
dist.init_process_group("gloo")
train(nn.parallel.DistributedDataParallel(net), 100)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "train.py"


def run(script: Path, body: str, *options: str, arguments: tuple[str, ...] = ("5",)) -> Any:
    script.write_text(HEAD + body)
    out = script.with_name("p.json")
    return CliRunner().invoke(app, ["profile", "--out", str(out), *options, str(script), *arguments])


def test_a_script_is_recorded_with_its_own_arguments_and_runs_to_its_end(script: Path) -> None:
    before = dict(os.environ), sys.argv, sys.path[:]

    result = run(script, PLAIN)

    assert result.exit_code == 0, result.output
    profile = Profile.load(script.with_name("p.json"))
    assert [g.name for g in profile.gradients] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert "median of 3 iterations" in profile.source
    assert "the end" in result.stdout
    assert "next: testbed tune --profile" in result.stdout
    assert (dict(os.environ), sys.argv, sys.path) == before


def test_a_script_ends_when_enough_was_recorded_whatever_it_catches(script: Path) -> None:
    body = """
try:
    train(net, 1000)
except Exception:
    print("swallowed")
finally:
    print("cleaned up")
print("the end")
"""
    result = run(script, body, "--iterations", "4", "--warmup", "1")

    assert result.exit_code == 0, result.output
    assert "median of 4 iterations" in Profile.load(script.with_name("p.json")).source
    assert "step 4" in result.stdout
    assert "step 5" not in result.stdout
    assert "cleaned up" in result.stdout
    assert "swallowed" not in result.stdout
    assert "the end" not in result.stdout


def test_a_torchrun_script_with_stock_ddp_is_recorded_as_one_rank(script: Path) -> None:
    result = run(script, STOCK_DDP, "--each-rank")

    assert result.exit_code == 0, result.output
    profile = Profile.load(script.with_name("p-rank0.json"))
    assert [g.name for g in profile.gradients] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert "rank 0 of 1" in profile.source
    assert not dist.is_initialized()


@pytest.mark.slow
@pytest.mark.distributed
def test_under_several_ranks_each_writes_its_own_where_asked(script: Path) -> None:
    script.write_text(HEAD + STOCK_DDP)
    out = script.with_name("p.json")
    options = ["--each-rank", "--iterations", "3", "--out", str(out), str(script)]

    launch([sys.executable, "-m", "testbed", "profile", *options], 2, timeout=60, on_line=lambda _: None)

    for rank in range(2):
        assert f"rank {rank} of 2" in Profile.load(out.with_name(f"p-rank{rank}.json")).source


def test_the_json_document_holds_the_profile_and_nothing_of_the_script(script: Path) -> None:
    result = run(script, PLAIN, "--json")

    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["method"] == "measured"
    assert Profile.model_validate(document["profile"]) == Profile.load(script.with_name("p.json"))
    assert "step 4" in result.stderr


def test_a_script_that_raises_shows_its_traceback_and_keeps_what_was_recorded(script: Path) -> None:
    result = run(script, "train(net, 4)\nraise KeyError('lost')")

    assert result.exit_code == 1
    assert "raise KeyError('lost')" in result.stderr
    assert "runpy" not in result.stderr
    assert "testbed: error:" in result.stderr
    assert "train.py failed: KeyError: 'lost'" in result.stderr
    assert script.with_name("p.json").exists()


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [("sys.exit(3)", 3, "ended with exit code 3"), ("sys.exit('no data')", 1, "no data")],
)
def test_a_script_that_exits_with_a_code_ends_with_that_code(
    script: Path, end: str, code: int, message: str
) -> None:
    result = run(script, end)

    assert result.exit_code == code
    assert message in result.stderr
    assert not script.with_name("p.json").exists()


def test_a_script_that_is_interrupted_leaves_what_was_recorded(script: Path) -> None:
    result = run(script, "train(net, 4)\nraise KeyboardInterrupt")

    assert result.exit_code == 130
    assert "interrupted; what was recorded is kept" in result.stderr
    assert "median of 2 iterations" in Profile.load(script.with_name("p.json")).source


@pytest.mark.parametrize(
    ("body", "options", "message"),
    [
        ("net(torch.ones(3, 4))", [], "trained no module"),
        (
            "train(net, 3); train(nn.Linear(4, 1), 3)",
            [],
            "Sequential (3 passes), Linear (3 passes); say which",
        ),
        ("train(net, 3)", ["--module", "Net"], "the module Net was not trained; trained were: Sequential"),
    ],
)
def test_a_script_that_leaves_no_one_module_to_record_is_refused_by_name(
    script: Path, body: str, options: list[str], message: str
) -> None:
    result = run(script, body, *options)

    assert result.exit_code == 2
    assert message in result.stderr


def test_one_of_several_modules_can_be_named(script: Path) -> None:
    result = run(script, "train(net, 3); train(nn.Linear(4, 1), 3)", "--module", "Linear")

    assert result.exit_code == 0, result.output
    assert len(Profile.load(script.with_name("p.json")).gradients) == 2
