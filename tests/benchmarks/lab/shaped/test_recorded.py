"""Validation on recorded measurements: predictions made anew are as near to them as the document says."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.lab.document import markdown
from benchmarks.lab.report.shaped import shaped_result, shaped_section
from benchmarks.lab.report.truth_plot import plot_truth
from benchmarks.lab.shaped.applied import applied_to
from benchmarks.lab.shaped.cases import Case
from benchmarks.lab.shaped.plan import wire
from benchmarks.lab.shaped.prediction import Predictor
from benchmarks.lab.shaped.rows import Row, figures
from benchmarks.lab.shaped.timing import Call
from benchmarks.lab.shaped.validation import Cut, Validation
from sim.topology.description import load_network
from testbed.calibration.live.calibration import Calibration

RECORDED = Path("tests/data/shaped.json")
NETWORKS = ("four_equal", "two_racks_2to1")


@cache
def recorded():
    return json.loads(RECORDED.read_text())


def calibration():
    return Calibration.from_json(recorded()["calibration"])


def predictor(network):
    wires = wire(load_network(Path(f"examples/networks/shaped/{network}.toml")))
    return Predictor(applied_to(wires, calibration()), calibration())


def rows(network):
    return [Row.from_json(row) for row in recorded()["rows"] if row["network"] == network]


@cache
def anew(network):
    """Return recorded rows of collectives beside predictions of now."""
    found = []
    for row in rows(network):
        one = row.prediction
        if one.family == "collective":
            case = Case(one.family, (Call(one.collective, one.algorithm, one.nbytes),))
            seconds = predictor(network).total(case)
            found.append(Row.of(replace(one, predicted_seconds=seconds), row.seconds))
    return found


@pytest.mark.parametrize("network", NETWORKS)
def test_predictions_are_as_near_to_what_was_measured_as_is_promised(network):
    errors = figures(anew(network))

    assert errors["num_rows"] >= 24
    assert errors["median_error"] < 0.03
    assert errors["small_median_error"] < 0.08


@pytest.mark.parametrize("network", NETWORKS)
def test_predictions_are_those_that_were_written_down(network):
    for row, again in zip(
        (row for row in rows(network) if row.prediction.family == "collective"), anew(network), strict=True
    ):
        assert again.prediction.predicted_seconds == pytest.approx(row.prediction.predicted_seconds, rel=1e-3)


def validation(network):
    cut = Cut("all_reduce ring 4 MiB, rank 0 up cut after 138 ms", "rank 0 up", {0: "no message"})
    return Validation(network, predictor(network).topology, tuple(rows(network)), cut, ("x",), "0" * 64)


def test_reports_say_what_was_recorded(tmp_path):
    found = [validation(network) for network in NETWORKS]
    result = shaped_result(found, calibration())
    document = json.loads(json.dumps(result.document(), allow_nan=False))
    plot_truth([row for one in found for row in one.rows], tmp_path / "truth.svg")

    rows_of_all = [row for network in NETWORKS for row in rows(network)]
    assert document["median_error"] == figures(rows_of_all)["median_error"]
    assert {"worst_error", "small_median_error"} <= set(document)
    assert len(document["rows"]) == len(rows_of_all)
    assert "| **all** |" in markdown(list(shaped_section(found, calibration())))
    assert "1 of 4 hosts failed, as foretold" in str(result)
    assert (tmp_path / "truth.svg").stat().st_size > 1000
