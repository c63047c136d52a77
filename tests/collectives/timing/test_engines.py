"""One answer from all engines: all ranks at once, rows of arrays, and rank by rank, with ``==``."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeAlias

import pytest
import simpy
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from collectives import (
    Algorithm,
    NotExactError,
    NotSupportedError,
    Recv,
    RecvReduce,
    Reduce,
    Send,
    algorithm,
    resolve_algorithm,
)
from collectives.algorithms import ALGORITHMS
from collectives.execution.transport_model import IDEAL, TRANSPORT_MODELS, TransportModel
from collectives.program.channels import in_channels
from collectives.program.chunking import Chunking
from collectives.program.contracts import CONTRACTS
from collectives.program.placement import on_nodes
from collectives.timing import PlannedJob
from collectives.timing.queues import (
    CallSpan,
    collective_queue,
    goes_out_of_step,
    matches_by_rows,
    run_until,
    spans_out_of_step,
)
from sim import Background, Condition, Jitter, LinkChange, LinkFailedError, LinkFailure, Straggler, Topology
from sim.network.coflow import CoflowAccelerator
from sim.network.coflow.accelerator import MIN_MESSAGES
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.units import transfer_ps
from tests.collectives.timing.test_links import shifted
from tests.given import nodes, switch
from tests.sim.networks import sharing_networks


def spans(
    engine,
    topology: Topology | Scenario,
    algorithm: Algorithm,
    calls: list[int],
    *,
    gaps: Sequence[int] = (),
    hosts: Sequence[int] | None = None,
    rank_overhead: RankOverhead | None = None,
    transport_model: TransportModel = IDEAL,
    min_messages: int | None = MIN_MESSAGES,
) -> list[CallSpan]:
    """Return the spans of *calls*, each of which is submitted when its gap is over, or at once.

    Coflows of at least *min_messages* are accelerated; None: none are.
    """
    scenario = topology if isinstance(topology, Scenario) else Scenario.of(topology)
    env = simpy.Environment(initial_time=0)
    network = scenario.network(env, accelerated=False)
    if min_messages is not None:
        network.accelerator = CoflowAccelerator(network, min_messages)
    places = range(scenario.base.num_ranks) if hosts is None else hosts
    bound = on_nodes(algorithm, scenario.topology.ranks_per_node, places)
    queue = collective_queue(
        env,
        scenario.topology,
        engine=engine,
        hosts=hosts,
        rank_overhead=rank_overhead,
        transport_model=transport_model,
        network=network,
    )
    submitted = []

    def submit():
        for nbytes, gap_ps in zip_longest(calls, gaps, fillvalue=0):
            yield env.timeout(gap_ps)
            submitted.append(queue.submit(bound, nbytes))
        yield env.all_of(submitted)

    run_until(env, env.process(submit()))
    return [event.value for event in submitted]


Case: TypeAlias = tuple[Scenario, Algorithm, list[int], dict[str, Any]]
"""Where, what, of how many bytes, and the options of `spans`."""

MODELS = (*TRANSPORT_MODELS.values(), TransportModel("late, on arrival", late_sends=True, reduces="arriving"))


@st.composite
def conditions(draw: st.DrawFn, topology: Topology, *, events_only: bool) -> list[Condition]:
    ranks, times = st.integers(0, topology.num_ranks - 1), st.integers(0, 10**8).map("{}ps".format)
    few = draw(st.sets(ranks, max_size=2))
    drawn = [Straggler(rank, draw(st.just(1) | st.fractions(1, 5)), draw(times)) for rank in sorted(few)]
    if draw(st.booleans()):
        mean = draw(st.sampled_from(["1us", "10ns"]))
        drawn.append(Jitter(mean, draw(st.sampled_from(["uniform", "exponential"])), draw(st.integers(0, 9))))
    if events_only and topology.num_links:
        links = st.sets(st.integers(0, topology.num_links - 1), max_size=2)
        drawn += [LinkChange(link, draw(times), draw(st.fractions("1/9", 4))) for link in draw(links)]
        drawn += [LinkFailure(link, draw(times), reroute=draw(st.booleans())) for link in draw(links)]
        for source, destination in draw(st.lists(st.tuples(ranks, ranks), max_size=2)):
            if source != destination:
                drawn.append(Background(source, destination, draw(st.integers(1, 10**12)), start=draw(times)))
    return drawn


@st.composite
def cases(draw: st.DrawFn, *, events_only: bool = False) -> Case:
    topology = draw(sharing_networks(max_ranks=20))
    places = draw(st.permutations(range(topology.num_ranks)))
    hosts = places[: draw(st.integers(1, len(places)))] if draw(st.booleans()) else sorted(places)
    chosen = draw(st.sampled_from(ALGORITHMS))
    if draw(st.booleans()):
        chosen = in_channels(chosen, draw(st.integers(2, 3)))
    sizes = st.integers(0, 10**6)
    calls = draw(st.lists(sizes, min_size=1, max_size=2))
    if CONTRACTS[chosen.collective].equal_parts:
        calls = [nbytes - nbytes % len(hosts) for nbytes in calls]
    scenario = Scenario.of(topology, draw(conditions(topology, events_only=events_only)))
    rank_overhead = RankOverhead.of(
        draw(st.sampled_from([0, "1us"])),
        draw(st.sampled_from([None, 10**9, "100GB/s"])),
        arrival_overhead=draw(st.sampled_from([0, 0, "7ns", "2us"])),
        step_overhead=draw(st.sampled_from([0, "9us"])),
        posting=draw(st.sampled_from([0, "11ns", "1us"])),
    )
    gaps = [draw(st.integers(0, 10**8)) for _ in calls]
    return scenario, chosen, calls, {
        "gaps": gaps, "hosts": hosts, "rank_overhead": scenario.rank_overhead(rank_overhead, hosts),
        "transport_model": draw(st.sampled_from(MODELS)),
    }  # fmt: skip


@given(cases())
def test_all_engines_agree_to_the_picosecond(case):
    scenario, chosen, calls, options = case
    try:
        expected = spans("ranks", scenario, chosen, calls, **options)
    except NotSupportedError:
        reject()

    for min_messages in (2, None):
        assert spans("events", scenario, chosen, calls, min_messages=min_messages, **options) == expected
    try:
        makespan = spans("makespan", scenario, chosen, calls, **options)
    except NotExactError:
        return
    assert makespan == expected


def spans_together(jobs: Sequence[PlannedJob]) -> list[CallSpan]:
    """Return the spans of *jobs* on one network, rank by rank."""
    env, scenario = simpy.Environment(initial_time=0), jobs[0].scenario
    network = scenario.network(env, accelerated=False)

    def started(job):
        yield env.timeout(job.start_ps)
        queue = collective_queue(
            env,
            scenario.topology,
            engine="ranks",
            hosts=job.hosts,
            rank_overhead=job.rank_overhead,
            network=network,
        )
        return (yield queue.submit(job.algorithm, job.nbytes))

    running = [env.process(started(job)) for job in jobs]
    run_until(env, env.all_of(running))
    return [process.value for process in running]


@given(cases(), st.data())
def test_messages_that_are_numbers_take_what_messages_that_are_events_do(case, data):
    """Whether one collective has the network to itself, or several share it."""
    scenario, _, _, options = case
    overhead = replace(options["rank_overhead"], arrival_overhead_ps=0)
    jobs = []
    for _ in range(data.draw(st.integers(1, 3))):
        hosts = data.draw(st.permutations(options["hosts"]))[: data.draw(st.integers(1, 20))]
        chosen = on_nodes(data.draw(st.sampled_from(ALGORITHMS)), scenario.topology.ranks_per_node, hosts)
        nbytes = data.draw(st.integers(0, 10**5)) * len(hosts)
        start_ps = data.draw(st.integers(0, 10**7))
        slow = scenario.rank_overhead(overhead, hosts)
        jobs.append(PlannedJob(chosen, nbytes, 1, tuple(hosts), slow, start_ps, scenario))
    assume(all(map(goes_out_of_step, jobs)))

    assert spans_out_of_step(jobs) == spans_together(jobs)


@given(cases(events_only=True))
def test_rows_and_ranks_agree_whatever_happens_to_links(case):
    scenario, chosen, calls, options = case

    def outcome(engine, min_messages=None):
        try:
            return spans(engine, scenario, chosen, calls, min_messages=min_messages, **options)
        except LinkFailedError as error:
            return error.links, error.time_ps, sorted(what for what, _ in error.lost)

    try:
        expected = outcome("ranks")
    except NotSupportedError:
        reject()
    for min_messages in (2, None):
        assert outcome("events", min_messages) == expected


@st.composite
def programs(draw: st.DrawFn, num_ranks: int) -> Algorithm:
    """Draw a program whose sends and receives match row by row; what it computes is of no use."""
    chunks, ranks = st.integers(0, 3), st.integers(0, num_ranks - 1)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        steps = {rank: [] for rank in range(num_ranks)}
        for source, destination in sorted(draw(st.sets(st.tuples(ranks, ranks), max_size=2 * num_ranks))):
            if source != destination:
                steps[source].append(Send(destination, chunk := draw(chunks)))
                receive = draw(st.sampled_from([Recv, RecvReduce]))
                written = {own.chunk for own in steps[destination] if not isinstance(own, Send)}
                steps[destination].append((RecvReduce if chunk in written else receive)(source, chunk))
        for rank in draw(st.sets(ranks, max_size=2)):
            steps[rank].append(Reduce(draw(chunks), draw(chunks)))
        rows.append(steps)

    def program(rank, world_size):
        yield from (tuple(steps[rank]) for steps in rows)

    return algorithm(name="drawn", num_chunks=4)(program)


@given(st.data(), st.sampled_from(MODELS), sharing_networks(max_ranks=6), st.integers(1, 10**5))
def test_all_engines_agree_on_programs_that_nobody_would_write(data, model, topology, nbytes):
    drawn = data.draw(programs(topology.num_ranks))
    rank_overhead = RankOverhead.of(
        data.draw(st.sampled_from([0, "1us"])),
        data.draw(st.sampled_from([None, 10**9])),
        arrival_overhead=data.draw(st.sampled_from([0, "2us"])),
        step_overhead=data.draw(st.sampled_from([0, "9us"])),
    )
    options = {"rank_overhead": rank_overhead, "transport_model": model}
    expected = spans("ranks", topology, drawn, [nbytes, nbytes], **options)

    assert spans("events", topology, drawn, [nbytes, nbytes], min_messages=2, **options) == expected
    with contextlib.suppress(NotExactError):
        assert spans("makespan", topology, drawn, [nbytes, nbytes], **options) == expected


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
def test_overhead_and_reduction_add_to_a_ring_what_they_say(engine):
    rank_overhead = RankOverhead.of(overhead="1us", reduction_bandwidth="10GB/s", step_overhead="9us")

    (span,) = spans(engine, switch(16), resolve_algorithm("ring"), [16 * 10**6], rank_overhead=rank_overhead)

    step = 9_000_000 + 2 * 1_000_000 + 4_000_000 + transfer_ps(10**6, 12_500_000_000)
    assert span.end_ps == 30 * step + 15 * transfer_ps(10**6, 10**10)


@pytest.mark.parametrize("engine", ["makespan", "events", "ranks"])
def test_a_rank_posts_the_messages_that_leave_its_node_one_after_another(engine):
    network, exchange = nodes(3, ranks_per_node=4), resolve_algorithm("direct", "all_to_all")
    scenario = Scenario.of(network, ())
    posting = scenario.rank_overhead(RankOverhead.of(posting="1us"), range(12))

    (without,) = spans(engine, network, exchange, [12 * 10**6])
    (span,) = spans(engine, network, exchange, [12 * 10**6], rank_overhead=posting)

    assert span.end_ps - without.end_ps == 8 * 1_000_000


@algorithm(name="reduces_alone", num_chunks=1, scratch_chunks=1)
def reduces_alone(rank: int, world_size: int) -> Any:
    yield (Reduce(1, 0),)


@algorithm(name="long_wait")
def long_wait(rank: int, world_size: int) -> Any:
    """Let two ranks exchange for more steps than calls can be nested, and a third come at the end."""
    for _ in range(1200):
        yield (Send(1 - rank, 0), RecvReduce(1 - rank, 0)) if rank < 2 else ()
    if rank:
        yield Send(3 - rank, 1), RecvReduce(3 - rank, 1)


def test_a_rank_that_waits_through_a_thousand_steps_is_carried_there():
    (span,) = spans("events", switch(3), long_wait, [3])

    assert span.end_ps == 1201 * (4_000_000 + transfer_ps(1, 12_500_000_000))


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    late = [RankOverhead(jitter=Jitter("1us", seed=seed)) for seed in (1, 1, 2)]

    first, again, other = (
        spans("makespan", switch(8), resolve_algorithm("ring"), [4096], rank_overhead=own) for own in late
    )

    assert first == again != other


TREE = Topology.leaf_spine(num_ranks=6, hosts_per_leaf=3, bandwidth=2, uplink_bandwidth=1, latency="0s")
SLOW, ONE_SHOT = Topology.switch(num_ranks=16, bandwidth=1, latency=0), resolve_algorithm("one_shot")


@pytest.mark.parametrize(
    ("topology", "chosen", "nbytes", "refused"),
    [
        pytest.param(switch(2), shifted, 1000, "do not match step by step", id="sides in other rows"),
        pytest.param(
            TREE, resolve_algorithm("swing", "reduce_scatter"), 6, "meets one of an earlier step",
            id="set out together and end apart",
        ),
        pytest.param(SLOW, ONE_SHOT, 614_892, None, id="sums that fit into no array"),
        pytest.param(SLOW, ONE_SHOT, 2**60, "too", id="times that fit into no array"),
    ],
)  # fmt: skip
def test_what_does_not_go_by_rows_goes_message_by_message(topology, chosen, nbytes, refused):
    assert spans("events", topology, chosen, [nbytes]) == spans("ranks", topology, chosen, [nbytes])
    if refused is not None:
        with pytest.raises(NotExactError, match=refused):
            spans("makespan", topology, chosen, [nbytes])


def test_sends_and_receives_in_other_rows_do_not_match():
    assert not matches_by_rows(shifted, 2, Chunking(10, 2))
    assert matches_by_rows(resolve_algorithm("ring"), 5, Chunking(12, 5))
