"""Assumptions are one object in every report, and what one command wrote another takes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collectives.timing import Assumptions
from testbed.cli import app
from testbed.options.assumptions import KEYS
from testbed.planning.question import question_of

STEP = ("--profile", "resnet50", "--ranks", "8", "--strategy", "wait_free")
QUESTIONS = {
    "scale": STEP,
    "plan": STEP,
    "tune": STEP,
    "simulate": ("ring", "--ranks", "8", "--nbytes", "4M"),
    "bench": ("--algorithm", "ring", "--ranks", "8", "--sizes", "4M"),
}


def reported(command: str, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [command, *arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    content: dict[str, Any] = json.loads(result.stdout)
    return content


@pytest.mark.parametrize("command", QUESTIONS)
def test_every_report_has_the_same_object(command: str) -> None:
    assumed = reported(command, *QUESTIONS[command], "--network", "dgx-h100")["assumptions"]

    assert assumed.keys() == {*KEYS, "on"}
    assert assumed["network"] == "dgx-h100"
    assert assumed["on"].keys() == {"dgx-h100"}
    assert assumed["on"]["dgx-h100"]["transport_model"] == "nccl"


@pytest.mark.parametrize(
    ("written_by", "options"),
    [
        (
            "scale",
            ("--network", "dgx-h100", "--model", "links", "--inefficiencies", "late", "--algorithm", "tree"),
        ),
        ("plan", ("--network", "ethernet-25g", "--ideal")),
        ("tune", ("--network", "dgx-a100", "--device", "h100")),
    ],
)
def test_steps_by_what_another_command_assumed_take_as_long(
    written_by: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(reported(written_by, *STEP, *options)))

    expected = reported("scale", *STEP, *options)["rows"][0]["seconds"]

    for command in ("scale", "plan"):
        again = reported(command, *STEP, "--assumptions", str(file))
        assert again["rows"][0]["seconds"] == expected
    other = reported("scale", *STEP, "--assumptions", str(file), "--network", "switch-100g")
    assert other["rows"][0]["network"] == "switch-100g"  # an option wins


def test_inefficiencies_by_their_older_name_are_the_same(tmp_path: Path) -> None:
    of_step = (*STEP, "--network", "dgx-h100")
    written = reported("scale", *of_step, "--inefficiencies", "optimizer")
    older = dict(written["assumptions"], losses="optimizer")
    del older["inefficiencies"]
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(older))

    by_option = reported("scale", *of_step, "--losses", "optimizer")
    by_file = reported("scale", *STEP, "--assumptions", str(file))
    asked = question_of(
        {"network": [{"name": "dgx-h100"}], "profile": [{"name": "resnet50"}], "losses": []}, ""
    )

    assert written["rows"] == by_option["rows"] == by_file["rows"]
    assert Assumptions.ideal(losses="late") == Assumptions.ideal(inefficiencies=["late"])
    assert asked.inefficiencies == []


def test_collectives_by_what_another_command_assumed_take_as_long(tmp_path: Path) -> None:
    counted = ("--network", "ethernet-25g", "--overhead", "5us", "--transport-model", "ideal")
    written = reported("bench", *QUESTIONS["bench"], *counted)
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(written["assumptions"]))

    run = reported("simulate", "--ranks", "8", "--nbytes", "4M", "--assumptions", str(file))

    assert run["rows"][0]["algorithm"] == "ring"
    assert run["rows"][0]["seconds"] == written["rows"][0]["seconds"]


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        ("scale", "[]", "expected a report"),
        ("scale", "{", "not a JSON file"),
        ("scale", '{"bandwith": 1}', "no assumption 'bandwith'"),
        ("scale", '{"model": {}}', "model: expected a value"),
        ("scale", '{"model": "guess"}', "guess"),
        ("scale", '{"jitter": "1us"}', "jitter = '1us' is nothing that scale assumes"),
        ("simulate", '{"network": ["dgx-h100", "dgx-a100"]}', "expects one, got 2"),
    ],
)
def test_what_cannot_be_assumed_is_said_in_a_line(
    command: str, content: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "assumed.json"
    file.write_text(content)

    result = CliRunner().invoke(app, [command, *QUESTIONS[command], "--assumptions", str(file)])

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_named_pipe_that_nobody_writes_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    result = CliRunner().invoke(app, ["scale", "--assumptions", str(pipe)])

    assert result.exit_code == 2
    assert "named pipe" in result.stderr
