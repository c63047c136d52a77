"""`testbed verify`: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectives.algorithms import ALGORITHMS
from testbed.cli import app
from testbed.studies import proofs

EXCHANGE = """
from collectives import NotSupportedError, Recv, RecvReduce, Send

def exchange(rank, world_size):
    peer = 1 - rank
    yield Send(peer, chunk=rank), RecvReduce(peer, chunk=peer)
    yield Send(peer, chunk=peer), Recv(peer, chunk=rank)

def deaf(rank, world_size):
    yield RecvReduce(1 - rank, chunk=0)

def picky(rank, world_size):
    if world_size != 2:
        raise NotSupportedError(f"needs 2 ranks, got {world_size}; use ring")
    yield from exchange(rank, world_size)
"""


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(EXCHANGE, encoding="utf-8")
    return path


@pytest.fixture
def without_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prove one world size after another only: all of them at once, the page of algorithms has."""
    monkeypatch.setattr(proofs, "solver_is_there", lambda: False)


@pytest.mark.usefixtures("without_solver")
def test_shipped_algorithms_are_proved_for_every_world_size_of_the_range() -> None:
    result = CliRunner().invoke(app, ["verify", "--ranks", "2-9", "--json"])

    rows = json.loads(result.stdout)["rows"]
    assert result.exit_code == 0
    assert {row["algorithm"] for row in rows} >= {"naive", "ring", "tree"}
    ring = [row for row in rows if (row["algorithm"], row["collective"]) == ("ring", "all_reduce")]
    assert [row["world_size"] for row in ring] == list(range(2, 10))
    assert all(row["proved"] for row in rows)
    assert {row["collective"] for row in rows} == {shipped.collective for shipped in ALGORITHMS}


def test_a_name_is_proved_for_every_collective_that_it_is_shipped_for() -> None:
    result = CliRunner().invoke(app, ["verify", "ring", "--ranks", "2,3", "--json"])

    rows = json.loads(result.stdout)["rows"]
    shipped = [own.collective for own in ALGORITHMS if own.name == "ring"]
    assert [(row["collective"], row["world_size"]) for row in rows] == [
        (collective, world_size) for collective in shipped for world_size in (2, 3)
    ]


def test_a_root_that_is_bound_is_the_one_proved() -> None:
    result = CliRunner().invoke(
        app, ["verify", "tree:root=2", "--collective", "broadcast", "--ranks", "3,4", "--json"]
    )

    assert [row["algorithm"] for row in json.loads(result.stdout)["rows"]] == ["tree:root=2"] * 2


def test_what_the_budget_leaves_out_is_said() -> None:
    arguments = [
        "verify",
        "ring",
        "tree",
        "--collective",
        "all_reduce",
        "--ranks",
        "2-4,64",
        "--budget",
        "5000",
    ]

    table = CliRunner().invoke(app, arguments)
    document = CliRunner().invoke(app, [*arguments, "--json"])

    assert table.exit_code == document.exit_code == 0
    assert "3 of 4, 1 left out" in table.stdout
    assert "more than about 5000 operations:\n  64 ranks: ring (all_reduce)\n" in table.stdout
    body = json.loads(document.stdout)
    assert body["left_out"] == [{"algorithm": "ring", "collective": "all_reduce", "world_sizes": [64]}]
    assert [row["world_size"] for row in body["rows"]] == [2, 3, 4, 2, 3, 4, 64]


@pytest.mark.usefixtures("without_solver")
@pytest.mark.parametrize("names", [[], ["ring"]])
def test_a_collective_that_is_named_is_the_only_one_proved(names: list[str]) -> None:
    arguments = ["verify", *names, "--collective", "all_gather", "--ranks", "2", "--json"]

    result = CliRunner().invoke(app, arguments)

    assert {row["collective"] for row in json.loads(result.stdout)["rows"]} == {"all_gather"}


def test_the_table_names_the_collective_unless_all_is_all_reduce() -> None:
    one = CliRunner().invoke(app, ["verify", "ring", "--collective", "all_reduce", "--ranks", "2-9"])
    several = CliRunner().invoke(app, ["verify", "ring", "--ranks", "2-9"])

    assert one.stdout.split("\n")[0].split()[:3] == ["algorithm", "proved", "for"]
    assert "reduce_scatter" not in one.stdout
    assert several.stdout.split("\n")[0].split()[:2] == ["collective", "algorithm"]
    assert "reduce_scatter  ring" in several.stdout


def test_a_world_size_that_is_refused_is_no_failure_and_its_reason_is_told_once(own_file: Path) -> None:
    arguments = ["verify", f"{own_file}:picky", "--ranks", "2-5"]

    shown = CliRunner().invoke(app, arguments)
    result = CliRunner().invoke(app, [*arguments, "--json"])

    assert shown.exit_code == result.exit_code == 0
    assert "1 of 4, 3 refused" in shown.stdout
    assert shown.stdout.count("refused for 3 world sizes: needs 2 ranks, got 3; use ring") == 1
    found = json.loads(result.stdout)
    assert [row["world_size"] for row in found["rows"]] == [2]
    assert found["refused"] == [
        {
            "algorithm": "picky",
            "collective": "all_reduce",
            "world_sizes": [3, 4, 5],
            "reason": "needs 2 ranks, got 3; use ring",
        }
    ]


def test_a_function_of_ones_own_file_is_proved(own_file: Path) -> None:
    result = CliRunner().invoke(app, ["verify", f"{own_file}:exchange", "--ranks", "2", "--json"])

    (row,) = json.loads(result.stdout)["rows"]
    assert result.exit_code == 0
    assert (row["num_steps"], row["max_bytes_sent_fraction"], row["num_chunks"]) == (2, 1.0, 2)


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_wrong_program_ends_with_1_and_the_evidence(own_file: Path, extra: list[str]) -> None:
    result = CliRunner().invoke(app, ["verify", f"{own_file}:deaf", "--ranks", "2", *extra])

    assert result.exit_code == 1
    assert "deadlock" in result.stdout
    assert "step 0  [" in result.stdout


def test_verify_imports_no_torch() -> None:
    code = (
        "import sys; from testbed.cli import app; "
        "app(['verify', 'ring', '--ranks', '2'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)

    assert finished.returncode == 0, finished.stderr.decode()
