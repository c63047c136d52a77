"""Calls worked out at once take what they take with every message on one network."""

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import resolve_algorithm, simulate
from collectives.communicators.point_to_point import message
from collectives.execution.call import Call
from collectives.program.chunking import Chunking
from collectives.program.placement import on_nodes
from collectives.virtual.group_calls import timing
from collectives.virtual.group_calls.calls import GroupCalls
from collectives.virtual.group_calls.family import CallFacts
from sim import Straggler, Topology
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from tests.given import nodes

KINDS = {
    "all_reduce": ("ring", "halving_doubling", "tree", "double_binary_tree", "ring:channels=2"),
    "all_gather": ("ring", "direct", "bruck"), "reduce_scatter": ("ring", "pat"), "broadcast": ("tree",),
    "barrier": ("tree",), "all_to_all": ("direct",),
}  # fmt: skip


def network(kind, num_ranks):
    if kind == "switch":
        return Topology.switch(num_ranks=num_ranks, bandwidth="10GB/s", latency="1us")
    if kind == "ring":
        return Topology.ring(num_ranks=num_ranks, bandwidth="10GB/s", latency="1us")
    if kind == "ethernet":
        return Topology.switch(
            num_ranks=num_ranks,
            bandwidth="10GB/s",
            latency="1us",
            sharing={"one_way": [0.9, 0.8], "both_ways": [0.7, 0.6]},
        )
    return nodes(num_ranks // 4, 4, 2, nic_bandwidth="25GB/s")


class Partitions:
    """Groups made together: rows and columns of a mesh, and all ranks."""

    def __init__(self, num_ranks, width):
        ranks = range(num_ranks)
        self.groups = [
            [tuple(ranks[first : first + width]) for first in range(0, num_ranks, width)],
            [tuple(ranks[first::width]) for first in range(width)],
            [tuple(ranks)],
        ]

    def partition(self, hosts, ordinal):
        return next(groups for groups in self.groups if hosts in groups)


@st.composite
def programs(draw, num_ranks=8):
    """Draw calls: dimension of the mesh, kind, count, lane of the ranks; and when ranks come to it."""
    calls = []
    for _ in range(draw(st.integers(1, 6))):
        collective = draw(st.sampled_from([*KINDS, "message", "parts"]))
        calls.append(
            (
                draw(st.integers(0, 2)),
                collective,
                draw(st.sampled_from(KINDS.get(collective, ("",)))),
                draw(st.sampled_from((8, 100, 40_000, 1_000_000))),
                draw(st.integers(0, 1)),
                draw(st.sampled_from((0, 0, 0, 1_000_000, 37_000_003))),
                draw(st.sampled_from((0, 0, 1))),
            )
        )
    return calls


def facts_of(index, call, group, topology):
    _, collective, name, count, *_ = call
    size, lane, splits = len(group), None, None
    if collective == "message":
        lane = (0, size - 1, 0)
        program, chunking = message(0, size - 1), Chunking(count, 1, 4)
    elif collective == "parts":
        program, chunking = resolve_algorithm("direct", "all_to_all"), Chunking(1, 1, 4)
        splits = (tuple(count + 3 for _ in group),) * 2
    else:
        kind = "all_reduce" if collective == "barrier" else collective
        program = on_nodes(resolve_algorithm(name, kind), topology.ranks_per_node, group)
        chunking = Chunking.of(program, size, count * size, 4)
    return CallFacts(
        Call(index, collective, str(program), count, "float32", lane=lane), program, chunking, splits
    )


def times(topology, calls, width, at_once, overhead=None, conditions=()):
    """Return when each rank was through each call, what crossed each link, and what is to be said."""
    env = simpy.Environment(initial_time=0)
    scenario = Scenario.of(topology, conditions)
    shared = scenario.network(env)
    timed = GroupCalls(scenario, shared, {}, overhead, at_once=at_once)
    meshes = Partitions(topology.num_ranks, width)
    timed.siblings = meshes.partition
    ends = {}

    def lane_of_rank(rank, own):
        for index, call in own:
            dimension, collective, _, _, _, pause_ps, spread = call
            group = next(one for one in meshes.groups[dimension] if rank in one)
            if collective == "message" and (len(group) == 1 or rank not in (group[0], group[-1])):
                continue
            yield env.timeout(pause_ps + spread * rank * 1_234_567)
            done = env.event()

            def through(ranks, met_ps, done=done, index=index):
                for one in ranks:
                    ends[index, one] = int(env.now), met_ps
                done.succeed()

            handle = timed.call(group, (dimension, 0), facts_of(index, call, group, topology))
            handle.begin((rank,), through)
            yield done

    for rank in range(topology.num_ranks):
        for lane in (0, 1):
            own = [(index, call) for index, call in enumerate(calls) if call[4] == lane]
            env.process(lane_of_rank(rank, own))
    env.run()
    return ends, (shared.link_bytes + timed.link_bytes).tolist(), list(timed.notices())


@given(
    calls=programs(),
    kind=st.sampled_from(("switch", "ring", "nodes", "ethernet")),
    width=st.sampled_from((2, 4)),
    has_overhead=st.booleans(),
    has_straggler=st.booleans(),
)
@settings(max_examples=40)
def test_calls_take_what_they_take_message_by_message(calls, kind, width, has_overhead, has_straggler):
    topology = network(kind, 8)
    overhead = RankOverhead.of("300ns", "20GB/s") if has_overhead else None
    conditions = [Straggler(rank=3, factor=2)] if has_straggler else []

    found = times(topology, calls, width, True, overhead, conditions)

    assert found == times(topology, calls, width, False, overhead, conditions)


def test_a_call_that_is_large_is_timed_beside_another_as_if_alone_and_that_is_said(monkeypatch):
    monkeypatch.setattr(timing, "MAX_MESSAGES", 10)
    topology = network("switch", 8)
    apart = [(2, "all_gather", "ring", 40_000, lane, 0, 0) for lane in (0, 1)]

    ends, _, (notice,) = times(topology, apart, 4, at_once=True)
    alone, *_ = times(topology, apart[:1], 4, at_once=True)

    assert {ends[0, rank] for rank in range(8)} == {ends[1, rank] for rank in range(8)} == set(alone.values())
    assert "all_gather of 8 ranks beside all_gather of 8 ranks, 1×" in notice


@pytest.mark.parametrize(
    ("collective", "name"), [("all_reduce", "ring"), ("all_gather", "ring"), ("reduce_scatter", "pat")]
)
def test_a_call_takes_what_its_simulation_takes(collective, name):
    topology = network("switch", 8)

    ends, *_ = times(topology, [(2, collective, name, 1000, 0, 0, 0)], 4, at_once=True)

    expected = simulate(name, nbytes=8 * 4000, topology=topology, itemsize=4, collective=collective)
    assert max(end_ps for end_ps, _ in ends.values()) == expected.time_ps
    assert len(ends) == 8


def test_a_message_is_between_two_ranks_of_the_group():
    ends, *_ = times(network("switch", 8), [(2, "message", "", 1000, 0, 0, 1)], 4, at_once=True)

    end_ps = 7 * 1_234_567 + 2 * 1_000_000 + 4000 * 100
    assert ends == {(0, rank): (end_ps, 7 * 1_234_567) for rank in (0, 7)}  # when the later one came


def test_parts_of_any_size_are_exchanged_after_their_sizes():
    ends, *_ = times(network("switch", 2), [(2, "parts", "", 97, 0, 0, 0)], 2, at_once=True)

    latency_ps, sizes_ps, parts_ps = 2 * 1_000_000, 16 * 100, (97 + 3) * 4 * 100
    assert ends == {(0, rank): (2 * latency_ps + sizes_ps + parts_ps, 0) for rank in range(2)}
