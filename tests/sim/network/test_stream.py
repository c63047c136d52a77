"""Operations of a stream run one after another, whatever becomes of them."""

from __future__ import annotations

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sim.network.stream import Stream


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 200)), max_size=10))
def test_each_operation_begins_at_its_time_or_after_the_one_before(operations):
    env = simpy.Environment()
    stream = Stream(env)
    ran: list[tuple[int, int]] = []

    def operation(duration: int):
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


def test_an_operation_submitted_to_an_idle_stream_begins_at_once():
    env = simpy.Environment()
    stream = Stream(env)
    env.run(stream.submit(lambda: iter([env.timeout(5)])))
    env.run(env.timeout(10))

    env.run(stream.submit(lambda: iter([env.timeout(1)]), not_before_ps=3))

    assert env.now == 16


def test_a_failure_belongs_to_its_operation_and_the_next_runs_on():
    env = simpy.Environment()
    stream = Stream(env)
    ran: list[str] = []

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

    env.process(wait(stream.submit(fail)))
    stream.submit(succeed)
    env.run()

    assert sorted(ran) == ["at 5", "seen"]
    assert env.now == 6


def test_a_failure_that_nobody_waits_for_is_raised_by_the_run():
    env = simpy.Environment()

    def fail():
        yield env.timeout(5)
        raise OSError("cable cut")

    Stream(env).submit(fail)

    with pytest.raises(OSError, match="cable cut"):
        env.run()


def test_a_factory_is_called_only_when_its_turn_has_come():
    env = simpy.Environment()
    stream = Stream(env)
    called: list[int] = []

    def factory():
        called.append(env.now)
        return iter([env.timeout(7)])

    stream.submit(factory)
    stream.submit(factory)
    stream.submit(factory, not_before_ps=100)
    env.run()

    assert called == [0, 7, 100]
