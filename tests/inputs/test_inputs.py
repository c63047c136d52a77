"""Mutated inputs of every loader and parser are read rightly, or refused in the project's own words.

``make mutate`` draws as many as one likes, from the seed that one names. They come from generators of Python
and not of Hypothesis, which draws three times fewer in the same time, and more of them alike.
"""

import json
import os
from pathlib import Path

import pytest

from tests.inputs import files, target, words
from tests.inputs.target import OutOfTimeError, Target

TARGETS = {own.name: own for own in (*files.TARGETS, *words.TARGETS)}
INPUTS = int(os.environ.get("MUTATED_INPUTS", 25 * sum(own.weight for own in TARGETS.values())))
"""Of all targets together, each by its weight."""
SEED = int(os.environ.get("MUTATED_SEED", 0))
ONCE_FAILED = json.loads(Path(__file__).with_name("once_failed.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_mutated_is_read_rightly_or_refused(name):
    own = TARGETS[name]
    count = -(-INPUTS * own.weight // sum(other.weight for other in TARGETS.values()))

    outcomes = {own.outcome_of(own.drawn(SEED, number)) for number in range(count)}

    assert "refused" in outcomes


@pytest.mark.parametrize("name", ONCE_FAILED)
def test_what_once_failed_is_read_rightly_or_refused(name):
    for content in ONCE_FAILED[name]:
        assert TARGETS[name].outcome_of(content.encode("latin-1")) in {"read", "refused"}


def failing(content):
    if content == b"traceback":
        raise KeyError("deep inside")
    if content == b"hang":
        while True:
            pass
    if content == b"exit":
        raise SystemExit(0)
    if content == b"memory":
        bytes(2 * target.MEMORY)
    assert content != b"wrong answer"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("traceback", KeyError), ("hang", OutOfTimeError), ("exit", SystemExit), ("memory", MemoryError),
        ("wrong answer", AssertionError),
    ],
)  # fmt: skip
def test_a_failure_is_found_and_shown(kind, error, monkeypatch):
    monkeypatch.setattr(target, "SECONDS", 0.05)

    with pytest.raises(error) as caught:
        Target("failing", lambda random: b"", failing).outcome_of(kind.encode())

    assert f"failing was given {kind.encode()!r}" in caught.value.__notes__


def test_inputs_are_drawn_again_alike():
    own = TARGETS["profile"]

    assert own.drawn(3, 7) == own.drawn(3, 7)
    assert len({own.drawn(3, number) for number in range(20)}) > 10
