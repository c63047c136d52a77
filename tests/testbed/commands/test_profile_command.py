"""`testbed profile`: an ordinary script is recorded unmodified, and its failures are its own."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch.distributed as dist

from ddp import Profile
from testbed.scripts.launch import launch
from tests.commands import called

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
CATCHES = """
try:
    train(net, 1000)
except Exception:
    print("swallowed")
finally:
    print("cleaned up")
print("the end")
"""
TWO = "train(net, 3); train(nn.Linear(4, 1), 3)"
PARAMETERS = ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(body, options="", code=0):
    Path("train.py").write_text(HEAD + body)
    return called(f"profile --output p.json {options} train.py 5", code=code)


def recorded(name="p.json"):
    """Return the names of the parameters of a profile that was written, and where it is from."""
    profile = Profile.load(Path(name))
    return [own.name for own in profile.gradients], profile.source


def test_a_script_is_recorded_with_its_own_arguments_and_runs_to_its_end():
    before = dict(os.environ), sys.argv, sys.path[:]

    result = run(PLAIN)

    names, source = recorded()
    assert names == PARAMETERS
    assert "median of 3 iterations" in source
    assert "the end" in result.stdout
    assert "next: testbed tune --profile" in result.stdout
    assert (dict(os.environ), sys.argv, sys.path) == before


def test_a_script_ends_when_enough_was_recorded_whatever_it_catches():
    printed = run(CATCHES, "--iterations 4 --warmup 1").stdout

    assert "median of 4 iterations" in recorded()[1]
    assert all(text in printed for text in ("step 4", "cleaned up"))
    assert not any(text in printed for text in ("step 5", "swallowed", "the end"))


def test_a_torchrun_script_with_stock_ddp_is_recorded_as_one_rank():
    run(STOCK_DDP, "--each-rank")

    names, source = recorded("p-rank0.json")
    assert names == PARAMETERS
    assert "rank 0 of 1" in source
    assert not dist.is_initialized()


@pytest.mark.slow
@pytest.mark.distributed
def test_under_several_ranks_each_writes_its_own_where_asked(tmp_path):
    script, out = tmp_path / "train.py", tmp_path / "p.json"
    script.write_text(HEAD + STOCK_DDP)
    options = ["--each-rank", "--iterations", "3", "--out", str(out), str(script)]

    launch([sys.executable, "-m", "testbed", "profile", *options], 2, timeout=60, quiet=True)

    for rank in range(2):
        assert f"rank {rank} of 2" in recorded(f"p-rank{rank}.json")[1]


def test_the_json_document_holds_the_profile_and_nothing_of_the_script():
    result = run(PLAIN, "--json")

    document = json.loads(result.stdout)
    assert document["method"] == "measured"
    assert Profile.model_validate(document["profile"]) == Profile.load(Path("p.json"))
    assert "step 4" in result.stderr


@pytest.mark.parametrize(
    ("body", "options", "code", "said"),
    [
        ("train(net, 4)\nraise KeyError('lost')", "", 1, "train.py failed: KeyError: 'lost'"),
        ("train(net, 4)\nsys.exit(3)", "", 3, "ended with exit code 3"),
        ("train(net, 4)\nraise KeyboardInterrupt", "", 130, "interrupted; what was recorded is kept"),
        ("sys.exit(3)", "", 3, "ended with exit code 3"),
        ("sys.exit('no data')", "", 1, "no data"),
        ("net(torch.ones(3, 4))", "", 2, "trained no module"),
        (TWO, "", 2, "Sequential (3 passes), Linear (3 passes); say which"),
        ("train(net, 3)", "--module Net", 2, "the module Net was not trained; trained were: Sequential"),
    ],
)
def test_however_a_script_ends_what_was_recorded_is_kept_and_without_one_module_nothing(
    body, options, code, said
):
    stderr = run(body, options, code=code).stderr

    assert said in stderr
    assert "runpy" not in stderr
    assert ("Traceback" in stderr) == ("KeyError" in body)  # of the script's own error, and of nothing else
    assert Path("p.json").exists() == ("train(net, 4)" in body)
    assert not Path("p.json").exists() or "median of 2 iterations" in recorded()[1]
