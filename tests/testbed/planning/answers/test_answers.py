"""Answers of a plan: fronts, crossings, causes, gains, targets."""

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.planning import plan
from testbed.planning.alteration import AS_IT_IS
from testbed.planning.answers.answer import answers, more_cases, sentences, to_explain
from testbed.planning.answers.causes import cases, gain_cases, gains, lost_time, removals
from testbed.planning.answers.figures import (
    break_evens,
    crossings,
    expense,
    front,
    gpu_seconds,
    pace,
    to_target,
)
from testbed.planning.points import Point
from testbed.planning.row import Row
from testbed.report.planning import plan_result
from testbed.result import Plot
from testbed.result.result import csv_text

PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30)
SECONDS = st.floats(0.1, 10)


def row(seconds=1.0, *, network="a network", ranks=8, price=None, tokens=None, fewest=0, **figures):
    """Return a row of a step on that network by so many ranks."""
    work = {"fewest": fewest, "price_per_gpu_hour": price, "tokens_per_rank": tokens}
    point = Point("step", "a model", network, network, ranks, bucket_cap_mb=25.0, **work)
    usual = {"compute_seconds": 0.5, "efficiency": 0.5 / seconds, "algorithm": "ring", "resolved": "ring"}
    return Row(point, seconds, **{**usual, "inefficiencies": ("late", "contention"), **figures})


@given(PAIRS)
def test_nothing_beats_the_front_and_the_front_beats_everything_else(pairs):
    def beats(one, other):
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    best = front(pairs, (lambda pair: pair[0], lambda pair: pair[1]))

    assert not any(beats(one, other) for one in pairs for other in best)
    assert all(any(beats(one, other) for one in best) for other in pairs if other not in best)
    assert best == sorted(best)


@given(st.sets(st.sampled_from(["late", "copies", "contention", "launches"])), st.booleans())
def test_each_inefficiency_that_can_be_left_out_is_one_more_cause(terms, have_values):
    lost = row(inefficiencies=tuple(f"{term}:2" if have_values else term for term in sorted(terms)))

    causes = [own.without for _, own in removals(lost)]

    known = [term for term in ("late", "copies", "contention") if term in terms]
    assert causes[: len(known)] == [tuple(known[: number + 1]) for number in range(len(known))]
    assert set(causes[len(known) :]) == {tuple(known)}


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=6))
def test_a_design_overtakes_where_the_sign_changes_and_nowhere_else(times):
    rows = [
        row(seconds, network=name, ranks=2**place)
        for place, both in enumerate(times)
        for name, seconds in zip("ab", both, strict=True)
    ]

    found = crossings(rows, lambda own: own.seconds, "time")

    signs = [one < other for one, other in times if one != other]
    assert len(found) == sum(one != other for one, other in pairwise(signs))
    seconds = {(own.point.network, own.point.ranks): own.seconds for own in rows}
    for own in found:
        assert seconds[own.ahead, own.last] < seconds[own.overtakes, own.last]
        assert seconds[own.overtakes, own.first] < seconds[own.ahead, own.first]


@given(SECONDS, SECONDS, st.floats(0.5, 5))
def test_at_the_break_even_price_both_designs_cost_the_same(fast, slow, price):
    rows = [row(one, network=name, price=price) for name, one in (("a", fast), ("b", slow))]

    (own,) = break_evens(rows)

    by_name = {one.point.network: one for one in rows}
    design = by_name[own.design]
    at_that_price = replace(design, point=replace(design.point, price_per_gpu_hour=own.price))
    assert expense(at_that_price) == pytest.approx(expense(by_name[own.against]))


@given(SECONDS, st.lists(SECONDS, min_size=6, max_size=6), st.sampled_from(["simulated", "closed form"]))
def test_causes_add_up_to_what_is_lost(seconds, times, method):
    own = row(seconds, method=method)
    found = dict(zip(cases(own), [replace(own, seconds=one) for one in times], strict=False))

    lost = lost_time(own, found)

    assert sum(cause.seconds or 0 for cause in lost.causes) == pytest.approx(lost.lost_seconds)
    unknown = [cause.name for cause in lost.causes if cause.seconds is None]
    assert unknown == (["contention"] if method == "closed form" else [])


def test_a_cause_that_is_not_known_is_counted_with_the_next_one():
    own = row(1.0)
    found = dict.fromkeys(cases(own), replace(own, seconds=0.7))
    contention = next(case for case in found if case[1].unshared and not case[1].bandwidth)

    unknown = replace(own, seconds=None, problem="there are too many links")
    lost = lost_time(own, {**found, contention: unknown})

    assert [cause.why_not for cause in lost.causes if cause.seconds is None] == ["there are too many links"]
    assert sum(cause.seconds or 0 for cause in lost.causes) == pytest.approx(lost.lost_seconds)


def test_gains_are_ordered_by_what_they_save_and_of_buckets_the_better_way_counts():
    own = row(1.0)
    times = {"nic_bandwidth": 0.97, "latency": 0.99, "compute": 0.95, "bucket_cap_mb": 0.9}
    wanted = gain_cases(own, ["nic_bandwidth"])
    smaller = min(case[0].bucket_cap_mb for name, case in wanted if name == "bucket_cap_mb")
    found = {
        case: replace(own, seconds=1.2 if case[0].bucket_cap_mb == smaller else times[name])
        for name, case in wanted
    }

    best = gains(own, ["nic_bandwidth"], found)

    assert [gain.resource for gain in best] == ["bucket_cap_mb", "compute", "nic_bandwidth", "latency"]
    assert [gain.part for gain in best] == [pytest.approx(one) for one in (0.1, 0.05, 0.03, 0.01)]


def test_the_same_work_takes_as_long_whatever_a_step_is_and_a_target_costs_its_gpu_hours():
    assert pace(row(2.0, ranks=8)) == pace(row(2.0, ranks=16, fewest=8)) == 2.0 / 8
    assert pace(row(2.0, ranks=8, tokens=25)) == 0.01
    assert gpu_seconds(row(2.0, ranks=8)) == 2.0
    own = to_target(row(1.0, ranks=16, tokens=1000, price=2.0), 16e3 * 3600)

    assert (own.seconds, own.gpu_hours, own.cost) == (3600.0, 16.0, 32.0)
    assert to_target(row(), 3.6e9) is None


def test_of_many_rows_only_some_of_the_front_are_looked_into_and_no_case_twice():
    rows = [row(2.0 + ranks % 5, ranks=ranks) for ranks in range(2, 40)]

    chosen, wanted = to_explain(rows), more_cases(rows, lambda _: ["bandwidth"])

    assert len(chosen) <= 8
    assert {id(own) for own in chosen} <= {id(own) for own in front(rows, (pace, expense))}
    assert len(wanted) == len(set(wanted))


def test_the_sentence_names_the_best_design_its_lead_and_what_would_help():
    rows = [row(1.0, network="n400"), row(1.13, network="n100")]
    found = {case: row(1.0) for case in more_cases(rows, lambda _: ["nic_bandwidth"])}
    faster = replace(AS_IT_IS, bandwidth=(("nic_bandwidth", Fraction(11, 10)),))
    found[rows[0].settled, faster] = row(0.92)

    (own,) = answers(rows, found, lambda _: ["nic_bandwidth"], None)

    assert sentences(own) == [
        "a model trains fastest with n400: 1.00 s a step, 50.0 % of it computation, "
        "1.13 times as fast as n100.",
        "Of the fastest, 10 % more nic_bandwidth would save 8.0 % of its step.",
    ]


def test_a_plan_explains_its_rows_which_are_a_table_of_pandas_and_of_csv():
    question = {
        "profile": [{"name": "resnet50"}],
        "network": [{"name": "ethernet-100g"}, {"name": "ethernet-25g"}],
        "ranks": [8],
        "device": "v100",
    }

    found = plan(question, cache="none")

    (answer,) = found.answers
    for own in answer.explained:
        assert sum(cause.seconds for cause in own.lost.causes) == pytest.approx(own.lost.lost_seconds)
        assert {gain.resource for gain in own.gains} == {"bandwidth", "latency", "compute", "bucket_cap_mb"}
    assert found.sentences[0].startswith("resnet50 trains fastest with ethernet-100g")
    assert json.loads(json.dumps(answer.as_json()))["fastest"] == 0
    result = plan_result(found)
    assert [part.title for part in result.parts if isinstance(part, Plot)] == ["What resnet50 loses to what"]
    assert result.answer in found.sentences[0]
    frame = found.to_dataframe()
    assert {"label", "ranks", "efficiency", "bottleneck"} <= set(frame.columns)
    assert list(frame["seconds"]) == [row.seconds for row in found.rows]
    lines = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [float(line["seconds"]) for line in lines] == [row.seconds for row in found.rows]


def test_a_label_is_no_formula_of_a_spreadsheet():
    labels = ("=cmd|calc", "+1", "-1", "@a", "\tb", "\rc", "a=b")
    figures = {"id": -1, "seconds": 0.5, "gain": -0.25}
    rows = [{**figures, "label": own, "=name": 1} for own in labels]

    lines = list(csv.DictReader(io.StringIO(csv_text(rows), newline="")))

    assert [line["label"] for line in lines] == ["'=cmd|calc", "'+1", "'-1", "'@a", "'\tb", "' c", "a=b"]
    assert {(line["id"], line["seconds"], line["gain"], line["'=name"]) for line in lines} == {
        ("-1", "0.5", "-0.25", "1")
    }
