"""Clusters of tests: a switch, and what ranks on it do."""

import threading

import simpy

from sim.cluster import Cluster, RankThread
from sim.topology import Topology


def make_cluster(num_ranks: int, **options) -> Cluster:
    topology = Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")
    return Cluster(topology, **options)


def this_rank() -> RankThread:
    rank = Cluster.current()
    assert rank is not None
    return rank


def after(rank: RankThread, delay_ps: int, value: object = None) -> simpy.Process:
    """Return a process of *rank* that fires *delay_ps* after the rank's local time."""

    def pause():
        yield rank.cluster.env.timeout(delay_ps)
        return value

    return rank.spawn(pause())


def fails(rank: RankThread, delay_ps: int) -> simpy.Process:
    """Return a process of *rank* that fails *delay_ps* after the rank's local time."""

    def fail():
        yield rank.cluster.env.timeout(delay_ps)
        raise OSError("the link is down")

    return rank.spawn(fail())


def rank_threads() -> list[str]:
    """Return the names of the threads of ranks that are still there."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]
