from __future__ import annotations

from typing import Any

import pytest
import simpy
from hypothesis import given, reject
from hypothesis import strategies as st

from collectives import (
    Copy,
    NotExactError,
    NotSupportedError,
    ProgramError,
    RecvReduce,
    resolve_algorithm,
    simulate,
)
from collectives.algorithms import ALGORITHMS
from collectives.program.contracts import CONTRACTS
from collectives.timing.floor import BelowFloorError, check_floor
from collectives.timing.queues import collective_queue, run_until
from sim import Topology
from tests.given import switch
from tests.sim.networks import networks


@given(
    topology=networks(max_ranks=9),
    algorithm=st.sampled_from(ALGORITHMS),
    count=st.integers(0, 10**6),
    itemsize=st.sampled_from([1, 4]),
)
def test_both_engines_agree_to_the_picosecond_and_stay_above_the_floor(
    topology: Topology, algorithm: Any, count: int, itemsize: int
) -> None:
    try:
        if CONTRACTS[algorithm.collective].equal_parts:
            count -= count % algorithm.num_chunks(topology.num_ranks)
        arguments: Any = {"nbytes": count * itemsize, "itemsize": itemsize, "topology": topology}
        events = simulate(algorithm, engine="events", **arguments)
    except NotSupportedError:
        reject()
    either = simulate(algorithm, engine="auto", **arguments)

    assert either.time_ps == events.time_ps
    assert events.floor_seconds <= events.seconds


@given(
    world_size=st.integers(2, 12),
    chunk=st.integers(1, 10**6),
    bandwidth=st.integers(100, 10**12),  # so that every time fits into 63 bits of picoseconds
    latency_us=st.integers(0, 50),
    engine=st.sampled_from(["makespan", "events", "ranks"]),
)
def test_a_ring_on_a_switch_takes_exactly_its_closed_form(
    world_size: int, chunk: int, bandwidth: int, latency_us: int, engine: Any
) -> None:
    topology = Topology.switch(num_ranks=world_size, bandwidth=bandwidth, latency=f"{latency_us}us")

    run = simulate("ring", nbytes=chunk * world_size, topology=topology, engine=engine)

    transfer_ps = -(-chunk * 10**12 // bandwidth)
    assert run.time_ps == 2 * (world_size - 1) * (2 * latency_us * 10**6 + transfer_ps)
    assert run.engine == engine


@pytest.mark.parametrize("rails", [1, 4])
def test_a_cluster_that_is_not_oversubscribed_is_as_fast_as_one_ideal_switch(rails: int) -> None:
    shape: Any = {"ranks_per_node": 4, "nics_per_node": 4, "num_ranks": 32}
    shape |= {"intra_bandwidth": "450GB/s", "nic_bandwidth": "400Gbps"}
    shape |= {"intra_latency": "300ns", "nic_latency": "1350ns"}
    ideal = Topology.nodes(num_nodes=8, **shape)
    cluster = Topology.cluster(nodes_per_leaf=2, rails=rails, uplink_latency=0, pxn=False, **shape)

    for algorithm in ALGORITHMS:
        on_ideal, on_cluster = (
            simulate(algorithm, nbytes=2**20, topology=own).time_ps for own in (ideal, cluster)
        )
        assert on_cluster == on_ideal, algorithm


def test_messages_that_meet_one_after_another_are_refused_by_makespan_and_left_to_events() -> None:
    late_for_one = "double_binary_tree:segments=4"

    with pytest.raises(NotExactError, match="engine='events'"):
        simulate(late_for_one, nbytes=2**20, topology=switch(32), engine="makespan")
    assert simulate(late_for_one, nbytes=2**20, topology=switch(32)).engine == "events"


def test_a_program_without_an_array_form_is_stacked() -> None:
    ring = resolve_algorithm("ring")

    def plain(rank: int, world_size: int) -> Any:
        yield from ring(rank, world_size)

    run = simulate(plain, nbytes=1000, topology=switch(7))

    assert (run.engine, run.time_ps) == (
        "makespan",
        simulate("ring", nbytes=1000, topology=switch(7)).time_ps,
    )


@given(
    sizes=st.lists(st.integers(0, 10**5), min_size=1, max_size=5),
    gaps=st.lists(st.integers(0, 10**8), min_size=5, max_size=5),
    name=st.sampled_from(["naive", "ring", "tree"]),
    num_ranks=st.integers(1, 6),
)
def test_a_queue_runs_one_collective_after_another_alike_in_all_engines(
    sizes: list[int], gaps: list[int], name: str, num_ranks: int
) -> None:
    def spans(engine: Any) -> list[Any]:
        env = simpy.Environment(initial_time=0)
        queue = collective_queue(env, switch(num_ranks), engine=engine)
        submitted = []

        def submit() -> Any:
            for nbytes, gap in zip(sizes, gaps, strict=False):
                yield env.timeout(gap)
                submitted.append(queue.submit(resolve_algorithm(name), nbytes))
            yield env.all_of(submitted)

        run_until(env, env.process(submit()))
        return [event.value for event in submitted]

    makespan = spans("makespan")

    assert makespan == spans("events") == spans("ranks")
    assert [span.end_ps for span in makespan] == sorted(span.end_ps for span in makespan)


def both_receive(rank: int, world_size: int) -> Any:
    yield RecvReduce(1 - rank, 0)


@pytest.mark.parametrize("engine", ["auto", "events", "ranks"])
def test_a_deadlock_is_an_error_not_a_hang(engine: Any) -> None:
    with pytest.raises(ProgramError, match="deadlock, 2 of 2 ranks wait"):
        simulate(both_receive, nbytes=8, topology=switch(2), engine=engine)


def test_times_that_do_not_fit_into_an_array_are_left_to_events() -> None:
    run = simulate("ring", nbytes=9 * 576_461, topology=switch(9, bandwidth="8bps"))

    assert run.engine == "events"
    assert run.time_ps == 16 * (4_000_000 + 576_461 * 10**12)


def test_a_prediction_below_the_floor_is_an_internal_error() -> None:
    with pytest.raises(BelowFloorError, match="please report"):
        check_floor(9, 10, "ring on nothing")


@pytest.mark.parametrize(("nbytes", "itemsize"), [(-1, 1), (10, 4), (8, 0)])
def test_impossible_sizes_are_refused(nbytes: int, itemsize: int) -> None:
    with pytest.raises(ValueError, match="nbytes must be a multiple of itemsize"):
        simulate("ring", nbytes=nbytes, topology=switch(2), itemsize=itemsize)


def test_bandwidths_are_those_of_nccl_tests() -> None:
    run = simulate("ring", nbytes=2**26, topology=switch(64))

    assert run.algbw == 2**26 / run.seconds
    assert run.busbw == run.algbw * 2 * 63 / 64


def test_an_unknown_engine_is_refused() -> None:
    unknown: Any = "packets"
    with pytest.raises(ValueError, match="engine must be"):
        simulate("ring", nbytes=8, topology=switch(2), engine=unknown)


def pauses(rank: int, world_size: int) -> Any:
    yield ()
    yield Copy(0, 0)
    yield from resolve_algorithm("ring")(rank, world_size)


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
def test_steps_without_messages_take_no_time(engine: Any) -> None:
    run = simulate(pauses, nbytes=1000, topology=switch(5), engine=engine)

    assert run.time_ps == simulate("ring", nbytes=1000, topology=switch(5)).time_ps
