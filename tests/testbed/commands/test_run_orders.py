"""``testbed run --orders all``: a script that depends on the order of events is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from testbed.cli import app

RACE = """
import torch, torch.distributed as dist
dist.init_process_group()
if dist.get_rank():
    dist.send(torch.ones(1), 0)
else:
    print([dist.recv(torch.ones(1)) for _ in range(2)])
"""


@pytest.fixture
def race(tmp_path: Path) -> Path:
    path = tmp_path / "first_come.py"
    path.write_text(RACE)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", "--ranks", "3", "--orders", "all", *map(str, arguments)])


@pytest.mark.costly
def test_a_script_that_depends_on_the_order_fails_with_two_orders_and_a_test_that_fails_too(
    race: Path,
) -> None:
    result = run(race)

    assert result.exit_code == 1
    head, *lines = result.stderr.splitlines()
    assert head.endswith("the order of events matters: what rank 0 prints depends on it")
    assert "  rank 0 at first_come.py:7 takes the message of rank 1" in lines
    assert "  rank 0 at first_come.py:7 takes the message of rank 2" in lines
    namespace: dict[str, object] = {}
    exec("\n".join(line.removeprefix("    ") for line in lines[lines.index("As a test:") + 1 :]), namespace)
    from testbed.testing import DependsOnOrderError, VirtualCluster

    test = namespace["test_first_come_does_not_depend_on_the_order_of_events"]
    with pytest.raises(DependsOnOrderError):
        test(VirtualCluster)  # type: ignore[operator]


@pytest.mark.costly
def test_a_script_without_a_choice_has_one_order(tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(
        "import torch, torch.distributed as dist\ndist.init_process_group()\ndist.all_reduce(torch.ones(1))\n"
    )

    assert "every order of events: there is only one" in run(script).stdout


@pytest.mark.costly
def test_more_orders_than_may_be_tried_are_a_failure(race: Path) -> None:
    result = run("--max-orders", "1", race)

    assert result.exit_code == 1
    assert "more than 1 orders" in " ".join(result.stderr.split())
