import json

import pytest

from testbed.errors import UsageError
from testbed.truth.calibration.calibration import (
    Calibration,
    Estimate,
    Fit,
    LinkShares,
    Origin,
    SoftwareCosts,
)


def a_calibration() -> Calibration:
    shares = LinkShares(
        rate=Estimate(25e6, 24.9e6, 25.1e6),
        latency=Estimate.exactly(90e-6),
        one_way=(Estimate(0.95, 0.94, 0.96),),
        both_ways=(Estimate(0.92, 0.91, 0.93), Estimate(0.88, 0.85, 0.9)),
    )
    costs = SoftwareCosts(Estimate(5e-5, 4e-5, 6e-5), Estimate.exactly(1e-5), Estimate(4e9, 3e9, 5e9))
    origin = Origin(
        measured="2026-01-01T00:00:00+00:00",
        transport="gloo",
        num_ranks=4,
        ranks_per_node=1,
        network="a switch",
        num_rows=30,
        smallest=1,
        largest=1 << 22,
        seconds=50.0,
        versions={"torch": "2.13.0"},
    )
    native = SoftwareCosts(Estimate.exactly(2e-5), Estimate.exactly(0.0))
    fits = (Fit(1 << 16, 3, 0.02, 0.05, 0.01),)
    return Calibration("mine", {"between_nodes": shares}, costs, fits, origin, native)


def test_a_result_document_with_a_calibration_is_read_too(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"method": "measured", "calibration": a_calibration().as_json()}))

    assert Calibration.read(file) == a_calibration()


def test_a_field_that_is_wrong_is_named(tmp_path):
    content = a_calibration().as_json()
    content["native"]["overhead"]["value"] = "fast"

    with pytest.raises(UsageError, match=r"mine: native, overhead, value: .*got 'fast'"):
        Calibration.from_json(content, "mine")


@pytest.mark.parametrize("text", ["no json", "[]", '{"schema": 7}'])
def test_a_file_that_holds_no_calibration_is_refused(tmp_path, text):
    file = tmp_path / "mine.json"
    file.write_text(text)

    with pytest.raises(UsageError, match=r"mine\.json"):
        Calibration.read(file)


def test_sizes_beyond_those_measured_are_told_from_those_within():
    origin = a_calibration().origin

    assert origin.beyond(1, 1 << 22) == ""
    assert origin.beyond(1 << 23) == f"above {1 << 22} bytes, the most calibrated"


def test_native_has_costs_of_its_own():
    calibration = a_calibration()

    assert calibration.software("native") is calibration.native
    assert calibration.software("ring") is calibration.programs
