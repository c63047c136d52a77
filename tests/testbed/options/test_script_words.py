"""All that follows a script is the script's; options of the command come before it."""

import pytest
import typer

from testbed.cli import app, imported


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
