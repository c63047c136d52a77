"""Assumptions are one object in every report, and what one command wrote another takes."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives.timing import Assumptions
from testbed.options.assumptions import KEYS
from testbed.planning.question import question_of
from tests.commands import called, in_one_line, reported, rows_of

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
def test_every_report_has_the_same_object(command):
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
def test_steps_by_what_another_command_assumed_take_as_long(written_by, options, tmp_path):
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(reported(f"{written_by} {QUESTIONS[written_by]} {options}")))

    asked = f"scale {RING if written_by == 'tune' else STEP} {options}"
    expected = reported(asked)["rows"][0]["seconds"]

    for command in ("scale", "plan"):
        again = reported(f"{command} {QUESTIONS[command]} --assumptions {file}")
        assert again["rows"][0]["seconds"] == expected


@settings(deadline=None, max_examples=settings.default.max_examples // 2)
@given(
    st.sampled_from(["scale", "plan", "run"]),
    st.sampled_from(["scale", "plan", "run"]),
    st.sampled_from(["", "none", "all", "late"]),
    st.sets(st.sampled_from(["--ideal", "--model links", "--transport-model nccl"])),
    st.booleans(),
)
@example("run", "scale", "none", set(), True)
@example("plan", "scale", "", {"--ideal", "--transport-model nccl"}, False)
@example("plan", "scale", "all", {"--ideal"}, False)
def test_a_step_counts_what_another_command_has_counted(
    tmp_path_factory, writer, reader, terms, others, is_listed
):
    folder = tmp_path_factory.mktemp("assumed")
    script, file = folder / "script.py", folder / "assumed.json"
    script.write_text("import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n")
    asked = {**QUESTIONS, "run": f"--ranks 2 {script}"}
    options = " ".join(
        ["--network dgx-h100", *sorted(others), *([f"--inefficiencies {terms}"] if terms else [])]
    )

    assumed = reported(f"{writer} {options} {asked[writer]}")["assumptions"]
    if is_listed:
        assumed["inefficiencies"] = {"": None, "none": []}.get(terms, [terms])
    file.write_text(json.dumps(assumed))
    by_file = reported(f"{reader} --assumptions {file} {asked[reader]}")["assumptions"]

    by_options = reported(f"{reader} {options} {asked[reader]}")["assumptions"]
    for counted in ("model", "transport_model", "inefficiencies"):
        assert by_file["on"]["dgx-h100"][counted] == by_options["on"]["dgx-h100"][counted]


def test_a_collective_by_itself_takes_inefficiencies_of_which_none_is_named(tmp_path):
    file, question = tmp_path / "assumed.json", f"simulate {QUESTIONS['simulate']}"

    for spelled in ('"none"', "[]", '"all"', "null"):
        file.write_text(f'{{"network": "dgx-h100", "inefficiencies": {spelled}}}')
        assert rows_of(f"{question} --assumptions {file}") == rows_of(f"{question} --network dgx-h100")

    file.write_text('{"network": "dgx-h100", "inefficiencies": ["late", "copies"]}')
    refused = called(f"{question} --assumptions {file}", code=2)
    assert "inefficiencies = 'late,copies' is nothing that simulate assumes" in in_one_line(refused.stderr)


def test_an_option_wins_over_an_assumption(tmp_path):
    file = tmp_path / "assumed.json"
    file.write_text('{"network": "dgx-h100"}')

    (row,) = rows_of(f"scale {STEP} --assumptions {file} --network switch-100g")

    assert row["network"] == "switch-100g"


def test_inefficiencies_by_their_older_name_are_the_same(tmp_path):
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


def test_collectives_by_what_another_command_assumed_take_as_long(tmp_path):
    counted = "--network ethernet-25g --overhead 5us --transport-model ideal"
    written = reported(f"bench {QUESTIONS['bench']} {counted}")
    file = tmp_path / "assumed.json"
    file.write_text(json.dumps(written["assumptions"]))

    run = reported(f"simulate --ranks 8 --nbytes 4M --assumptions {file}")

    assert run["rows"][0]["algorithm"] == "ring"
    assert run["rows"][0]["seconds"] == written["rows"][0]["seconds"]
