"""Options: how values are spelled on the command line, and options in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from collectives.virtual.faults import DeadRank, MessageDelay
from testbed.options.arguments import parse_sizes
from testbed.options.conditions import FaultOptions
from testbed.options.groups import grouped


def test_a_range_of_sizes_grows_by_the_factor_up_to_its_end() -> None:
    assert parse_sizes("4K-64K", 4) == [4096, 16384, 65536]
    assert parse_sizes("1M,4K") == [2**20, 4096]
    assert parse_sizes("4K-9K") == [4096, 8192]


def test_faults_are_read_as_they_are_written() -> None:
    faults = list(FaultOptions(["3@iteration=5", "1 @ 10ms"], "50us").parse(seed=7))

    assert faults == [DeadRank(3, iteration=5), DeadRank(1, at="10ms"), MessageDelay("50us", seed=7)]
    assert list(FaultOptions().parse(seed=7)) == []


@dataclass(frozen=True)
class Size:
    """A group of two options."""

    width: Annotated[int, typer.Option(metavar="W", help="How wide.")]
    height: Annotated[int, typer.Option(min=1, help="How high.")] = 2


@grouped
def draw(name: Annotated[str, typer.Argument()], *, size: Size, bold: bool = False) -> None:
    """Draw."""
    print(name, size, bold)


app = typer.Typer(add_completion=False)
app.command()(draw)


def test_a_group_is_made_of_the_options_of_its_fields() -> None:
    result = CliRunner().invoke(app, ["box", "--width", "3", "--bold"])

    assert result.stdout == f"box {Size(3, 2)} True\n"


def test_options_of_a_group_are_checked_and_told_like_any_other() -> None:
    missing = CliRunner().invoke(app, ["box"])
    wrong = CliRunner().invoke(app, ["box", "--width", "3", "--height", "0"])
    told = CliRunner().invoke(app, ["--help"])

    assert (missing.exit_code, wrong.exit_code) == (2, 2)
    assert "--width" in missing.stderr
    assert "--height" in wrong.stderr
    assert "How wide." in told.stdout
