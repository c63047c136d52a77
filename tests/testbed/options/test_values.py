"""Words of a command line: how values are spelled, options in groups, older words, and those of a script."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from collectives.virtual.faults import DeadRank, MessageDelay
from testbed.cli import app, imported
from testbed.options.arguments import parse_sizes
from testbed.options.conditions import FaultOptions
from testbed.options.groups import grouped
from tests.commands import called, reported, rows_of


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


drawing = typer.Typer(add_completion=False)
drawing.command()(draw)


def test_a_group_is_made_of_the_options_of_its_fields():
    assert called("box --width 3 --bold", program=drawing).stdout == f"box {Size(3, 2)} True\n"


def test_options_of_a_group_are_checked_and_told_like_any_other():
    missing, wrong = (
        called(f"box {words}", code=2, program=drawing) for words in ("", "--width 3 --height 0")
    )

    assert "--width" in missing.stderr
    assert "--height" in wrong.stderr
    assert "How wide." in called("--help", program=drawing).stdout


@pytest.mark.parametrize(
    ("older", "word"),
    [
        ("bench --ranks 4 --algorithm ring --sizes 1M", "bench --ranks 4 --algorithm ring --nbytes 1M"),
        ("simulate ring --ranks 4 --sizes 1M", "simulate ring --ranks 4 --nbytes 1M"),
    ],
)
def test_an_older_word_for_an_option_means_the_same(older, word):
    first, second = reported(older), reported(word)

    assert first["rows"] == second["rows"]
    assert first["assumptions"] == second["assumptions"]


def test_an_option_is_repeated_or_has_commas_or_both():
    step = "--ranks 2 --ideal --network ethernet-25g"

    pair = "after_backward,priority:credits=2"

    together = rows_of(f"scale {step},switch-100g --strategy wait_free,{pair}")

    assert together == rows_of(f"scale {step} --network switch-100g --strategy wait_free --strategy {pair}")
    assert len(together) == 6


def parsed(line):
    name, *words = line.split()
    group = typer.main.get_command(app)
    context = group.make_context("testbed", [name, *words])
    return imported(name).make_context(name, words, parent=context).params


@pytest.mark.parametrize(
    ("line", "ours", "arguments"),
    [
        ("same --ranks 1,2 train.py --steps 3", {"ranks": "1,2", "steps": 10}, "--steps 3"),
        ("same --ranks 1,2 train.py --lr 1 -- x", {"ranks": "1,2"}, "--lr 1 -- x"),
        ("same train.py --lr 0.1 --ranks 4", {"ranks": "1,2,4"}, "--lr 0.1 --ranks 4"),
        ("same train.py --ranks 1,2", {"ranks": "1,2"}, ""),
        ("same train.py --ranks=1,2 --lr 1", {"ranks": "1,2"}, "--lr 1"),
        ("same train.py --ranks 1,2 -- --steps 3", {"ranks": "1,2", "steps": 10}, "--steps 3"),
        ("same --ranks 1,2 train.py -- --steps 3", {"ranks": "1,2", "steps": 10}, "--steps 3"),
        ("same --ranks 1,2 train.py --steps 3 -- x", {"ranks": "1,2", "steps": 3}, "x"),
        ("same -m train --epochs 1", {"module": True, "script": "train"}, "--epochs 1"),
        ("same --json train.py --ranks 1,2 --lr 1", {"ranks": "1,2"}, "--lr 1"),
        ("fuzz --seeds 2 train.py --seeds 9", {"seeds": 2}, "--seeds 9"),
        ("fuzz train.py --seeds 2", {"seeds": 2}, ""),
        ("fuzz --workers 1 ring --seeds 2", {"workers": 1, "seeds": 2, "what": "ring"}, ""),
        ("fuzz --workers 1 own.py:ring --seeds 2", {"workers": 1, "seeds": 2}, ""),
        ("fuzz -m train --faults none", {"module": True, "faults": None}, "--faults none"),
    ],
)
def test_words_after_a_script_are_its_own(line, ours, arguments):
    found = parsed(line)

    assert {name: found[name] for name in ours} == ours
    assert " ".join(found["arguments"] or ()) == arguments
