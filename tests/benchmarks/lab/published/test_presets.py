"""Presets held against the collectives that ship, and against themselves."""

import json
from pathlib import Path

import pytest

from benchmarks.lab.document import markdown
from benchmarks.lab.published.presets import contradictions_of, judge_presets
from benchmarks.lab.published.split import ELSEWHERE, calibrating_presets, judged_presets, published_split
from benchmarks.lab.report.presets import presets_result, presets_section
from sim import load_network
from testbed.calibration.confidence import by_class
from tests.commands import called, reported

PRESETS = Path(__file__).parents[4] / "sim" / "presets"


def nobody(description, completed=None):
    """Watches."""


@pytest.fixture(scope="module")
def judged():
    return judge_presets(nobody)


def test_the_split_gives_no_row_to_both_sides():
    split = published_split()

    seen = {(row.system, row.nbytes) for row in split.calibrating}
    judging = [*split.other_sizes, *(row for rows in split.other_systems.values() for row in rows)]
    assert [row for row in judging if (row.system, row.nbytes) in seen] == []
    both = {name for names in calibrating_presets().values() for name in names}
    both &= {name for names in judged_presets().values() for name in names}
    assert both <= {row.system for row in split.other_systems[ELSEWHERE]}


def test_no_preset_contradicts_itself(judged):
    assert [text for own in judged for text in own.contradictions] == []


def test_a_network_whose_models_disagree_says_so(tmp_path):
    slow = (PRESETS / "aws-p5.toml").read_text()
    file = tmp_path / "slow.toml"
    file.write_text(slow.replace('nic_bandwidth = "400Gbps"', 'nic_bandwidth = "100Gbps"'))

    found = list(contradictions_of(load_network(file)))

    assert any(text.startswith("nccl, 2 nodes") and "do not describe one system" in text for text in found)


def test_presets_reach_the_errors_that_they_promise_on_rows_that_no_calibration_has_seen(judged):
    gpus = [own for own in judged if own.gpus]

    same = by_class((row for own in gpus for row in own.same), lambda row: row.row.nbytes)
    other = by_class((row for own in gpus for row in own.other), lambda row: row.row.nbytes)

    assert all(own is not None and own.median < 0.05 for own in same.values())
    assert all(own is not None and own.held is not None and own.held > 0.9 for own in same.values())
    assert all((own := other[name]) is not None and own.median < 0.1 for name in ("to 1 GiB", "above"))


def test_the_section_and_the_json_have_every_preset_that_was_measured(judged):
    body, document = markdown(list(presets_section(judged))), presets_result(judged).document()

    measured = [own.name for own in judged if own.same]
    assert set(measured) == set(calibrating_presets())
    assert body.count("| all_to_all |") == len(
        [own for own in judged for node in own.node if node.collective == "all_to_all"]
    )
    assert [name for name in measured if f"| {name} | same system, other sizes |" not in body] == []
    assert json.loads(json.dumps(document))["same_systems"]["classes"]["above"]["median_error"] < 0.05


def test_a_calibration_of_a_table_predicts_the_rest_of_it(tmp_path):
    split, mine = published_split(), tmp_path / "mine.toml"
    tables = {}
    for name, rows in (("fit", split.calibrating), ("rest", split.other_sizes)):
        own = [row for row in rows if row.system == "ar_t4_efa100_2n_g4dn"]
        lines = [f"{row.system},all_reduce,2,2,{row.nbytes},{row.seconds * 1e6}" for row in own]
        tables[name] = tmp_path / f"{name}.csv"
        tables[name].write_text("\n".join(["set,collective,ranks,nodes,nbytes,time_us", *lines]))

    called(f"calibrate --from {tables['fit']} --output {mine}")
    found = reported(f"validate --table {tables['rest']} --network {mine}")

    assert len(found["rows"]) == len(lines)
    assert found["seen"]["num_rows"] == 0
    assert max(found["median_error"], found["small_median_error"]) < 0.05
    assert "(seen)" in called(f"validate --table {tables['fit']} --network {mine}").output
