"""Rows of a validation: errors are signed, and what judges a network are rows from 512 KiB on."""

from __future__ import annotations

import json

import pytest

from testbed.truth.shaped.rows import Errors, Prediction, Row, by_family, digest, written


def row(predicted: float, *seconds: float, nbytes: int = 1 << 20, family: str = "collective") -> Row:
    return Row(Prediction("net", family, "a case", "all_reduce", "ring", nbytes, 4, predicted), seconds)


def test_an_error_is_predicted_over_median_less_one() -> None:
    one = row(0.9, 1.5, 1.0, 0.5)

    assert one.measured_seconds == 1.0
    assert one.error == pytest.approx(-0.1)
    assert one.spread == pytest.approx(1.0)


def test_small_rows_are_judged_apart() -> None:
    errors = Errors.of(
        [row(1.1, 1.0), row(0.8, 1.0, 0.95, 1.05), row(1.02, 1.0), row(3.0, 1.0, nbytes=(512 << 10) - 4)]
    )

    assert errors.num_rows == 4
    assert errors.median_error == pytest.approx(0.1)
    assert errors.worst_error == pytest.approx(0.2)
    assert errors.worst_beyond_spread == pytest.approx(0.1)
    assert errors.small_median_error == pytest.approx(2.0)


def test_without_rows_there_are_no_errors() -> None:
    assert Errors.of([]) == Errors(0, None, None, None, None)


def test_rows_of_other_families_are_not_taken_for_plain_collectives() -> None:
    assert set(by_family([row(1, 1), row(1, 1, family="two jobs")])) == {"all_reduce ring", "two jobs ring"}


def test_json_holds_the_keys_that_are_promised_and_gives_the_row_back() -> None:
    one = row(0.9, 1.5, 1.0)
    content = json.loads(json.dumps(one.as_json()))

    promised = "case collective algorithm nbytes ranks predicted_seconds measured_seconds spread error"
    assert set(promised.split()) <= set(content)
    assert Row.from_json(content) == one


def test_a_digest_tells_predictions_apart() -> None:
    ours, others = [row(1.0, 1).prediction], [row(1.0000001, 1).prediction]

    assert digest(ours) != digest(others)
    assert [json.loads(line)["predicted_seconds"] for line in written(ours).splitlines()] == [1.0]
