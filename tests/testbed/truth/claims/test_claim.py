"""Verdicts: they follow from the cases, and say which of them hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.truth.claims.claim import Case, Claim, Finding, conditions

PLACES = ("on NVLink", "on InfiniBand", "on Ethernet")
MODELS = ("with a small model", "with a large model")


def case(place: str, model: str, holds: bool) -> Case:
    return Case({"network": place, "model": model}, "50 %", holds, {"efficiency": 0.5})


def finding(cases: list[Case]) -> Finding:
    return Finding(Claim("C0", "It scales."), "two models", "simulated", "at least 50 %", tuple(cases))


def grid(holding: set[tuple[str, str]]) -> list[Case]:
    return [case(place, model, (place, model) in holding) for place in PLACES for model in MODELS]


def test_a_claim_holds_where_it_holds_in_every_case() -> None:
    assert finding([case("on NVLink", "with a small model", True)]).verdict == "holds"


def test_a_claim_that_holds_in_no_case_does_not_hold() -> None:
    assert finding(grid(set())).verdict == "does not hold"


def test_a_property_that_tells_the_cases_apart_is_the_condition() -> None:
    everywhere = {(place, "with a small model") for place in PLACES}

    assert finding(grid(everywhere)).verdict == "holds only if run with a small model"


def test_values_of_one_property_are_joined() -> None:
    holding = {(place, model) for place in PLACES[:2] for model in MODELS}

    assert conditions(grid(holding)) == "on NVLink or InfiniBand"


def test_where_one_property_is_not_enough_the_others_follow() -> None:
    holding = {("on NVLink", model) for model in MODELS} | {("on Ethernet", "with a small model")}

    assert conditions(grid(holding)) == "on NVLink, or on Ethernet with a small model"


def test_conditions_of_conditions_stand_in_parentheses() -> None:
    holding = {("NVLink", "a", 8), ("NVLink", "a", 64), ("NVLink", "b", 8), ("Ethernet", "b", 64)}
    cases = [
        Case(
            {"network": f"on {network}", "model": f"with {model}", "ranks": f"on {ranks} ranks"},
            "",
            (network, model, ranks) in holding,
            {},
        )
        for network in ("NVLink", "Ethernet")
        for model in "ab"
        for ranks in (8, 64)
    ]

    assert conditions(cases) == "on NVLink (with a, or with b on 8 ranks), or on Ethernet with b on 64 ranks"


@given(st.sets(st.tuples(st.sampled_from(PLACES), st.sampled_from(MODELS)), min_size=1, max_size=5))
def test_what_is_named_covers_every_case_that_holds(holding: set[tuple[str, str]]) -> None:
    text = conditions(grid(holding))

    for place, model in holding:
        assert place.removeprefix("on ") in text or model.removeprefix("with a ") in text


def test_a_row_has_the_figures_of_every_case() -> None:
    row = finding(grid({("on NVLink", "with a small model")})).row()

    assert row["id"] == "C0"
    assert row["verdict"].startswith("holds only if")
    assert row["figure"].startswith("on NVLink, with a small model: 50 %")
    assert [one["efficiency"] for one in row["cases"]] == [0.5] * 6
    assert [one["holds"] for one in row["cases"]] == [True, False, False, False, False, False]
