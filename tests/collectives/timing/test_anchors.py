"""Collectives whose time is known in closed form (`benchmarks.anchors`), in both engines, with ``==``."""

import pytest

from benchmarks.anchors import ANCHORS, GIB, MIB, NIC, ring_on_a_switch, step, switch, two_rings_on_a_switch
from collectives import NotExactError, simulate, simulate_jobs
from ddp import Profile, simulate_step
from sim import transfer_times

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


@pytest.mark.parametrize("n", [2, 64, 256])
def test_messages_to_one_rank_share_its_link(n):
    arrivals = transfer_times([(rank, 0, MIB, 0) for rank in range(1, n)], topology=switch(n))

    assert arrivals == [step(4000, (n - 1) * MIB, NIC) / 1e12] * (n - 1)


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
