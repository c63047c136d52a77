"""Rates are max-min fair, which has a test of its own that needs no second algorithm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.network.sharing import max_min_rates


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int]]:
    capacity = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
    route = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=4, unique=True)
    return draw(st.lists(route.map(tuple), max_size=15)), capacity


@given(flows())
def test_no_link_carries_more_than_it_can(case):
    routes, capacity = case

    rates = max_min_rates(routes, capacity)

    for link, most in enumerate(capacity):
        assert sum(rate for rate, route in zip(rates, routes, strict=True) if link in route) <= most


@given(flows())
def test_every_flow_has_a_full_link_on_which_none_is_faster(case):
    """The bottleneck condition, which holds for the max-min fair rates and no others."""
    routes, capacity = case

    rates = max_min_rates(routes, capacity)

    for rate, route in zip(rates, routes, strict=True):
        on_link = {
            link: [r for r, other in zip(rates, routes, strict=True) if link in other] for link in route
        }
        assert any(
            rate == max(there) and capacity[link] - sum(there) < len(there) for link, there in on_link.items()
        )


@given(flows(), st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_the_order_of_flows(case, random):
    routes, capacity = case
    order = list(range(len(routes)))
    random.shuffle(order)

    shuffled = max_min_rates([routes[flow] for flow in order], capacity)

    rates = max_min_rates(routes, capacity)
    assert shuffled == [rates[flow] for flow in order]


@pytest.mark.parametrize(
    ("routes", "capacity", "expected"),
    [
        ([(0,)], [12], [12]),
        ([(0,), (0,), (0,)], [12], [4, 4, 4]),
        ([(0,), (0,), (0,)], [10], [3, 3, 3]),
        ([(0, 1), (0,), (1,)], [10, 100], [5, 5, 95]),
        ([(0, 1, 2), (0,), (1,), (2,)], [10, 20, 30], [5, 5, 15, 25]),
        ([], [10], []),
    ],
)
def test_textbook_cases(routes, capacity, expected):
    assert max_min_rates(routes, capacity) == expected
