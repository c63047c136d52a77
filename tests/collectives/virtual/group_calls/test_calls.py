"""Calls timed by sizes alone take what the simulator says of them, whoever stands for the ranks."""

import simpy

from collectives.catalogue.resolve import resolve_algorithm
from collectives.communicators.point_to_point import message
from collectives.execution.call import Call
from collectives.program.chunking import Chunking
from collectives.timing import simulate
from collectives.virtual.group_calls.calls import GroupCalls
from collectives.virtual.group_calls.facts import CallFacts
from sim.scenario import Scenario
from tests.given import switch


def facts(collective, algorithm, count, num_ranks, sequence=0, lane=None, splits=None):
    program = message(*lane[:2]) if lane else resolve_algorithm(algorithm, collective)
    call = Call(sequence, collective, str(program), count, "float32", lane=lane)
    chunking = Chunking(count, 1, 4) if lane else Chunking.of(program, num_ranks, count, 4)
    return CallFacts(call, program, chunking, splits)


class Calls:
    """The calls of a run on *topology*, and when each rank got through which."""

    def __init__(self, topology):
        self.env = simpy.Environment(initial_time=0)
        scenario = Scenario.of(topology)
        self.calls = GroupCalls(scenario, scenario.network(self.env), {})
        self.ends = {}

    def begin(self, hosts, own, ranks, at_ps=0, ordinal=(0, 0), name=""):
        """Let *ranks* come to a call of the group of *hosts* at a time."""
        handle = self.calls.call(hosts, ordinal, own)

        def through(those):
            for rank in those:
                assert (name, rank) not in self.ends
                self.ends[name, rank] = int(self.env.now)

        self.env.timeout(at_ps).callbacks.append(lambda _: handle.begin(ranks, through))

    def run(self):
        self.env.run()
        return self.ends


def test_a_call_takes_what_its_simulation_takes():
    for collective in ("all_reduce", "all_gather", "reduce_scatter"):
        calls = Calls(switch(4))
        calls.begin((0, 1, 2, 3), facts(collective, "ring", 1000, 4), (0, 1, 2, 3))

        ends = calls.run()

        expected = simulate("ring", nbytes=4000, topology=switch(4), itemsize=4, collective=collective)
        assert max(ends.values()) == expected.time_ps
        assert len(ends) == 4


def test_a_rank_stands_for_those_of_sibling_groups():
    class Pairs:
        def partition(self, hosts, ordinal):
            return ((0, 2), (1, 3))

    calls = Calls(switch(4))
    calls.calls.siblings = Pairs()
    own = facts("all_reduce", "ring", 1000, 2)
    calls.begin((0, 2), own, (0, 1))
    calls.begin((0, 2), own, (2, 3), at_ps=5000)

    ends = calls.run()

    expected = simulate("ring", nbytes=4000, topology=switch(4), itemsize=4, placement=(0, 2)).time_ps
    assert ends == {("", rank): 5000 + expected for rank in range(4)}


def test_a_message_is_between_two_ranks_of_the_group():
    calls = Calls(switch(4))
    own = facts("message", "", 1000, 4, lane=(3, 1, 0))
    calls.begin((0, 1, 2, 3), own, (3,))
    calls.begin((0, 1, 2, 3), own, (1,), at_ps=7000)

    ends = calls.run()

    assert ends == {("", 3): 7000 + 4_320_000, ("", 1): 7000 + 4_320_000}


def test_parts_of_any_size_are_exchanged_after_their_sizes():
    calls = Calls(switch(2))
    sizes = {0: ((5, 7), (5, 1000)), 1: ((1000, 2), (7, 2))}
    for rank, splits in sizes.items():
        own = facts("all_to_all", "direct", 1, 2, splits=splits)
        calls.begin((0, 1), own, (rank,))

    ends = calls.run()

    sizes_ps, latency_ps = 1280, 4_000_000
    assert ends == {("", rank): sizes_ps + 320_000 + 2 * latency_ps for rank in range(2)}


def test_who_waits_for_whom_is_known():
    calls = Calls(switch(4))
    calls.begin((0, 1, 2), facts("all_reduce", "ring", 1000, 3), (0, 1))

    calls.run()
    calls.calls.note_waiting()

    assert calls.calls.meeting_point((0, 1, 2), (0, 0)).waiting.keys() == {0, 1}
