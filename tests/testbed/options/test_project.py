"""Defaults of a project hold where the command line and a test say nothing, and wrong ones are named."""

from pathlib import Path

import pytest

import _collective_testbed_entry
from testbed.errors import UsageError
from testbed.options.project import Project
from testbed.testing import on_ranks
from tests.commands import reported

SCRIPT = "import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n"


def project(folder, table):
    (folder / "pyproject.toml").write_text(f"[tool.testbed]\n{table}\n")
    (folder / "below").mkdir()
    return folder / "below"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("rank = 4", "tool.testbed.rank: there is no such key; expected ranks, network, compute, seeds"),
        ("ranks = '4'", "tool.testbed.ranks: expected a number from 1 to 131072, got '4'"),
        ("seeds = true", "tool.testbed.seeds: expected a number from 1 to 1000000000, got True"),
        ("network = 'dgx-h10'", "tool.testbed.network: unknown network 'dgx-h10' (did you mean 'dgx-h100'?)"),
        ("compute = 5", "tool.testbed.compute: expected a name or the path of a file, got 5"),
        ("compute = 'profile'", "tool.testbed.compute: [Errno 2]"),
        (f"network = '{'x' * 300}'", "tool.testbed.network: [Errno 36] File name too long"),
        ("ranks = ", "Invalid value"),
    ],
)
def test_what_a_project_cannot_say_is_refused_by_file_and_key(tmp_path, table, said):
    with pytest.raises(UsageError) as refused:
        Project.at(project(tmp_path, table))

    assert str(refused.value).startswith(f"{tmp_path / 'pyproject.toml'}: {said}")


@pytest.mark.parametrize(
    ("command", "given", "taken"),
    [
        ("run", (), {"ranks": 4, "network": "dgx-h100", "compute": "h100"}),
        ("run", ("processes",), {}),
        ("run", ("orders",), {"ranks": 4, "network": "dgx-h100"}),
        ("same", (), {"ranks": "1,4", "network": "dgx-h100"}),
        ("fuzz", ("seed",), {"ranks": "2-4", "network": ["dgx-h100"], "compute": ["h100"]}),
        ("plan", (), {}),
    ],
)
def test_each_command_takes_what_it_has_options_for(command, given, taken):
    said = {"ranks": 4, "network": "dgx-h100", "compute": "h100", "seeds": 7}

    assert Project(Path(), said).of_command(command, given) == taken


def test_tools_that_are_no_table_are_refused(tmp_path):
    (tmp_path / "pyproject.toml").write_text("tool = 5")

    with pytest.raises(UsageError, match="tool: expected a table, got 5"):
        Project.at(tmp_path)


def test_a_run_takes_what_its_line_leaves_out_and_says_so(tmp_path, monkeypatch):
    folder = project(tmp_path, "ranks = 3\nnetwork = 'ethernet-10g'")
    (folder / "script.py").write_text(SCRIPT)

    monkeypatch.chdir(folder)

    document = reported("run --ranks 2 script.py")

    assert document["num_ranks"] == 2
    assert document["project"] == {"file": str(tmp_path / "pyproject.toml"), "network": "ethernet-10g"}


def test_a_test_takes_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setattr(
        _collective_testbed_entry, "project_folder", project(tmp_path, "ranks = 3\nseeds = 2")
    )
    ran = []

    on_ranks()(lambda rank: ran.append(rank))()
    on_ranks(2, seeds=0)(lambda rank: ran.append(rank))()

    assert sorted(ran) == sorted([0, 1, 2] * 3 + [0, 1])
