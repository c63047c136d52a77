"""`testbed compare`: rows that meet, differences that count."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.result import Result
from testbed.result.comparison import ResultFile, compare
from tests.commands import called

TIMES = st.dictionaries(
    st.tuples(st.sampled_from(["ring", "bine", "swing"]), st.integers(2, 5)),
    st.floats(1e-6, 1e3),
    min_size=1,
)


def result(**body):
    return ResultFile.model_validate(Result("", "", "simulated", "none", body=body).document())


def times_on(network, times):
    row = {"network": network}
    return result(
        asked={"rows": ["network", "ranks", "algorithm"]},
        rows=[{**row, "algorithm": a, "ranks": n, "seconds": s} for (a, n), s in times.items()],
    )


@given(TIMES, st.data())
def test_rows_meet_in_any_order_and_the_network_is_the_question(times, data):
    slow = data.draw(st.sampled_from(sorted(times)))
    shuffled = data.draw(st.permutations(sorted(times)))
    both = times_on("a", times), times_on("b", {key: times[key] * (1 + (key == slow)) for key in shuffled})

    found = compare(*both)

    assert [own.relative for own in found.answer] == [1.0]
    assert len(found.pairs) == len(times)
    assert {own.field for own in found.question} == {"network"}
    assert compare(*both, tolerance=1.0).agrees


def test_rows_that_one_result_lacks_are_a_difference():
    found = compare(times_on("a", {("ring", 2): 1.0, ("ring", 4): 2.0}), times_on("a", {("ring", 4): 2.0}))

    assert not found.agrees
    assert [row for _, row in found.only_first] == ["ranks 2"]


def test_by_which_engine_a_figure_was_found_is_no_answer_nor_a_field_that_later_versions_write():
    both = [
        result(how={"rows": ["engine"]}, rows=[{"engine": engine, "seconds": 1.0}])
        for engine in ("makespan", "events")
    ]

    found = compare(*both)

    assert found.agrees
    assert found.num_compared == 1
    assert [(own.first, own.second) for own in found.question] == [("makespan", "events")]
    assert compare(result(seconds=1.0), result(seconds=1.0, busbw=2.0)).agrees


@pytest.mark.parametrize(
    ("second", "options", "code", "said"),
    [
        (1.0, "", 0, "The answers agree"),
        (1.2, "", 1, "+20 %"),
        (1.2, "--tolerance 0.25", 0, "The answers agree"),
        (1.0, "--figure x", 2, "expected one of seconds"),
    ],
)
def test_exit_code_says_whether_answers_agree(second, options, code, said, tmp_path):
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, seconds in zip(files, (1.0, second), strict=True):
        body = {"seconds": seconds, "units": {"seconds": "s"}}
        file.write_text(json.dumps(Result("", "", "measured", "", body=body).document()))

    assert said in called(f"compare {options}", *files, code=code).output
