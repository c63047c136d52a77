"""Mutated inputs are read rightly, or refused in the project's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.mutation import __main__ as command
from tools.mutation.outcome import SEEDS, Failure, drawn, outcome_of
from tools.mutation.target import Target

INPUTS = 25
"""Of each target, times its weight by which `make mutate` goes on from there."""


@pytest.mark.parametrize("name", command.TARGETS)
def test_what_is_mutated_is_read_rightly_or_refused(name: str) -> None:
    target = command.TARGETS[name]

    outcomes = [outcome_of(target, drawn(target, 0, number)) for number in range(INPUTS * target.weight)]

    assert [outcome for outcome in outcomes if isinstance(outcome, Failure)] == []
    assert "refused" in outcomes


@pytest.mark.parametrize("seed", sorted(SEEDS.glob("*.json")), ids=lambda path: path.stem)
def test_what_once_failed_is_read_rightly_or_refused(seed: Path) -> None:
    found = json.loads(seed.read_text(encoding="utf-8"))

    outcome = outcome_of(command.TARGETS[found["target"]], found["content"].encode("latin-1"))

    assert not isinstance(outcome, Failure), outcome


def failing(content: bytes) -> None:
    if content == b"traceback":
        raise KeyError("deep inside")
    if content == b"hang":
        while True:
            pass
    if content == b"exit":
        raise SystemExit(0)
    assert content != b"wrong answer"


@pytest.mark.parametrize("kind", ["traceback", "hang", "wrong answer"])
def test_a_failure_is_found_and_kept(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.mutation.outcome.SEEDS", tmp_path)
    monkeypatch.setattr("tools.mutation.outcome.SECONDS", 0.05)
    target = Target("failing", lambda random: kind.encode(), failing)

    failure = outcome_of(target, drawn(target, 0, 0))

    assert isinstance(failure, Failure)
    assert failure.kind == kind
    assert json.loads(failure.keep().read_text())["content"] == kind


def test_an_exit_of_what_is_read_is_a_failure() -> None:
    outcome = outcome_of(Target("failing", lambda random: b"exit", failing), b"exit")

    assert isinstance(outcome, Failure)


def test_inputs_are_drawn_again_alike() -> None:
    target = command.TARGETS["profile"]

    assert drawn(target, 3, 7) == drawn(target, 3, 7)
    assert len({drawn(target, 3, number) for number in range(20)}) > 10


def test_feeding_nothing_ends_with_1() -> None:
    assert command.main(["--only", "size", "--time-limit", "-1", "--inputs", "1", "--jobs", "1"]) == 1


def test_the_work_is_divided_by_weight() -> None:
    targets = [command.TARGETS["size"], command.TARGETS["rate"]]

    batches = list(command.batches_of(targets, 2000))

    assert batches == [
        ("size", 0, 500),
        ("rate", 0, 500),
        ("size", 500, 1000),
        ("rate", 500, 800),
        ("size", 1000, 1200),
    ]
