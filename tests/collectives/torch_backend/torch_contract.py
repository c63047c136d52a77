"""Contract of every group as torch sees it, about collectives: scenarios of four ranks.

A scenario is given the group of the ranks 3, 2 and 0 and that of all four, and asserts on its own rank.
"""

import pytest
import torch
import torch.distributed as dist

from collectives.communicators.connection import connect
from collectives.torch_backend import TestbedOptions
from tests.distributed.threads import carried_by

RANKS = range(4)

# New in torch 2.13.
ALL_GATHER_SINGLE = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER_SINGLE = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def play(rank, scenarios):
    """Play all *scenarios*, each in groups of its own."""
    for scenario in scenarios:
        some, everybody = (dist.new_group(ranks, backend="testbed") for ranks in ([3, 2, 0], [0, 1, 2, 3]))
        scenario(rank, some, everybody)
        dist.barrier(everybody)
        for group in (some, everybody):
            if dist.get_rank(group) >= 0:
                dist.destroy_process_group(group)


def play_in_process(rank, world_size, carrier, scenarios):
    with carried_by(carrier):
        play(rank, scenarios)


def values(tensors):
    return [tensor.tolist() for tensor in tensors]


def plain(*numbers):
    return -torch.tensor(numbers, dtype=torch.float32)


def negated(*numbers):
    """Return a tensor of the negated *numbers*, whose memory holds *numbers*."""
    return torch._neg_view(torch.tensor(numbers, dtype=torch.float32))


def imaginary(*numbers):
    """Return a tensor of the negated *numbers*, as computing with complex numbers makes them."""
    tensor = torch.tensor(numbers, dtype=torch.float32)
    return torch.complex(torch.zeros_like(tensor), tensor).conj().imag


def every_call_takes_the_values_of_tensors_and_of_lazily_negated_ones(rank, group, everybody):
    for make in (plain, negated, imaginary):
        found = values_of_every_call(rank, everybody, make)

        assert found == {
            "all_reduce": [-10.0, 0.0], "broadcast": [-3.0, 0.0],
            "reduce": [-10.0 if rank == 1 else -1.0 - rank, 0.0],
            "all_gather": [[-1.0 * peer, 2.0] for peer in RANKS],
            "gather": [[-1.0 * peer, 2.0] for peer in RANKS] if rank == 1 else None,
            "scatter": [-3.0 - rank, 0.0], "reduce_scatter": [-60.0 - 4 * rank, -4.0],
            "all_to_all_single": [-10.0 * peer - rank for peer in RANKS],
            "all_to_all": [[-10.0 * peer - rank] for peer in RANKS], "recv": [-5.0] if rank else [-9.0],
            "recv from any": [-5.0] if rank else [-9.0],
        }  # fmt: skip


def values_of_every_call(rank, group, make):
    found = {}
    for name, call in {
        "all_reduce": dist.all_reduce,
        "broadcast": lambda tensor, group: dist.broadcast(tensor, 2, group),
        "reduce": lambda tensor, group: dist.reduce(tensor, 1, group=group),
    }.items():
        tensor = make(rank + 1, 0)
        call(tensor, group=group)
        found[name] = tensor.tolist()

    parts = [make(9, 9) for _ in RANKS]
    dist.all_gather(parts, make(rank, -2), group)
    found["all_gather"] = values(parts)

    parts = [make(9, 9) for _ in RANKS] if rank == 1 else None
    dist.gather(make(rank, -2), parts, 1, group)
    found["gather"] = parts and values(parts)

    part = make(9, 9)
    dist.scatter(part, [make(3 + peer, 0) for peer in RANKS] if rank == 1 else None, 1, group)
    found["scatter"] = part.tolist()

    part = make(9, 9)
    dist.reduce_scatter(part, [make(10 * rank + peer, 1) for peer in RANKS], group=group)
    found["reduce_scatter"] = part.tolist()

    whole = make(9, 9, 9, 9)
    dist.all_to_all_single(whole, make(*(10 * rank + peer for peer in RANKS)), group=group)
    found["all_to_all_single"] = whole.tolist()

    parts = [make(9) for _ in RANKS]
    dist.all_to_all(parts, list(make(*(10 * rank + peer for peer in RANKS)).split(1)), group)
    found["all_to_all"] = values(parts)

    for name, source in {"recv": 0, "recv from any": None}.items():
        tensor = make(9)
        if rank == 0:
            for peer in RANKS[1:]:
                dist.send(make(5), peer, group)
        else:
            dist.recv(tensor, source, group)
        found[name] = tensor.tolist()
    return found


def a_broadcast_takes_the_values_of_conjugates_where_only_one_side_has_some(rank, group, everybody):
    communicator = connect(everybody)
    for of_root, of_others in ((True, True), (True, False), (False, True)):
        tensor = torch.full((3,), complex(rank, rank + 1))
        tensor = tensor.conj() if (of_others if rank else of_root) else tensor
        communicator.broadcast(tensor, 0)
        assert tensor.tolist() == [-1j if of_root else 1j] * 3


OPERATIONS = {
    "SUM": lambda rows: rows.sum(0), "PRODUCT": lambda rows: rows.prod(0), "MIN": lambda rows: rows.amin(0),
    "MAX": lambda rows: rows.amax(0), "BAND": lambda rows: rows[0] & rows[1] & rows[2] & rows[3],
    "BXOR": lambda rows: rows[0] ^ rows[1] ^ rows[2] ^ rows[3],
}  # fmt: skip


def every_operation_reduces(rank, group, everybody):
    for name, reduced in OPERATIONS.items():
        rows = torch.randint(1, 9, (4, 5), generator=torch.Generator().manual_seed(0))
        on_all, on_one = rows[rank].clone(), rows[rank].clone()
        dist.all_reduce(on_all, getattr(dist.ReduceOp, name), everybody)
        dist.reduce(on_one, 2, getattr(dist.ReduceOp, name), everybody)
        assert torch.equal(on_all, reduced(rows)), name
        assert torch.equal(on_one, reduced(rows) if rank == 2 else rows[rank]), name
    tensor = torch.tensor([rank * 4.0])
    dist.all_reduce(tensor, dist.ReduceOp.AVG, everybody)
    assert tensor.item() == 6.0


def a_sum_of_scaled_parts_scales_what_each_rank_gives(rank, group, everybody):
    for factor in (0.5, torch.tensor([0.5])):
        scaled = dist._make_nccl_premul_sum(factor)
        whole, part, given = torch.full((4,), rank + 1.0), torch.empty(1), torch.full((4,), rank + 1.0)
        dist.all_reduce(whole, scaled, everybody)
        dist.reduce_scatter(part, list(given.chunk(4)), scaled, everybody)
        assert values((whole, part, given)) == [[5.0] * 4, [5.0], [rank + 1.0] * 4]


def collectives_on_tensors_with_gaps_fill_just_their_elements(rank, group, everybody):
    whole = torch.zeros(2, 6)
    whole[:, ::2] += rank
    dist.all_reduce(whole[:, ::2], group=everybody)
    assert whole.tolist() == [[6.0, 0.0] * 3] * 2
    gathered = torch.zeros(4, 3, 2).transpose(1, 2)
    ALL_GATHER_SINGLE(gathered, torch.arange(6.0) + 10 * rank, everybody)
    assert gathered.reshape(-1).tolist() == [10.0 * peer + n for peer in RANKS for n in range(6)]


def objects_arrive(rank, group, everybody):
    objects, chosen, gathered = [None] * 4, [f"from {rank}"], [None] * 4 if rank == 2 else None
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank}, everybody)
    dist.broadcast_object_list(chosen, 1, everybody)
    dist.gather_object("x" * rank, gathered, 2, everybody)
    assert objects == [{"rank": peer, "text": "x" * peer} for peer in RANKS]
    assert chosen == ["from 1"]
    assert gathered == (["", "x", "xx", "xxx"] if rank == 2 else None)


def collectives_that_torch_puts_together_give_what_they_give_one_by_one(rank, group, everybody):
    sums, gathered = [torch.zeros(2), torch.zeros(1)], [torch.zeros(8, 2), torch.zeros(3, 4).t()]
    reduced = [torch.full((2,), rank + 1.0), torch.full((3,), 10.0 * rank)]
    with dist._coalescing_manager(everybody, async_ops=True) as manager:
        for tensor in reduced:
            dist.all_reduce(tensor, group=everybody)
    manager.wait()
    with dist._coalescing_manager(everybody):
        for total in sums:
            REDUCE_SCATTER_SINGLE(total, torch.arange(4.0 * len(total)) + rank, group=everybody)
    with dist._coalescing_manager(everybody):
        for output in gathered:
            ALL_GATHER_SINGLE(output, torch.full((output.numel() // 4,), float(rank)), everybody)
    assert values(reduced) == [[10.0] * 2, [60.0] * 3]
    assert values(sums) == [[8.0 * rank + 6, 8.0 * rank + 10], [4.0 * rank + 6]]
    assert values(gathered) == [
        [[float(peer)] * 2 for peer in RANKS for _ in range(2)],
        [[float(peer)] * 3 for peer in RANKS],
    ]


def a_sub_group_is_among_its_members_and_may_have_an_algorithm_of_its_own(rank, group, everybody):
    for _ in range(3):
        own = dist.new_group([3, 1], backend="testbed", pg_options=TestbedOptions("naive"))
        if rank in (1, 3):
            tensor = torch.tensor([10.0**rank])
            dist.all_reduce(tensor, group=own)
            assert tensor.item() == 1010.0
            assert str(own.communicator(tensor.device).launcher.selector.select("all_reduce", 4)) == "naive"
            dist.destroy_process_group(own)


def a_future_is_driven_by_whoever_asks_it(rank, group, everybody):
    first = dist.all_reduce(torch.ones(4), group=everybody, async_op=True).get_future()
    doubled = first.then(lambda done: done.value()[0] * 2)
    second = dist.all_reduce(torch.ones(4) * 3, group=everybody, async_op=True).get_future()
    assert (doubled.wait().tolist(), second.wait()[0].tolist()) == ([8.0] * 4, [12.0] * 4)
    assert second.done()


def futures_can_be_waited_for_in_the_hook_that_asked_for_them(rank, group, everybody):
    weight, seen = torch.ones(3, requires_grad=True), []

    def hook(parameter):
        first, second = (
            dist.all_reduce(parameter.grad * n, group=everybody, async_op=True).get_future() for n in (1, 2)
        )
        squared = first.then(lambda done: done.value()[0] / 2).then(lambda done: done.value() ** 2)
        (last,) = torch.futures.wait_all([second])[0]
        seen.extend(values((squared.wait(), last)))

    weight.register_post_accumulate_grad_hook(hook)
    (weight * (rank + 1)).sum().backward()
    assert seen == [[25.0] * 3, [20.0] * 3]


def an_error_of_a_callback_comes_out_of_the_backward_pass_and_of_no_later_one(rank, group, everybody):
    def future():
        return dist.all_reduce(torch.ones(1), group=everybody, async_op=True).get_future()

    def fail(done):
        raise OSError("no memory for the callback")

    for wait_in_hook in (False, True):
        weight = torch.ones(3, requires_grad=True)

        def hook(parameter, wait_in_hook=wait_in_hook):
            last = future().then(fail).then(lambda done: done.value())
            if wait_in_hook:
                last.wait()

        weight.register_post_accumulate_grad_hook(hook)
        with pytest.raises(OSError, match="no memory for the callback"):
            weight.sum().backward()
        with pytest.raises(OSError, match="no memory for the callback"):
            future().then(fail)
        futures_can_be_waited_for_in_the_hook_that_asked_for_them(rank, group, everybody)


def parts_of_any_size_are_exchanged_in_a_sub_group(rank, group, everybody):
    if rank == 1:
        return
    me, sizes = dist.get_rank(group), [[0, 1, 2], [3, 0, 0], [1, 2, 0]]
    given, expected = sizes[me], [row[me] for row in sizes]
    tensor = torch.repeat_interleave(torch.arange(3.0), torch.tensor(given)) + 10 * me
    single = torch.zeros(sum(expected), 2, dtype=torch.complex64)
    dist.all_to_all_single(
        single, torch.complex(tensor, -tensor)[:, None].expand(-1, 2), expected, given, group
    )
    parts = [torch.zeros(n, 1) for n in expected]
    dist.all_to_all(parts, [part[:, None] for part in tensor.split(given)], group, async_op=True).wait()
    came = [[10.0 * peer + me] * n for peer, n in enumerate(expected)]
    assert single.tolist() == [[complex(n, -n)] * 2 for part in came for n in part]
    assert [part.flatten().tolist() for part in parts] == came


def tensors_of_several_sizes_are_gathered_and_reduce_scattered(rank, group, everybody):
    gathered = [torch.empty(peer + 1, 2) for peer in RANKS]
    dist.all_gather(gathered, torch.full((rank + 1, 2), float(rank)), group=everybody)
    assert values(gathered) == [[[float(peer)] * 2] * (peer + 1) for peer in RANKS]

    output, given = torch.empty(rank + 1), [torch.full((peer + 1,), 10.0**rank) for peer in RANKS]
    dist.reduce_scatter(output, given, group=everybody)
    assert output.tolist() == [1111.0] * (rank + 1)
    assert values(given) == [[10.0**rank] * (peer + 1) for peer in RANKS]


def several_tensors_of_each_rank_are_gathered_at_once(rank, group, everybody):
    lists = [[torch.empty(2), torch.empty(3)] for _ in RANKS]
    everybody.allgather_coalesced(lists, [torch.full((2,), 1.0 * rank), torch.full((3,), -1.0 * rank)]).wait()
    assert [values(tensors) for tensors in lists] == [[[1.0 * p] * 2, [-1.0 * p] * 3] for p in RANKS]


def sparse_tensors_are_summed_though_every_rank_holds_other_elements(rank, group, everybody):
    dense = torch.zeros(5, 2)
    if rank < 3:
        dense[0] = torch.tensor([1.0, 2.0])
        dense[rank] += torch.tensor([10.0 * rank, 0.5])
    tensor = dense.to_sparse(1)
    dist.all_reduce(tensor, group=everybody)
    assert tensor.to_dense().tolist() == [[3.0, 6.5], [10.0, 0.5], [20.0, 0.5], [0.0, 0.0], [0.0, 0.0]]


def autograd_takes_no_result_for_a_change(rank, group, everybody):
    reduced, whole, part = torch.ones(4), torch.ones(8), torch.ones(2)
    dist.all_reduce(reduced, group=everybody)
    dist.broadcast(reduced, 0, everybody)
    everybody.all_gather_single(whole, part).wait()
    assert (reduced._version, whole._version) == (0, 0)


SCENARIOS = (
    every_call_takes_the_values_of_tensors_and_of_lazily_negated_ones,
    a_broadcast_takes_the_values_of_conjugates_where_only_one_side_has_some, every_operation_reduces,
    a_sum_of_scaled_parts_scales_what_each_rank_gives,
    collectives_on_tensors_with_gaps_fill_just_their_elements, objects_arrive,
    collectives_that_torch_puts_together_give_what_they_give_one_by_one,
    a_sub_group_is_among_its_members_and_may_have_an_algorithm_of_its_own,
    a_future_is_driven_by_whoever_asks_it, futures_can_be_waited_for_in_the_hook_that_asked_for_them,
    an_error_of_a_callback_comes_out_of_the_backward_pass_and_of_no_later_one,
    parts_of_any_size_are_exchanged_in_a_sub_group,
    tensors_of_several_sizes_are_gathered_and_reduce_scattered,
    several_tensors_of_each_rank_are_gathered_at_once,
    sparse_tensors_are_summed_though_every_rank_holds_other_elements, autograd_takes_no_result_for_a_change,
)  # fmt: skip
