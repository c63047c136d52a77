"""Checks of a script: `testbed same`, `testbed run --check replicas` and `testbed run --orders all`."""

from pathlib import Path

import pytest

from testbed.testing import DependsOnOrderError, VirtualCluster
from tests.commands import called, in_one_line, reported

TRAIN = """
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
RACE = """
import torch, torch.distributed as dist
dist.init_process_group()
if dist.get_rank():
    dist.send(torch.ones(1), 0)
else:
    print([dist.recv(torch.ones(1)) for _ in range(2)])
"""
SUM = "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(1))\n"
ALL_ORDERS = "run --ranks 3 --orders all"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a script of each kind."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("train", TRAIN), ("first_come", RACE), ("sum", SUM)):
        Path(f"{name}.py").write_text(text)


pytestmark = pytest.mark.usefixtures("folder")


@pytest.mark.costly
def test_one_training_on_one_and_on_several_ranks_is_the_same():
    document = reported("same train.py --ranks 1,2,4")

    assert document["same"]
    compared = [(row["ranks"], row["same"], row["parameters_compared"]) for row in document["rows"]]
    assert compared == [(2, True, 2), (4, True, 2)]


def test_where_it_parts_step_parameter_and_line_are_named():
    said = called("same train.py --ranks 1,2 -- sums", code=1).stderr

    assert "1 and 2 ranks part in step 1 (train.py:19): Linear, gradient of" in said
    assert "its gradient there is 2 times the first run's" in said


def test_two_lots_of_words_are_compared_on_one_number_of_ranks():
    said = called('same --ranks 2 --vary "--lr 1" "--lr 1 sums" train.py', code=1).stderr
    refused = called("same --vary means sums train.py", code=2).stderr

    assert "--lr 1 and --lr 1 sums part in step 1 (train.py:19): Linear, gradient of" in said
    assert refused == "testbed: error: --vary: expected one number of ranks beside it, got --ranks 1,2,4\n"


@pytest.mark.costly
def test_replicas_that_part_end_a_run_with_exit_code_1():
    check = "run --ranks 2 --check replicas"

    alike, apart = called(f"{check} train.py"), called(f"{check} train.py forgets", code=1)

    assert "Replicas stayed alike" in alike.stderr
    assert "Linear: replicas part in step 2 (train.py:19)" in apart.stderr
    assert not reported(f"{check} train.py forgets", code=1)["replicas"]["holds"]


@pytest.mark.costly
def test_a_script_that_depends_on_the_order_fails_with_two_orders_and_a_test_that_fails_too():
    head, *lines = called(f"{ALL_ORDERS} first_come.py", code=1).stderr.splitlines()

    assert head.endswith("the order of events matters: what rank 0 prints depends on it")
    assert "  rank 0 at first_come.py:7 takes the message of rank 1" in lines
    assert "  rank 0 at first_come.py:7 takes the message of rank 2" in lines
    namespace = {}
    exec("\n".join(line.removeprefix("    ") for line in lines[lines.index("As a test:") + 1 :]), namespace)
    test = namespace["test_first_come_does_not_depend_on_the_order_of_events"]
    with pytest.raises(DependsOnOrderError):
        test(VirtualCluster)


@pytest.mark.costly
def test_orders_are_counted_and_more_than_may_be_tried_are_a_failure():
    only, more = called(f"{ALL_ORDERS} sum.py"), called(f"{ALL_ORDERS} --max-orders 1 first_come.py", code=1)

    assert "every order of events: there is only one" in only.stderr
    assert "more than 1 orders" in in_one_line(more.stderr)
