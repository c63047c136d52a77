"""Schedules whose length is known by hand: loops of kernels, and gradients that are reduced beside them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.virtual.streams import Gpu
from collectives.virtual.streams.account import Cause, Played
from sim import Cluster, Device, load_network
from sim.units import SECOND
from tests.collectives.virtual.clusters import rank_thread
from tests.collectives.virtual.streams.calls import AtTimes


def played(num_ranks: int, body, host_ps: int = 0) -> list[Played]:
    """Return what is played on GPUs of *num_ranks* on which ``body(gpu, rank, meeting)`` runs."""
    cluster = Cluster(load_network("switch-100g").topology(num_ranks))
    meetings = {}

    def meeting(key, duration_ps):
        delays = dict.fromkeys(range(num_ranks), duration_ps)
        return meetings.setdefault(key, AtTimes(cluster.env, delays))

    def of_rank(rank):
        gpu = Gpu(rank_thread(), Device("gpu", {}, SECOND, kind="gpu", host_overhead_ps=host_ps))
        body(gpu, rank, meeting)
        return gpu.finish()

    return cluster.run(of_rank)


@pytest.mark.parametrize(
    ("kernel", "end", "idle"),
    [(10, 4 + 100 * 10, 4), (3, 100 * 4 + 3, 4 + 99 * 1)],
    ids=["bound by the device", "bound by the host"],
)
def test_a_loop_is_bound_by_the_longer_of_kernel_and_launch(kernel, end, idle):
    def body(gpu, rank, meeting):
        for _ in range(100):
            gpu.launch("mm", kernel)

    (own,) = played(1, body, host_ps=4)

    assert (own.end_ps, own.busy_ps, own.host_idle_ps) == (end, 100 * kernel, idle)


def test_a_call_runs_beside_computation_and_its_rest_is_exposed():
    def body(gpu, rank, meeting):
        gpu.launch("first", 10)
        event = gpu.call("lane", meeting("call", 50), "all_reduce", "world")
        gpu.launch("second", 20)
        event.wait()
        gpu.launch("third", 10)

    for own in played(2, body, host_ps=1):
        assert (own.end_ps, own.busy_ps) == (1 + 10 + 50 + 10, 40)
        assert own.exposed == {Cause("all_reduce", "world"): 30}


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 100), st.lists(st.tuples(st.integers(1, 50), st.integers(1, 80)), min_size=1, max_size=6)
)
def test_buckets_are_reduced_one_after_another_beside_the_backward_pass(forward, buckets):
    def body(gpu, rank, meeting):
        gpu.launch("forward", forward)
        reduced = []
        for number, (gradients, reduction) in enumerate(buckets):
            gpu.launch("backward", gradients)
            reduced.append(gpu.call("group", meeting(number, reduction), "all_reduce", "world"))
        for event in reduced:
            event.wait()
        gpu.launch("optimizer", 7)

    computed = communicated = forward
    for gradients, reduction in buckets:
        computed += gradients
        communicated = max(communicated, computed) + reduction
    assert [own.end_ps for own in played(2, body)] == [max(computed, communicated) + 7] * 2
