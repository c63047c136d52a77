"""Rates and times of transfers that share links, and streams of operations."""

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim import Stream, TopologyError, UnitError, transfer_times
from sim.network.sharing import max_min_rates
from tests.given import switch


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[int]]:
    capacity = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=8))
    route = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=4, unique=True)
    return draw(st.lists(route.map(tuple), max_size=15)), capacity


@given(flows(), st.randoms(use_true_random=False))
def test_rates_are_max_min_fair_whatever_the_order_of_flows(case, random):
    """No link is overfull, and each flow has a full one on which none is faster: that holds of no others."""
    routes, capacity = case

    rates = max_min_rates(routes, capacity)

    on_link = [
        [rate for rate, route in zip(rates, routes, strict=True) if link in route]
        for link in range(len(capacity))
    ]
    assert all(sum(there) <= most for there, most in zip(on_link, capacity, strict=True))
    for rate, route in zip(rates, routes, strict=True):
        assert any(
            rate == max(on_link[link]) and capacity[link] - sum(on_link[link]) < len(on_link[link])
            for link in route
        )
    order = random.sample(range(len(routes)), len(routes))
    assert max_min_rates([routes[flow] for flow in order], capacity) == [rates[flow] for flow in order]


def test_starts_may_be_text_and_no_transfers_take_no_time():
    assert transfer_times([(0, 1, 0, "3us"), (0, 1, 0, 3e-6)], topology=switch(4)) == [7e-6, 7e-6]
    assert transfer_times([], topology=switch(4)) == []


@pytest.mark.parametrize(
    ("transfer", "error", "said"),
    [
        ((0, 0, 1, 0), TopologyError, "to itself"), ((0, 4, 1, 0), TopologyError, "rank 4"),
        ((0, 1, -1, 0), UnitError, "-1 bytes"), ((0, 1, 1, "soon"), UnitError, "start of transfer 0"),
        ((0, 1, 1, -1.0), UnitError, "negative"),
    ],
)  # fmt: skip
def test_an_impossible_transfer_is_refused(transfer, error, said):
    with pytest.raises(error, match=said):
        transfer_times([transfer], topology=switch(4))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=10))
def test_each_operation_begins_at_its_time_or_after_the_one_before(operations):
    env = simpy.Environment()
    stream = Stream(env)
    ran = []

    def operation(duration):
        begin = env.now
        yield env.timeout(duration)
        ran.append((begin, env.now))
        return len(ran)

    events = [
        stream.submit(lambda duration=duration: operation(duration), not_before_ps=not_before)
        for duration, not_before in operations
    ]
    env.run()

    expected, free = [], 0
    for duration, not_before in operations:
        begin = max(free, not_before)
        free = begin + duration
        expected.append((begin, free))
    assert ran == expected
    assert [event.value for event in events] == list(range(1, len(operations) + 1))


@pytest.mark.parametrize("awaited", [True, False])
def test_a_failure_belongs_to_its_operation_or_to_the_run_and_the_next_runs_on(awaited):
    env = simpy.Environment()
    stream = Stream(env)
    ran = []

    def fail():
        yield env.timeout(5)
        raise OSError("cable cut")

    def succeed():
        ran.append(f"at {env.now}")
        yield env.timeout(1)

    def wait(event):
        with pytest.raises(OSError, match="cable cut"):
            yield event
        ran.append("seen")

    failing = stream.submit(fail)
    stream.submit(succeed)
    if awaited:
        env.process(wait(failing))
        env.run()
        assert (sorted(ran), env.now) == (["at 5", "seen"], 6)
    else:
        with pytest.raises(OSError, match="cable cut"):
            env.run()


def test_a_factory_is_called_only_when_its_turn_has_come():
    env = simpy.Environment()
    stream = Stream(env)
    called = []

    def factory():
        called.append(env.now)
        return iter([env.timeout(7)])

    stream.submit(factory)
    stream.submit(factory)
    stream.submit(factory, not_before_ps=100)
    env.run()

    assert called == [0, 7, 100]
