"""The backend as torch sees it: what its functions and its own DDP do on rank threads."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.errors import NotSupportedError
from collectives.torch_backend import TestbedOptions
from collectives.virtual import run_virtual
from sim.cluster import Cluster
from sim.errors import RankError
from sim.topology import Topology

# New in torch 2.13.
ALL_GATHER_SINGLE = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER_SINGLE = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def on_ranks(num_ranks, work, **options):
    """Run *work* on every rank, inside a process group."""

    def run(rank):
        dist.init_process_group("testbed")
        try:
            return work(rank)
        finally:
            dist.destroy_process_group()

    topology = Topology.switch(num_ranks=num_ranks, bandwidth="100Gbps", latency="2us")
    return run_virtual(run, topology, **options)


@pytest.mark.costly
def test_torchs_entry_point_makes_the_backend_known_and_loads_nothing_slow():
    check = """
import sys, torch
before = set(sys.modules)
from _collective_testbed_entry import register_backend
register_backend()
register_backend()
assert torch.distributed.Backend.backend_list.count("testbed") == 1
loaded = {name.partition(".")[0] for name in sys.modules.keys() - before}
assert loaded == {"_collective_testbed_entry"}, loaded
"""
    environment = {
        **os.environ,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", check], check=True, env=environment)


def test_registering_never_raises(monkeypatch):
    from _collective_testbed_entry import register_backend

    monkeypatch.setitem(sys.modules, "torch.distributed", None)

    register_backend()


OPERATIONS = {
    "SUM": lambda rows: rows.sum(0),
    "PRODUCT": lambda rows: rows.prod(0),
    "MIN": lambda rows: rows.amin(0),
    "MAX": lambda rows: rows.amax(0),
    "BAND": lambda rows: rows[0] & rows[1] & rows[2],
    "BXOR": lambda rows: rows[0] ^ rows[1] ^ rows[2],
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(numel=st.integers(0, 20))
@settings(max_examples=5)
def test_all_reduce_reduces_by_every_operation(name, numel):
    rows = torch.randint(1, 9, (3, numel), generator=torch.Generator().manual_seed(numel))

    def work(rank):
        tensor = rows[rank].clone()
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        return tensor

    for result in on_ranks(3, work).results:
        assert torch.equal(result, OPERATIONS[name](rows))


def test_an_average_is_a_sum_over_the_number_of_ranks():
    def work(rank):
        tensor = torch.tensor([rank * 4.0])
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        return tensor.item()

    assert on_ranks(4, work).results == [6.0] * 4


@pytest.mark.parametrize("factor", [0.5, torch.tensor([0.5])])
def test_a_sum_of_scaled_parts_scales_what_each_rank_gives(factor):
    def work(rank):
        scaled = dist._make_nccl_premul_sum(factor)
        whole, part, given = torch.full((4,), rank + 1.0), torch.empty(2), torch.full((4,), rank + 1.0)
        dist.all_reduce(whole, op=scaled)
        dist.reduce_scatter(part, list(given.chunk(2)), op=scaled)
        return whole.tolist(), part.tolist(), given.tolist()

    for rank, result in enumerate(on_ranks(2, work).results):
        assert result == ([1.5] * 4, [1.5] * 2, [rank + 1.0] * 4)


def test_collectives_on_tensors_with_gaps_fill_just_their_elements():
    def work(rank):
        whole = torch.zeros(2, 6)
        part = whole[:, ::2]
        part += rank
        dist.all_reduce(part)
        gathered = torch.zeros(2, 3, 2).transpose(1, 2)
        ALL_GATHER_SINGLE(gathered, torch.arange(6.0) + 10 * rank)
        return whole.tolist(), gathered.reshape(-1).tolist()

    expected = [[1.0, 0.0] * 3] * 2, [*map(float, range(6)), *map(float, range(10, 16))]

    assert on_ranks(2, work).results == [expected, expected]


def test_broadcast_and_all_gather_and_objects_arrive():
    def work(rank):
        tensor = torch.full((2, 2), float(rank))
        dist.broadcast(tensor, src=2)
        parts = [torch.empty(2) for _ in range(3)]
        dist.all_gather(parts, torch.tensor([rank, -rank]).float())
        objects = [None] * 3
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank})
        chosen = [f"from {rank}"]
        dist.broadcast_object_list(chosen, src=1)
        return tensor.unique().tolist(), [part.tolist() for part in parts], objects, chosen

    expected = (
        [2.0],
        [[0.0, 0.0], [1.0, -1.0], [2.0, -2.0]],
        [{"rank": 0, "text": ""}, {"rank": 1, "text": "x"}, {"rank": 2, "text": "xx"}],
        ["from 1"],
    )

    assert on_ranks(3, work).results == [expected] * 3


def test_reduce_and_gather_give_the_root_the_result_and_leave_the_others_alone():
    def work(rank):
        total, largest = torch.tensor([rank + 1.0]), torch.tensor([rank + 1.0])
        dist.reduce(total, dst=1)
        dist.reduce(largest, dst=2, op=dist.ReduceOp.MAX)
        parts = [torch.empty(2) for _ in range(3)] if rank == 0 else None
        dist.gather(torch.full((2,), float(rank)), parts, dst=0)
        objects = [None] * 3 if rank == 2 else None
        dist.gather_object("x" * rank, objects, dst=2)
        return total.item(), largest.item(), parts and [part.tolist() for part in parts], objects

    assert on_ranks(3, work).results == [
        (1.0, 1.0, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], None),
        (6.0, 2.0, None, None),
        (3.0, 3.0, None, ["", "x", "xx"]),
    ]


def parts_travel(rank):
    world_size = dist.get_world_size()
    mine = [torch.tensor([10 * rank + peer, -rank]) for peer in range(world_size)]
    own, scattered, exchanged = torch.empty(2, dtype=torch.int64), torch.empty(2), torch.empty(world_size)
    dist.reduce_scatter(own, mine)
    dist.scatter(
        scattered, [torch.full((2,), 1.0 * peer) for peer in range(world_size)] if rank == 1 else None, 1
    )
    dist.all_to_all_single(exchanged, torch.arange(1.0 * world_size) + 10 * rank)
    gathered = [torch.empty(1) for _ in range(world_size)] if rank == 0 else None
    dist.gather(torch.tensor([1.0 * rank]), gathered, 0)
    total = torch.tensor([rank + 1])
    dist.reduce(total, 2, op=dist.ReduceOp.PRODUCT)
    return own.tolist(), scattered.tolist(), exchanged.tolist(), gathered, total.item()


def test_parts_travel_as_torch_says():
    results = on_ranks(3, parts_travel).results

    for rank, (own, scattered, exchanged, gathered, total) in enumerate(results):
        assert own == [30 + 3 * rank, -3]
        assert scattered == [rank, rank]
        assert exchanged == [rank, 10 + rank, 20 + rank]
        assert (gathered is None) == (rank != 0)
        assert total == (6 if rank == 2 else rank + 1)
    assert torch.cat(results[0][3]).tolist() == [0, 1, 2]


def test_collectives_that_torch_puts_together_give_what_they_give_one_by_one():
    def work(rank):
        sums, gathered = [torch.zeros(2), torch.zeros(1)], [torch.zeros(4, 2), torch.zeros(3, 2).t()]
        reduced = [torch.full((2,), rank + 1.0), torch.full((3,), 10.0 * rank)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in reduced:
                dist.all_reduce(tensor)
        manager.wait()
        with dist._coalescing_manager():
            for total in sums:
                REDUCE_SCATTER_SINGLE(total, torch.arange(2.0 * len(total)) + rank)
        with dist._coalescing_manager():
            for output in gathered:
                ALL_GATHER_SINGLE(output, torch.full((output.numel() // 2,), float(rank)))
        return [tensor.tolist() for tensor in (*reduced, *sums, *gathered)]

    reduced = [[3.0, 3.0], [10.0] * 3]
    gathered = [[[0.0, 0.0]] * 2 + [[1.0, 1.0]] * 2, [[0.0] * 3, [1.0] * 3]]

    assert on_ranks(2, work).results == [
        [*reduced, [1.0, 3.0], [1.0], *gathered],
        [*reduced, [5.0, 7.0], [3.0], *gathered],
    ]


def test_gathering_a_tensor_of_another_size_than_its_place_is_refused():
    def work(rank):
        dist.all_gather([torch.empty(3), torch.empty(3)], torch.empty(2))

    with pytest.raises(RankError, match=r"the one for rank 0 is \(3,\)"):
        on_ranks(2, work)


def test_a_sub_group_is_among_its_members_and_may_have_an_algorithm_of_its_own():
    def work(rank):
        group = dist.new_group([3, 1], backend="testbed", pg_options=TestbedOptions("naive"))
        tensor = torch.tensor([10.0**rank])
        if rank in (1, 3):
            dist.all_reduce(tensor, group=group)
        return tensor.item()

    assert on_ranks(4, work).results == [1.0, 1010.0, 100.0, 1010.0]


def test_groups_can_be_made_and_destroyed_again_and_again():
    def work(rank):
        sums = []
        for round_ in range(3):
            group = dist.new_group([0, 1])
            tensor = torch.tensor([float(rank + round_)])
            dist.all_reduce(tensor, group=group)
            sums.append(tensor.item())
            dist.destroy_process_group(group)
        return sums

    assert on_ranks(2, work).results == [[1.0, 3.0, 5.0]] * 2


def test_an_asynchronous_collective_overlaps_with_what_is_charged_meanwhile():
    def work(rank):
        me = Cluster.current()
        handle = dist.all_reduce(torch.ones(1_000_000), async_op=True)
        assert not handle.is_completed()
        me.charge_ps(50_000_000)
        handle.wait()
        assert handle.is_completed()
        return me.now_ps()

    alone = on_ranks(2, lambda rank: dist.all_reduce(torch.ones(1_000_000)))

    assert on_ranks(2, work).times_ps == alone.times_ps


def test_a_future_is_driven_by_whoever_asks_it():
    def work(rank):
        first = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        doubled = first.then(lambda done: done.value()[0] * 2)
        second = dist.all_reduce(torch.ones(4) * 3, async_op=True).get_future()
        return doubled.wait().tolist(), second.wait()[0].tolist(), second.done()

    assert on_ranks(2, work).results == [([4.0] * 4, [6.0] * 4, True)] * 2


def test_what_follows_from_a_future_can_be_waited_for_in_the_hook_that_asked_for_it():
    def work(rank):
        weight, seen = torch.full((3,), rank + 1.0, requires_grad=True), []

        def hook(parameter):
            future = dist.all_reduce(parameter.grad, async_op=True).get_future()
            halved = future.then(lambda done: done.value()[0] / 2)
            squared = halved.then(lambda done: done.value() ** 2)
            seen.append(squared.wait().tolist())

        weight.register_post_accumulate_grad_hook(hook)
        (weight * (rank + 1)).sum().backward()
        return seen

    assert on_ranks(3, work).results == [[[9.0] * 3]] * 3


def test_what_torch_makes_of_futures_can_be_waited_for_in_the_hook_that_asked_for_them():
    def work(rank):
        weight, seen = torch.ones(2, requires_grad=True), []

        def hook(parameter):
            futures = [dist.all_reduce(parameter.grad * n, async_op=True).get_future() for n in (1, 2)]
            seen.append([result.tolist() for (result,) in torch.futures.wait_all(futures)])

        weight.register_post_accumulate_grad_hook(hook)
        weight.sum().backward()
        return seen

    assert on_ranks(3, work).results == [[[[3.0, 3.0], [6.0, 6.0]]]] * 3


@pytest.mark.parametrize("wait_in_hook", [False, True])
def test_an_error_of_a_callback_comes_out_of_the_backward_pass(wait_in_hook):
    def work(rank):
        weight = torch.ones(3, requires_grad=True)

        def fail(done):
            raise OSError("no memory for the callback")

        def hook(parameter):
            future = dist.all_reduce(parameter.grad, async_op=True).get_future().then(fail)
            last = future.then(lambda done: done.value())
            if wait_in_hook:
                last.wait()

        weight.register_post_accumulate_grad_hook(hook)
        with pytest.raises(OSError, match="no memory for the callback"):
            weight.sum().backward()
        with pytest.raises(OSError, match="no memory for the callback"):
            dist.all_reduce(torch.ones(1), async_op=True).get_future().then(fail)

    on_ranks(2, work)


def test_a_group_can_be_split():
    def work(rank):
        whole = dist.new_group([1, 2, 3])
        if rank == 0:
            return None
        part = dist.split_group(whole, [[2, 1]], group_desc="a part")
        if part is None:
            return "apart"
        tensor = torch.tensor([10.0**rank])
        dist.all_reduce(tensor, group=part)
        return tensor.item(), dist.get_process_group_ranks(part)

    assert on_ranks(4, work).results == [None, "apart", (1100.0, [2, 3]), (1100.0, [2, 3])]


@pytest.mark.parametrize("static_graph", [False, True])
def test_torchs_own_ddp_trains_as_one_process_does(static_graph):
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(5)).double()

    def network():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2)).double()

    def train(model, part):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            model(part).square().mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])

    def work(rank):
        model = torch.nn.parallel.DistributedDataParallel(
            network(), bucket_cap_mb=0.0005, static_graph=static_graph
        )
        return train(model, data[rank * 4 : rank * 4 + 4])

    expected = train(network(), data)
    first, second = on_ranks(2, work).results

    assert torch.equal(first, second)
    assert torch.allclose(first, expected, rtol=0, atol=1e-12)


def test_torchs_own_ddp_overlaps_its_buckets_with_the_backward_pass():
    """Two buckets of 4 MB: the first travels while the second is still being computed."""

    def work(rank):
        me = Cluster.current()
        model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000, bias=False) for _ in range(2)))
        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
        for parameter in model.parameters():
            parameter.register_hook(lambda grad: me.charge_ps(200_000_000))
        for _ in range(2):  # buckets as wished from the second iteration on
            ddp(torch.ones(1, 1000)).sum().backward()
        dist.barrier()
        began = me.now_ps()
        ddp(torch.ones(1, 1000)).sum().backward()
        return me.now_ps() - began

    all_reduce_ps = 2 * (4_000_000 + 2_000_000 * 80)

    assert (
        on_ranks(2, work).results == [400_000_000 + max(0, all_reduce_ps - 200_000_000) + all_reduce_ps] * 2
    )


def test_an_error_of_a_collective_comes_out_of_the_backward_pass_that_waits_for_it():
    def work(rank):
        weight = torch.ones(3, requires_grad=True)

        def hook(parameter):
            handle = dist.all_reduce(parameter.grad, async_op=True)

            def fail():
                raise OSError("the link is down")

            handle._finish = fail
            handle.get_future()

        weight.register_post_accumulate_grad_hook(hook)
        with pytest.raises(OSError, match="the link is down"):
            weight.sum().backward()

    on_ranks(2, work)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: dist.all_reduce(torch.ones(1, dtype=torch.int64), op=dist.ReduceOp.AVG), "not an integer"),
    ],
)
def test_what_is_not_carried_is_refused_by_name(call, reason):
    with pytest.raises(RankError, match=reason) as caught:
        on_ranks(2, lambda rank: call())

    assert isinstance(caught.value.__cause__, NotSupportedError)
