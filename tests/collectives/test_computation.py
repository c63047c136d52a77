"""Computation in virtual time: explicit charges."""

import pytest

from collectives.virtual import compute, run_virtual
from collectives.virtual.computation import Charges
from sim.cluster import Cluster
from sim.conditions import Straggler
from sim.errors import RankError
from sim.topology import Topology
from sim.trace import Trace


def switch(num_ranks):
    return Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")


def test_a_script_can_say_itself_how_long_it_computes():
    trace = Trace()

    def work(rank):
        compute("1.5us")
        compute(1e-6, "loss")
        return Cluster.current().computed_ps

    run = run_virtual(work, switch(2), trace=trace, conditions=[Straggler(1, factor=3)])

    assert run.times_ps == tuple(run.results) == (2_500_000, 7_500_000)
    assert [(span.name, span.start_ps, span.end_ps) for span in trace.spans if span.rank == 1] == [
        ("compute", 0, 4_500_000),
        ("loss", 4_500_000, 7_500_000),
    ]


def test_outside_of_a_cluster_saying_how_long_something_takes_does_nothing():
    compute("1s")


def test_a_time_that_cannot_be_read_is_refused_with_an_example():
    with pytest.raises(RankError, match='expected a time such as "2us"'):
        run_virtual(lambda rank: compute("soon"), switch(1))


def test_charges_by_name_hold_for_the_run_only():
    def work(rank):
        Cluster.current().charge("forward")
        Cluster.current().charge("something else")

    assert run_virtual(work, switch(1), compute=Charges({"forward": 123})).times_ps == (123,)
