"""Published trainings of one node that are run from scripts."""

from collections import Counter

import pytest

from benchmarks.lab.published.scripted import ScriptedPrediction, families, predict, scripted_rows, summary
from benchmarks.lab.report.scripted import scripted_result


def test_all_rows_of_mpt_and_the_possible_ones_of_one_gpu_are_run():
    rows = scripted_rows()

    mpt = [row for row in rows if row.script == "mpt.py"]
    assert Counter(row.script for row in rows) == {"mpt.py": 66, "resnet50.py": 6, "bert.py": 4}
    assert {row.device for row in mpt} == {f"{own}:fa1_2023" for own in ("h100", "a100", "a100-40gb")}
    assert {row.ranks for row in mpt} == {8}
    assert all("seq512" not in row.setting for row in rows)


def test_the_batch_of_a_pass_is_that_of_a_step_over_its_passes_where_the_table_says_so():
    of_set = [own for own in scripted_rows() if own.set == "ddp_dle_pt_bertlarge_dgx1_32g"]
    [row] = [own for own in of_set if own.passes == 64]

    assert row.arguments[:2] == ("--batch", "64")
    assert row.samples == 64


def test_errors_are_summed_up_by_family():
    rows = [row for row in scripted_rows() if row.script == "resnet50.py"]
    found = [
        ScriptedPrediction(row.measured * (1 + 0.01 * number), row.measured, row, 1.0, 0.0)
        for number, row in enumerate(rows)
    ]

    whole = summary("all", families(found)["resnet50, all"])

    assert (whole["count"], round(whole["median"], 6), round(whole["ninth"], 6)) == (6, 0.025, 0.05)
    assert round(whole["worst"], 6) == 0.05
    assert len(scripted_result(found).rows) == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Grad strides")  # of filters of one element, as on CUDA
def test_a_row_is_predicted_from_its_script_within_a_tenth():
    [row] = [
        row for row in scripted_rows() if row.set == "ddp_dle_pt_resnet50_dgx1_32g" and row.precision == "amp"
    ]

    [found] = predict([row])

    assert abs(found.error) < 0.1
    assert found.exposed_seconds < 0.1 * found.step_seconds
