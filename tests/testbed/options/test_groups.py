"""Options in groups: a command takes dataclasses, and the command line has an option for each field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from testbed.options.groups import grouped


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
