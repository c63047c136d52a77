"""Lost efficiency of published trainings: rows, split and figures."""

from dataclasses import replace

import pytest

from benchmarks.lab.document import markdown
from benchmarks.lab.published.training import families, lost_efficiency, ring_rate
from benchmarks.lab.published.training_rows import trainings
from benchmarks.lab.report.training import trainings_result, trainings_section

KNOWN = trainings()


def one(model, variant, gpus):
    return next(own for own in KNOWN if (own.model, own.variant, own.gpus) == (model, variant, gpus))


@pytest.fixture(scope="module")
def rate():
    return ring_rate(own for own in KNOWN if own.role == "calibrate")


@pytest.fixture(scope="module")
def found(rate):
    some = [one("ResNet-50", "MG-WFBP", 32), one("BERT-Large", "BSP-A2A", 8), one("ResNet50v1.5", "", 8)]
    return [lost_efficiency(own, rate) for own in some]


def test_rows_that_calibrate_never_judge():
    calibrating = [own for own in KNOWN if own.role == "calibrate"]

    assert {(own.model, own.variant) for own in calibrating} == {("BERT-Large", "BSP-A2A")}
    assert {own.nodes for own in KNOWN if own.role == "judge"} >= {1, 2, 4, 8}
    assert len([own for own in KNOWN if own.role == "judge"]) > 200


def test_efficiency_is_against_the_row_of_one_gpu():
    own = one("ResNet-50", "WFBP-A2A", 32)

    assert own.alone_seconds == pytest.approx(64 / 253.1)
    assert own.efficiency == pytest.approx(7326.56 / 32 / 253.1)
    assert own.strategy == "per_parameter"


def test_a_step_on_one_gpu_takes_what_was_published(rate):
    alone = replace(one("ResNet-50", "MG-WFBP", 32), gpus=1, efficiency=1.0)

    assert lost_efficiency(alone, rate).predicted == pytest.approx(0, abs=1e-9)


def test_inefficiencies_are_in_what_is_expected_and_messages_alone_in_what_is_ideal(found):
    assert all({"contention", "late", "copies", "optimizer"} <= set(own.inefficiencies) for own in found)
    assert all(0 <= own.ideal < own.predicted for own in found)


def test_the_report_has_every_row_and_the_section_every_family(found, rate):
    rows = trainings_result(found).rows

    assert [row["error"] for row in rows] == [own.error for own in found]
    assert len(families(found)["several nodes"]) == len(families(found)["calibrating"]) == 1
    assert "| several nodes | 1 |" in markdown(trainings_section(found, rate))
