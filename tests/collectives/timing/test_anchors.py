"""Collectives whose time is known in closed form (`benchmarks.anchors`), in both engines, with ``==``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.anchors import ANCHORS, GIB, MIB, ring_on_a_switch, switch, two_rings_on_a_switch
from collectives import NotExactError, ProgramError, RecvReduce, resolve_algorithm, simulate, simulate_jobs
from collectives.timing.floor import BelowFloorError, check_floor
from ddp import Profile, simulate_step
from tests.given import switch as flat

SIZES = {
    "sw": (8, 64, 256, 1024), "ring": (8, 64, 256), "H-hier": (16, 64, 256, 1024), "H-flat": (16, 64, 256),
    "stride": (64, 256, 1024), "a2a": (8, 64, 256), "incast": (8, 64, 256), "rhd": (8, 64, 1024),
    "tree a2a": (16, 64, 128), "tree rhd": (16, 64, 1024),
}  # fmt: skip


def test_every_anchor_is_tested():
    assert SIZES.keys() == ANCHORS.keys()


@pytest.mark.parametrize("engine", ["makespan", "events"])
@pytest.mark.parametrize(("name", "n"), [(name, n) for name, sizes in SIZES.items() for n in sizes])
def test_a_collective_takes_the_time_of_its_closed_form(name, n, engine):
    anchor = ANCHORS[name]
    nbytes = anchor.nbytes(n)
    arguments = {"nbytes": nbytes, "topology": anchor.topology(n), "engine": engine, **anchor.options}

    if engine == "makespan" and not anchor.in_makespan:
        with pytest.raises(NotExactError):
            simulate(anchor.algorithm, **arguments)
        return
    run = simulate(anchor.algorithm, **arguments)

    assert (run.time_ps, run.engine) == (anchor.time_ps(n, nbytes), engine)


@pytest.mark.parametrize("n", [8, 64, 128])
def test_two_rings_at_once_share_every_link(n):
    first, second = simulate_jobs([ANCHORS["sw"].job(2**26)] * 2, topology=switch(n))

    assert first.time_ps == second.time_ps == two_rings_on_a_switch(n, 2**26)


@pytest.mark.parametrize("engine", ["makespan", "events"])
@pytest.mark.parametrize(("compute_ms", "nanoseconds"), [(5, 44_632_768), (2, 39_062_144)])
def test_a_training_step_takes_the_time_of_its_closed_form(compute_ms, nanoseconds, engine):
    profile = Profile.uniform(num_buckets=8, bucket_bytes=25 * MIB, seconds_per_bucket=compute_ms / 1000)

    run = simulate_step(profile, topology=switch(64), bucket_cap_mb=25, algorithm="ring", engine=engine)

    end = 0
    for bucket in range(1, 9):
        end = max(end, bucket * compute_ms * 10**9) + ring_on_a_switch(64, 25 * MIB)
    assert run.time_ps == end == nanoseconds * 1000


@pytest.mark.parametrize(
    ("name", "n", "nanoseconds"),
    [
        ("sw", 8, 150_379_855.4), ("sw", 64, 169_618_337.3), ("sw", 256, 173_167_603.2),
        ("sw", 1024, 179_814_919.7), ("sw", 4096, 204_516_748.8), ("H-hier", 64, 15_728_734.9),
        ("H-hier", 1024, 17_947_026.1), ("H-hier", 4096, 21_081_940.7),
    ],
)  # fmt: skip
def test_rings_without_contention_take_what_other_simulators_say(name, n, nanoseconds):
    anchor = ANCHORS[name]

    run = simulate(anchor.algorithm, nbytes=GIB, topology=anchor.topology(n), engine="makespan")

    assert round(run.time_ps / 1000, 1) == nanoseconds
    assert run.time_ps == anchor.time_ps(n, GIB)


@pytest.mark.parametrize(("n", "nbytes"), [(16_384, GIB), (1024, GIB + 7777), (4096, 10**9 + 7)])
def test_large_rings_and_sizes_that_do_not_divide_take_the_time_of_their_closed_form(n, nbytes):
    run = simulate("ring", nbytes=nbytes, topology=switch(n), engine="makespan")

    assert run.time_ps == ring_on_a_switch(n, nbytes)


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
    topology = flat(world_size, bandwidth, f"{latency_us}us")

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
        simulate(late_for_one, nbytes=2**20, topology=flat(32), engine="makespan")
    assert simulate(late_for_one, nbytes=2**20, topology=flat(32)).engine == "events"


def test_a_program_without_an_array_form_is_stacked():
    ring = resolve_algorithm("ring")

    def plain(rank, world_size):
        yield from ring(rank, world_size)

    run = simulate(plain, nbytes=1000, topology=flat(7))

    assert (run.engine, run.time_ps) == (
        "makespan",
        simulate("ring", nbytes=1000, topology=flat(7)).time_ps,
    )


def both_receive(rank: int, world_size: int):
    yield RecvReduce(1 - rank, 0)


@pytest.mark.parametrize("engine", ["auto", "events", "ranks"])
def test_a_deadlock_is_an_error_not_a_hang(engine):
    with pytest.raises(ProgramError, match="deadlock, 2 of 2 ranks wait"):
        simulate(both_receive, nbytes=8, topology=flat(2), engine=engine)


def test_a_prediction_below_the_floor_is_an_internal_error():
    with pytest.raises(BelowFloorError, match="please report"):
        check_floor(9, 10, "ring on nothing")


def test_bandwidths_are_those_of_nccl_tests():
    run = simulate("ring", nbytes=2**26, topology=flat(64))

    assert run.algbw == 2**26 / run.seconds
    assert run.busbw == run.algbw * 2 * 63 / 64
