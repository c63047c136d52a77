"""Order of issue over NCCL: two ranks that issue calls in opposite order are noticed, and no others."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.collectives.virtual.clusters import in_group, on_gpus

OPPOSITE = r"rank (\d) issues .* before .*; rank (\d) issues .* before .*: .*, so both may wait for ever"
Issue = Callable[[torch.device], list[Any]]


def said(work, ranks: int = 2, backend: str = "nccl") -> str:
    return "\n".join(in_group(work, ranks, backend).report.mistakes)


def issue(calls: list[Callable[[], Any]]) -> None:
    works = [call() for call in calls]
    for work in works:
        for own in work if isinstance(work, list) else [work]:
            own.wait()


@given(st.permutations([0, 0, 1, 1]), st.permutations([0, 0, 1, 1]))
@settings(deadline=None)
def test_two_communicators_are_noticed_exactly_where_ranks_of_both_issue_them_in_another_order(
    of_rank_1, of_rank_2
):
    """Each rank issues calls of two groups, all before it waits; ranks 1 and 2 are in both."""
    orders = [[0, 0], of_rank_1, of_rank_2, [1, 1]]

    def work(rank):
        groups = [dist.new_group([0, 1, 2]), dist.new_group([1, 2, 3])]
        issue(
            [lambda g=group: dist.all_reduce(torch.ones(2), group=groups[g], async_op=True)
             for group in orders[rank]]
        )  # fmt: skip

    assert bool(re.search(OPPOSITE, said(work, 4))) is (of_rank_1 != of_rank_2)


@given(st.integers(2, 5), st.data())
@settings(deadline=None)
def test_a_circle_of_groups_of_two_is_noticed_with_all_its_ranks(ranks, data):
    """Rank r is in the groups r and r + 1; a circle is closed if every rank issues its own first."""
    is_own_first = data.draw(st.lists(st.booleans(), min_size=ranks, max_size=ranks))

    def work(rank):
        groups = [dist.new_group(sorted({own, (own - 1) % ranks})) for own in range(ranks)]
        order = [rank, (rank + 1) % ranks][:: 1 if is_own_first[rank] else -1]
        issue([lambda g=own: dist.all_reduce(torch.ones(2), group=groups[g], async_op=True)
               for own in order])  # fmt: skip

    text = said(work, ranks)

    assert text.count(" issues ") == (ranks if len(set(is_own_first)) == 1 else 0)


@pytest.mark.parametrize("is_crossed", [True, False])
def test_messages_of_one_communicator_that_wait_for_those_of_another_are_noticed(is_crossed):
    """Rank 0 receives before it sends in another group; rank 1 does so, too, or sends first."""

    def work(rank):
        groups = [dist.new_group() for _ in range(2)]
        for group in groups:
            dist.send(torch.ones(2), 1, group) if rank == 0 else dist.recv(torch.ones(2), 0, group)
        sends = lambda: dist.isend(torch.ones(2), 1 - rank, groups[1 - rank])  # noqa: E731
        receives = lambda: dist.irecv(torch.ones(2), 1 - rank, groups[rank])  # noqa: E731
        issue([receives, sends] if rank == 0 or is_crossed else [sends, receives])

    assert bool(re.search(OPPOSITE, said(work))) is is_crossed


@pytest.mark.parametrize(("elements", "is_noticed"), [(1 << 20, False), ((1 << 20) + 1, True)])
def test_two_ranks_that_send_first_wait_where_messages_do_not_fit_the_buffers(elements, is_noticed):
    def work(rank):
        sent, received = torch.ones(elements), torch.empty(elements)
        issue([lambda: dist.isend(sent, 1 - rank), lambda: dist.irecv(received, 1 - rank)])

    assert bool(re.search(OPPOSITE, said(work))) is is_noticed


@pytest.mark.parametrize("is_batched", [False, True])
def test_a_ring_of_first_messages_waits_for_the_communicators_of_its_pairs(is_batched):
    def work(rank):
        sent, received = torch.ones(2), torch.empty(2)
        after, before = (rank + 1) % 3, (rank - 1) % 3
        for _ in range(2):
            if is_batched:
                both = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]
                issue([lambda both=both: dist.batch_isend_irecv(both)])
            else:
                issue([lambda: dist.isend(sent, after), lambda: dist.irecv(received, before)])

    assert said(work, 3).count(" issues ") == (0 if is_batched else 3)


def test_a_rank_that_is_many_calls_behind_is_left_in_peace():
    """Rank 0 issues all its calls before rank 1 issues any, and rank 2 before both."""

    def work(rank):
        groups = [dist.new_group([0, 1, 2]), dist.new_group([0, 1])]
        dist.barrier()
        members = groups if rank < 2 else groups[:1]
        issue([lambda g=group: dist.all_reduce(torch.ones(2), group=g, async_op=True)
               for _ in range(80) for group in members])  # fmt: skip

    assert said(work, 3) == ""


def reduction_and_message(rank: int, is_crossed: bool, is_batched: bool, device: str = "cpu") -> None:
    """Rank 0 reduces and sends, rank 1 reduces and receives, or the other way round."""
    mine, sums = torch.ones(4, device=device), torch.ones(2, device=device)
    operation = dist.isend if rank == 0 else dist.irecv
    calls = [
        lambda: dist.all_reduce(sums, async_op=True),
        lambda: (
            dist.batch_isend_irecv([dist.P2POp(operation, mine, 1 - rank)])
            if is_batched
            else operation(mine, 1 - rank)
        ),
    ]
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


def test_pairs_of_ranks_that_issue_from_the_same_lines_are_noticed_in_one_sentence():
    def work(rank):
        mine, sums = torch.ones(4), torch.ones(2)
        calls = [
            lambda: dist.all_reduce(sums, async_op=True),
            lambda: (dist.irecv if rank % 2 else dist.isend)(mine, rank ^ 1),
        ]
        issue(calls[:: -1 if rank % 2 else 1])

    (mistake,) = in_group(work, 6, "nccl").report.mistakes

    assert mistake.endswith("(on 3 communicators in all)")


def test_messages_alone_may_go_in_any_order():
    def work(rank):
        sent, received = torch.ones(2), torch.ones(2)
        issue([lambda: dist.isend(sent, 1 - rank), lambda: dist.irecv(received, 1 - rank)])

    assert said(work) == ""


def test_gloo_has_no_order_between_groups():
    assert said(lambda rank: reduction_and_message(rank, True, True), backend="gloo") == ""


def test_the_order_is_noticed_on_streams_of_gpus_too():
    def work(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        reduction_and_message(rank, True, True, "cuda")

    assert re.search(OPPOSITE, "\n".join(on_gpus(work, 2).report.mistakes))


def test_ranks_that_share_one_rank_of_two_groups_are_left_in_peace():
    def work(rank):
        left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
        groups = {0: [left], 1: [left, right], 2: [right]}[rank]
        issue([lambda g=group: dist.all_reduce(torch.ones(2), group=g, async_op=True) for group in groups])

    assert said(work, 3) == ""


def test_receives_from_any_source_which_nccl_has_not_are_no_collectives():
    def work(rank):
        groups, tensor = [None, dist.new_group()], torch.ones(2)
        dist.recv(tensor) if rank else dist.send(tensor, 1)
        for _ in range(2):
            for group in groups:
                dist.all_reduce(tensor, group=group)

    assert said(work) == ""


def test_backward_passes_of_one_model_may_begin_in_any_line():
    def work(rank):
        model = DistributedDataParallel(torch.nn.Linear(2, 2))
        for step in range(3):
            loss = model(torch.randn(3, 2)).sum()
            is_dropped = bool(torch.tensor((step + rank) % 2))
            if is_dropped:
                (0 * loss).backward()
            else:
                loss.backward()

    assert said(work) == ""


@pytest.mark.parametrize("is_crossed", [False, True])
@pytest.mark.parametrize("kind", ["DDP model", "FSDP module"])
def test_what_is_called_for_two_models_of_one_group_in_opposite_order_is_noticed(kind, is_crossed):
    wrap = DistributedDataParallel if kind == "DDP model" else fully_shard

    def work(rank):
        torch.manual_seed(0)
        models = [wrap(torch.nn.Linear(2, 2)) for _ in range(2)]
        for _ in range(2):
            for model in models[:: -1 if rank and is_crossed else 1]:
                model(torch.randn(3, 2)).sum().backward()

    text = said(work)
    noticed = any(
        f"for its {kind} {first} here and then for its {kind} {second} at" in text
        for first, second in ((1, 2), (2, 1))
    )

    assert noticed is is_crossed
