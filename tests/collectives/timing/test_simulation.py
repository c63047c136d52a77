import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import NotExactError, ProgramError, RecvReduce, resolve_algorithm, simulate
from collectives.timing.floor import BelowFloorError, check_floor
from tests.given import switch


def halving_doubling(world_size: int, step) -> int:
    return 2 * sum(step(1 << level) for level in range(world_size.bit_length() - 1))


@pytest.mark.parametrize(
    ("name", "collective", "of_powers", "time_ps"),
    [
        ("ring", "all_reduce", False, lambda p, chunks, step: 2 * (p - 1) * step(1)),
        ("chain:segments={chunks}", "broadcast", False, lambda p, chunks, step: (p - 2 + chunks) * step(1)),
        ("chain:segments={chunks}", "reduce", False, lambda p, chunks, step: (p - 2 + chunks) * step(1)),
        ("halving_doubling:order=far", "all_reduce", True, lambda p, chunks, step: halving_doubling(p, step)),
        (
            "halving_doubling:order=near", "all_reduce", True,
            lambda p, chunks, step: halving_doubling(p, step),
        ),
    ],
)  # fmt: skip
@given(
    level=st.integers(1, 4),
    more=st.integers(0, 15),
    segments=st.integers(1, 8),
    chunk=st.integers(1, 10**6),
    bandwidth=st.integers(100, 10**12),  # so that every time fits into 63 bits of picoseconds
    latency_us=st.integers(0, 50),
    engine=st.sampled_from(["makespan", "events", "ranks"]),
)
def test_on_a_switch_a_program_takes_exactly_its_closed_form(
    name, collective, of_powers, time_ps, level, more, segments, chunk, bandwidth, latency_us, engine
):
    world_size = (1 << level) + (0 if of_powers else more % (1 << level))
    num_chunks = segments if name.startswith("chain") else world_size
    topology = switch(world_size, bandwidth, f"{latency_us}us")

    run = simulate(
        name.format(chunks=segments),
        nbytes=chunk * num_chunks,
        topology=topology,
        collective=collective,
        engine=engine,
    )

    def step(chunks):
        return 2 * latency_us * 10**6 - (-chunks * chunk * 10**12 // bandwidth)

    assert run.time_ps == time_ps(world_size, num_chunks, step)
    assert run.engine == engine


def test_messages_that_meet_one_after_another_are_refused_by_makespan_and_left_to_events():
    late_for_one = "double_binary_tree:segments=4"

    with pytest.raises(NotExactError, match="engine='events'"):
        simulate(late_for_one, nbytes=2**20, topology=switch(32), engine="makespan")
    assert simulate(late_for_one, nbytes=2**20, topology=switch(32)).engine == "events"


def test_a_program_without_an_array_form_is_stacked():
    ring = resolve_algorithm("ring")

    def plain(rank, world_size):
        yield from ring(rank, world_size)

    run = simulate(plain, nbytes=1000, topology=switch(7))

    assert (run.engine, run.time_ps) == (
        "makespan",
        simulate("ring", nbytes=1000, topology=switch(7)).time_ps,
    )


def both_receive(rank: int, world_size: int):
    yield RecvReduce(1 - rank, 0)


@pytest.mark.parametrize("engine", ["auto", "events", "ranks"])
def test_a_deadlock_is_an_error_not_a_hang(engine):
    with pytest.raises(ProgramError, match="deadlock, 2 of 2 ranks wait"):
        simulate(both_receive, nbytes=8, topology=switch(2), engine=engine)


def test_a_prediction_below_the_floor_is_an_internal_error():
    with pytest.raises(BelowFloorError, match="please report"):
        check_floor(9, 10, "ring on nothing")


def test_bandwidths_are_those_of_nccl_tests():
    run = simulate("ring", nbytes=2**26, topology=switch(64))

    assert run.algbw == 2**26 / run.seconds
    assert run.busbw == run.algbw * 2 * 63 / 64
