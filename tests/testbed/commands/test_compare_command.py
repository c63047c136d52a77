"""`testbed compare`: rows that meet, differences that count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from testbed.cli import app
from testbed.comparison import Result, compare
from testbed.output.folder import document


def result(**body: Any) -> Result:
    return Result.model_validate(document(method="simulated", model="none", **body))


def rows(network: str, times: dict[tuple[str, int], float]) -> list[dict[str, Any]]:
    return [
        {"network": network, "algorithm": name, "ranks": ranks, "seconds": own}
        for (name, ranks), own in times.items()
    ]


TIMES = st.dictionaries(
    st.tuples(st.sampled_from(["ring", "bine", "swing"]), st.integers(2, 5)),
    st.floats(1e-6, 1e3),
    min_size=1,
)


@given(TIMES, st.data())
def test_rows_meet_in_any_order_and_the_network_is_the_question(
    times: dict[tuple[str, int], float], data: st.DataObject
) -> None:
    slow = data.draw(st.sampled_from(sorted(times)))
    shuffled = data.draw(st.permutations(sorted(times)))
    others = {key: times[key] * (2 if key == slow else 1) for key in shuffled}

    found = compare(result(rows=rows("a", times)), result(rows=rows("b", others)))

    assert [own.relative for own in found.answer] == [1.0]
    assert len(found.pairs) == len(times)
    assert {own.field for own in found.question} == {"network"}
    assert compare(result(rows=rows("a", times)), result(rows=rows("b", others)), tolerance=1.0).agrees


def test_rows_that_one_result_lacks_are_a_difference() -> None:
    both = {("ring", 2): 1.0, ("ring", 4): 2.0}

    found = compare(result(rows=rows("a", both)), result(rows=rows("a", {("ring", 4): 2.0})))

    assert not found.agrees
    assert [row for _, row in found.only_first] == ["ranks 2"]


def test_a_field_that_only_a_later_version_writes_is_no_difference() -> None:
    assert compare(result(seconds=1.0), result(seconds=1.0, busbw=2.0)).agrees


@pytest.mark.parametrize(
    ("first", "second", "options", "code", "said"),
    [
        ({"seconds": 1.0}, {"seconds": 1.0}, [], 0, "The answers agree"),
        ({"seconds": 1.0}, {"seconds": 1.2}, [], 1, "+20 %"),
        ({"seconds": 1.0}, {"seconds": 1.2}, ["--tolerance", "0.25"], 0, "The answers agree"),
        ({"seconds": 1.0}, {"seconds": 1.0}, ["--figure", "x"], 2, "expected one of seconds"),
    ],
)
def test_exit_code_says_whether_answers_agree(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], options: list[str], code: int, said: str
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, body in zip(files, (first, second), strict=True):
        file.write_text(json.dumps(document(method="measured", model="none", **body)))

    found = CliRunner().invoke(app, ["compare", *map(str, files), *options])

    assert found.exit_code == code
    assert said in found.output
