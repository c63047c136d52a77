"""All that follows a script is the script's; options of the command come before it."""

from __future__ import annotations

import pytest
import typer

from testbed.cli import app, imported


def parsed(line: str) -> dict[str, object]:
    name, *words = line.split()
    group = typer.main.get_command(app)
    context = group.make_context("testbed", [name, *words])
    return imported(name).make_context(name, words, parent=context).params


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("same --ranks 1,2 train.py --steps 3", {"ranks": "1,2", "steps": 10, "arguments": ["--steps", "3"]}),
        ("same --ranks 1,2 train.py --lr 1 -- x", {"ranks": "1,2", "arguments": ["--lr", "1", "--", "x"]}),
        (
            "same train.py --lr 0.1 --ranks 4",
            {"ranks": "1,2,4", "arguments": ["--lr", "0.1", "--ranks", "4"]},
        ),
        ("same train.py --ranks 1,2", {"ranks": "1,2", "arguments": None}),
        ("same train.py --ranks=1,2 --lr 1", {"ranks": "1,2", "arguments": ["--lr", "1"]}),
        (
            "same train.py --ranks 1,2 -- --steps 3",
            {"ranks": "1,2", "steps": 10, "arguments": ["--steps", "3"]},
        ),
        (
            "same --ranks 1,2 train.py -- --steps 3",
            {"ranks": "1,2", "steps": 10, "arguments": ["--steps", "3"]},
        ),
        ("same --ranks 1,2 train.py --steps 3 -- x", {"ranks": "1,2", "steps": 3, "arguments": ["x"]}),
        ("same -m train --epochs 1", {"module": True, "script": "train", "arguments": ["--epochs", "1"]}),
        ("same --json train.py --ranks 1,2 --lr 1", {"ranks": "1,2", "arguments": ["--lr", "1"]}),
        ("fuzz --seeds 2 train.py --seeds 9", {"seeds": 2, "arguments": ["--seeds", "9"]}),
        ("fuzz train.py --seeds 2", {"seeds": 2, "arguments": None}),
        ("fuzz --workers 1 ring --seeds 2", {"workers": 1, "seeds": 2, "what": "ring", "arguments": None}),
        ("fuzz --workers 1 own.py:ring --seeds 2", {"workers": 1, "seeds": 2, "arguments": None}),
        ("fuzz -m train --faults none", {"module": True, "faults": None, "arguments": ["--faults", "none"]}),
    ],
)
def test_words_after_a_script_are_its_own(line: str, expected: dict[str, object]) -> None:
    found = parsed(line)

    assert {
        name: found[name] or None if name == "arguments" else found[name] for name in expected
    } == expected
