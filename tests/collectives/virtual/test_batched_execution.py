"""Collectives of rank threads carried out for all at once are what they are rank by rank."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError, algorithm_names, resolve_algorithm
from collectives.virtual import batched_execution, run_virtual
from sim import Cluster, Jitter, Straggler, Topology
from tests.given import nodes


def network(kind, num_ranks):
    if kind == "ring":
        return Topology.ring(num_ranks=num_ranks, bandwidth="10GB/s", latency="1us")
    return nodes(-(-num_ranks // 2), 2, nic_bandwidth="25GB/s", num_ranks=num_ranks)


def both_ways(work, topology, **options):
    """Return results and times carried out jointly, and rank by rank."""
    found = []
    for least in (batched_execution.MIN_RANKS, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batched_execution, "MIN_RANKS", least)
            run = run_virtual(work, topology, **options)
        found.append((run.results, run.times_ps, run.cluster.network.link_bytes.tolist()))
    return found


def supported(num_ranks):
    names = []
    for name in algorithm_names("all_reduce"):
        try:
            list(resolve_algorithm(name).steps(0, num_ranks))
        except NotSupportedError:
            continue
        names.append(name)
    return names


def after(call, output):
    call(output)
    return output


def overlapping(tensor, num_ranks):
    other = tensor.clone()
    works = [dist.all_reduce(each, async_op=True) for each in (tensor, other)]
    for work in works:
        work.wait()
    return torch.cat([tensor, other])


def in_halves(tensor, num_ranks):
    groups = [dist.new_group(list(range(first, num_ranks, 2))) for first in (0, 1)]
    dist.all_reduce(tensor, group=groups[dist.get_rank() % 2])
    return tensor


def in_parts(tensor, num_ranks):
    """Return what ranks reduce of tensors as long as those of all, whose elements differ."""
    return tensor.repeat(num_ranks) * torch.arange(num_ranks * tensor.numel())


CALLS = {
    "all_reduce": lambda tensor, p: after(dist.all_reduce, tensor),
    "maximum": lambda tensor, p: after(lambda out: dist.all_reduce(out, dist.ReduceOp.MAX), tensor),
    "mean": lambda tensor, p: after(lambda out: dist.all_reduce(out, dist.ReduceOp.AVG), tensor.bfloat16()),
    "all_gather": lambda tensor, p: after(
        lambda out: dist.all_gather_single(out, tensor), torch.empty(p * tensor.numel())
    ),
    "reduce_scatter": lambda tensor, p: after(
        lambda out: dist.reduce_scatter_single(out, in_parts(tensor, p)), torch.empty_like(tensor)
    ),
    "all_to_all": lambda tensor, p: after(
        lambda out: dist.all_to_all_single(out, tensor.repeat(p)), torch.empty(p * tensor.numel())
    ),
    "overlapping": overlapping,
    "in halves": in_halves,
}


@pytest.mark.costly
@given(data=st.data())
@settings(max_examples=40)
def test_results_are_equal_to_the_bit_and_times_to_the_picosecond(data):
    num_ranks = data.draw(st.integers(3, 6))
    algorithm = data.draw(st.sampled_from(supported(num_ranks)))
    numel, calls = (
        data.draw(st.integers(0, 40)),
        data.draw(st.lists(st.sampled_from(list(CALLS)), min_size=1, max_size=4)),
    )
    late = data.draw(st.lists(st.integers(0, 10**7), min_size=num_ranks, max_size=num_ranks))
    kind = data.draw(st.sampled_from(["ring", "nodes"]))
    conditions = data.draw(st.sampled_from([(), (Straggler(1, factor=2),), (Jitter("1us", seed=3),)]))

    def work(rank):
        dist.init_process_group()
        torch.manual_seed(rank)
        results = []
        for call in calls:
            Cluster.current().charge_ps(late[rank])
            results.append((CALLS[call](torch.randn(numel), num_ranks), Cluster.current().now_ps()))
        return [(tensor.tolist(), time_ps) for tensor, time_ps in results]

    topology = network(kind, num_ranks)
    jointly, by_rank = both_ways(work, topology, algorithm=algorithm, conditions=conditions)

    assert jointly == by_rank


def test_what_is_joint_is_told_from_what_is_not(monkeypatch):
    joined = []
    begin = batched_execution.BatchedExecution.join
    monkeypatch.setattr(
        batched_execution.BatchedExecution,
        "join",
        lambda self, *args: joined.append(args[0]) or begin(self, *args),
    )

    def work(rank):
        dist.init_process_group()
        for call in ("all_reduce", "all_gather"):
            CALLS[call](torch.ones(4), 4)
        dist.broadcast(torch.ones(4), 0)

    run_virtual(work, network("ring", 4))
    assert sorted(joined) == sorted([*range(4)] * 2)
