"""Assumptions are one object in every report, and what one command wrote another takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collectives.timing import Assumptions
from testbed.options.assumptions import KEYS
from testbed.planning.question import question_of
from tests.commands import reported, rows_of

STEP = "--profile resnet50 --ranks 8 --strategy wait_free"
RING = f"{STEP} --algorithm ring"
QUESTIONS = {
    "scale": STEP,
    "plan": f"{STEP} --cache none --no-explain",
    "tune": RING,
    "simulate": "ring --ranks 8 --nbytes 4M",
    "bench": "--algorithm ring --ranks 8 --nbytes 4M",
}


@pytest.mark.parametrize("command", QUESTIONS)
def test_every_report_has_the_same_object(command: str) -> None:
    assumed = reported(f"{command} {QUESTIONS[command]} --network dgx-h100")["assumptions"]

    assert assumed.keys() == {*KEYS, "on"}
    assert assumed["network"] == "dgx-h100"
    assert assumed["on"].keys() == {"dgx-h100"}
    assert assumed["on"]["dgx-h100"]["transport_model"] == "nccl"


@pytest.mark.parametrize(
    ("written_by", "options"),
    [
        ("scale", "--network dgx-h100 --model links --inefficiencies late --algorithm tree"),
        ("plan", "--network ethernet-25g --ideal"),
        ("tune", "--network dgx-a100 --device h100"),
    ],
)
def test_steps_by_what_another_command_assumed_take_as_long(
    written_by: str, options: str, tmp_path: Path
) -> None:
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(reported(f"{written_by} {QUESTIONS[written_by]} {options}")))

    asked = f"scale {RING if written_by == 'tune' else STEP} {options}"
    expected = reported(asked)["rows"][0]["seconds"]

    for command in ("scale", "plan"):
        again = reported(f"{command} {QUESTIONS[command]} --assumptions {file}")
        assert again["rows"][0]["seconds"] == expected


def test_an_option_wins_over_an_assumption(tmp_path: Path) -> None:
    file = tmp_path / "assumed.json"
    file.write_text('{"network": "dgx-h100"}')

    (row,) = rows_of(f"scale {STEP} --assumptions {file} --network switch-100g")

    assert row["network"] == "switch-100g"


def test_inefficiencies_by_their_older_name_are_the_same(tmp_path: Path) -> None:
    of_step = f"scale {STEP} --network dgx-h100"
    written = reported(f"{of_step} --inefficiencies optimizer")
    older = dict(written["assumptions"], losses="optimizer")
    del older["inefficiencies"]
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(older))

    by_option = reported(f"{of_step} --losses optimizer")
    by_file = reported(f"scale {STEP} --assumptions {file}")
    asked = question_of(
        {"network": [{"name": "dgx-h100"}], "profile": [{"name": "resnet50"}], "losses": []}, ""
    )

    assert written["rows"] == by_option["rows"] == by_file["rows"]
    assert Assumptions.ideal(losses="late") == Assumptions.ideal(inefficiencies=["late"])
    assert asked.inefficiencies == []


def test_collectives_by_what_another_command_assumed_take_as_long(tmp_path: Path) -> None:
    counted = "--network ethernet-25g --overhead 5us --transport-model ideal"
    written = reported(f"bench {QUESTIONS['bench']} {counted}")
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(written["assumptions"]))

    run = reported(f"simulate --ranks 8 --nbytes 4M --assumptions {file}")

    assert run["rows"][0]["algorithm"] == "ring"
    assert run["rows"][0]["seconds"] == written["rows"][0]["seconds"]
