"""Order of issue over NCCL: two ranks that issue calls in opposite order are noticed, and no others."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.collectives.virtual.clusters import in_group, mistakes, on_gpus

OPPOSITE = r"rank (\d) issues .* before .*; rank (\d) issues .* before .*: .*, so both may wait for ever"
Issue = Callable[[], Any]


def said(work, ranks: int = 2) -> str:
    return mistakes(work, ranks, "nccl")


def issue(calls: Iterable[Issue]) -> None:
    works = [call() for call in calls]
    for work in works:
        for own in work if isinstance(work, list) else [work]:
            own.wait()


def reduction(group=None, device: str = "cpu") -> Issue:
    return lambda: dist.all_reduce(torch.ones(2, device=device), group=group, async_op=True)


def message(operation, peer: int, group=None, elements: int = 2, device: str = "cpu") -> Issue:
    tensor = torch.ones(elements, device=device)
    return lambda: operation(tensor, peer, group)


@given(st.permutations([0, 0, 1, 1]), st.permutations([0, 0, 1, 1]))
@settings(deadline=None)
def test_two_communicators_are_noticed_exactly_where_ranks_of_both_issue_them_in_another_order(
    of_rank_1, of_rank_2
):
    """Each rank issues calls of two groups, all before it waits; ranks 1 and 2 are in both."""
    orders = [[0, 0], of_rank_1, of_rank_2, [1, 1]]

    def work(rank):
        groups = [dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])]
        issue(reduction(groups[number]) for number in orders[rank])

    assert bool(re.search(OPPOSITE, said(work, 4))) is (of_rank_1 != of_rank_2)


@given(st.integers(2, 5), st.data())
@settings(deadline=None)
def test_a_circle_of_groups_of_two_is_noticed_with_all_its_ranks(ranks, data):
    """Rank r is in the groups r and r + 1; a circle is closed if every rank issues its own first."""
    is_own_first = data.draw(st.lists(st.booleans(), min_size=ranks, max_size=ranks))

    def work(rank):
        groups = [dist.new_group(sorted({own, (own - 1) % ranks})) for own in range(ranks)]
        own, other = groups[rank], groups[(rank + 1) % ranks]
        issue(map(reduction, [own, other] if is_own_first[rank] else [other, own]))

    assert said(work, ranks).count(" issues ") == (ranks if len(set(is_own_first)) == 1 else 0)


@pytest.mark.parametrize("is_crossed", [True, False])
def test_messages_of_one_communicator_that_wait_for_those_of_another_are_noticed(is_crossed):
    """Rank 0 receives before it sends in another group; rank 1 does so, too, or sends first."""

    def work(rank):
        groups = [dist.new_group() for _ in range(2)]
        for group in groups:
            dist.send(torch.ones(2), 1, group) if rank == 0 else dist.recv(torch.ones(2), 0, group)
        sends = message(dist.isend, 1 - rank, groups[1 - rank])
        receives = message(dist.irecv, 1 - rank, groups[rank])
        issue([receives, sends] if rank == 0 or is_crossed else [sends, receives])

    assert bool(re.search(OPPOSITE, said(work))) is is_crossed


@pytest.mark.parametrize(("elements", "is_noticed"), [(2, False), (1 << 20, False), ((1 << 20) + 1, True)])
def test_two_ranks_that_send_first_wait_where_messages_do_not_fit_the_buffers(elements, is_noticed):
    def work(rank):
        issue(message(operation, 1 - rank, None, elements) for operation in (dist.isend, dist.irecv))

    assert bool(re.search(OPPOSITE, said(work))) is is_noticed


@pytest.mark.parametrize("is_batched", [False, True])
def test_a_ring_of_first_messages_waits_for_the_communicators_of_its_pairs(is_batched):
    def work(rank):
        sent, received = torch.ones(2), torch.empty(2)
        for _ in range(2):
            calls = [(dist.isend, sent, (rank + 1) % 3), (dist.irecv, received, (rank - 1) % 3)]
            if is_batched:
                both = [dist.P2POp(*call) for call in calls]
                issue([lambda both=both: dist.batch_isend_irecv(both)])
            else:
                issue(message(operation, peer) for operation, _, peer in calls)

    assert said(work, 3).count(" issues ") == (0 if is_batched else 3)


def reduction_and_message(rank: int, is_crossed: bool, is_batched: bool, device: str = "cpu") -> None:
    """Rank 0 reduces and sends, rank 1 reduces and receives, or the other way round."""
    operation = dist.isend if rank == 0 else dist.irecv
    one = message(operation, 1 - rank, device=device)
    batch = [dist.P2POp(operation, torch.ones(4, device=device), 1 - rank)] if is_batched else []
    calls = [reduction(device=device), (lambda: dist.batch_isend_irecv(batch)) if is_batched else one]
    issue(calls[:: -1 if is_crossed and rank == 1 else 1])


@pytest.mark.parametrize("is_crossed", [False, True])
@pytest.mark.parametrize("is_batched", [False, True])
def test_a_reduction_and_a_message_in_opposite_order_are_noticed_with_the_communicators_they_are_on(
    is_crossed, is_batched
):
    text = said(lambda rank: reduction_and_message(rank, is_crossed, is_batched))

    assert bool(re.search(OPPOSITE, text)) is is_crossed
    assert ("of one communicator" in text) is (is_crossed and is_batched)
    assert ("of two communicators" in text) is (is_crossed and not is_batched)


def test_gloo_has_no_order_between_groups():
    assert mistakes(lambda rank: reduction_and_message(rank, True, True)) == ""


def test_the_order_is_noticed_on_streams_of_gpus_too():
    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        reduction_and_message(rank, True, True, "cuda")

    assert re.search(OPPOSITE, "\n".join(on_gpus(work, 2).report.mistakes))


def test_pairs_of_ranks_that_issue_from_the_same_lines_are_noticed_in_one_sentence():
    def work(rank):
        calls = [reduction(), message(dist.irecv if rank % 2 else dist.isend, rank ^ 1)]
        issue(calls[:: -1 if rank % 2 else 1])

    (mistake,) = in_group(work, 6, "nccl").report.mistakes

    assert mistake.endswith("(on 3 communicators in all)")


def many_calls_behind(rank: int) -> None:
    """Rank 0 issues all its calls before rank 1 issues any, and rank 2 before both."""
    groups = [dist.new_group([0, 1, 2]), dist.new_group([0, 1])]
    dist.barrier()
    issue(reduction(group) for _ in range(80) for group in (groups if rank < 2 else groups[:1]))


def one_rank_in_two_groups(rank: int) -> None:
    left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
    issue(map(reduction, ([left], [left, right], [right])[rank]))


def receives_from_any_source_which_nccl_has_not(rank: int) -> None:
    groups, tensor = [None, dist.new_group()], torch.ones(2)
    if rank < 2:
        dist.recv(tensor) if rank else dist.send(tensor, 1)
    for _ in range(2):
        for group in groups:
            dist.all_reduce(tensor, group=group)


def backward_passes_of_one_model_in_any_line(rank: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    for step in range(3):
        loss = model(torch.randn(3, 2)).sum()
        is_dropped = bool(torch.tensor((step + rank) % 2))
        if is_dropped:
            (0 * loss).backward()
        else:
            loss.backward()


@pytest.mark.parametrize(
    "work",
    [
        many_calls_behind, one_rank_in_two_groups, receives_from_any_source_which_nccl_has_not,
        backward_passes_of_one_model_in_any_line,
    ],
)  # fmt: skip
def test_ranks_that_can_not_wait_for_each_other_are_left_in_peace(work):
    assert said(work, 3) == ""


@pytest.mark.parametrize("is_crossed", [False, True])
@pytest.mark.parametrize(
    ("kind", "wrap"), [("DDP model", DistributedDataParallel), ("FSDP module", fully_shard)]
)
def test_what_is_called_for_two_models_of_one_group_in_opposite_order_is_noticed(kind, wrap, is_crossed):
    def work(rank):
        torch.manual_seed(0)
        models = [wrap(torch.nn.Linear(2, 2)) for _ in range(2)]
        for _ in range(2):
            for model in models[:: -1 if rank and is_crossed else 1]:
                model(torch.randn(3, 2)).sum().backward()

    noticed = re.search(rf"for its {kind} ([12]) here and then for its {kind} (?!\1)[12] at", said(work))

    assert bool(noticed) is is_crossed
