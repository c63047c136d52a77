"""Options: how values are spelled on the command line, and options in groups."""

from dataclasses import dataclass
from typing import Annotated

import typer

from collectives.virtual.faults import DeadRank, MessageDelay
from testbed.options.arguments import parse_sizes
from testbed.options.conditions import FaultOptions
from testbed.options.groups import grouped
from tests.commands import called


def test_a_range_of_sizes_grows_by_the_factor_up_to_its_end():
    assert parse_sizes("4K-64K", 4) == [4096, 16384, 65536]
    assert parse_sizes("1M,4K") == [2**20, 4096]
    assert parse_sizes("4K-9K") == [4096, 8192]


def test_faults_are_read_as_they_are_written():
    faults = list(FaultOptions(["3@iteration=5", "1 @ 10ms"], "50us").parse(seed=7))

    assert faults == [DeadRank(3, iteration=5), DeadRank(1, at="10ms"), MessageDelay("50us", seed=7)]
    assert list(FaultOptions().parse(seed=7)) == []


@dataclass(frozen=True)
class Size:
    """A group of two options."""

    width: Annotated[int, typer.Option(metavar="W", help="How wide.")]
    height: Annotated[int, typer.Option(min=1, help="How high.")] = 2


@grouped
def draw(name: Annotated[str, typer.Argument()], *, size: Size, bold: bool = False):
    """Draw."""
    print(name, size, bold)


app = typer.Typer(add_completion=False)
app.command()(draw)


def test_a_group_is_made_of_the_options_of_its_fields():
    assert called("box --width 3 --bold", program=app).stdout == f"box {Size(3, 2)} True\n"


def test_options_of_a_group_are_checked_and_told_like_any_other():
    missing, wrong = (called(f"box {words}", code=2, program=app) for words in ("", "--width 3 --height 0"))

    assert "--width" in missing.stderr
    assert "--height" in wrong.stderr
    assert "How wide." in called("--help", program=app).stdout
