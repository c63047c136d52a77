"""Failures of ranks: errors with their traceback, and standstills with who waits for whom."""

import traceback
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import MismatchError
from collectives.virtual import Roofline, run
from collectives.virtual.diagnosis.places import is_users
from sim.errors import DeadlockError, RankError
from tests.collectives.virtual.clusters import Work, in_group, no_rank_is_left, script
from tests.given import switch

GPU = {"compute": Roofline("h100")}
FOLDED = {**GPU, "network": "dgx-h100", "fold": True}


def store():
    return dist.distributed_c10d._get_default_store()


def one_trains_less(rank: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for _ in range(3 if rank else 2):
        model(torch.ones(1, 8)).sum().backward()


def asked_for_ever_for_a_key(rank: int) -> None:
    while rank == 0 and not store().check(["never"]):
        pass


def asked_for_ever_for_a_call(rank: int) -> None:
    if rank == 0:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        while not work.is_completed():
            pass


def group_of_some(rank: int) -> None:
    group = dist.new_group([1, 2])
    if rank == 1:
        dist.barrier(group)


def group_that_a_rank_is_not_in(rank: int) -> None:
    pair = dist.new_group([0, 1])
    if rank != 1:
        dist.all_reduce(torch.ones(1), group=pair)


def messages_to_nobody(rank: int) -> None:
    group = dist.new_group(range(4))
    if rank < 2:
        dist.recv(torch.zeros(1), 1 - rank, group=group)


STANDSTILLS: list[tuple[Work, int, dict[str, Any], list[str]]] = [
    (
        lambda rank: rank == 1 or dist.all_reduce(torch.ones(8)), 4, {},
        [
            "3 of 4 ranks", "rank 1: has finished",
            "rank 2: waits since 0 ps for all_reduce #0 (ring, 8 × float32, sum): waits for rank 1 to call",
        ],
    ),
    (lambda rank: rank == 1 or dist.all_reduce(torch.ones(8)), 3, GPU, ["waits for rank 1 to call"]),
    (one_trains_less, 3, {}, ["rank 0: has finished"]),
    (
        lambda rank: dist.broadcast(torch.ones(3), 0) if rank == 1 else dist.all_reduce(torch.ones(3)), 3,
        GPU, ["rank 1 called something else: broadcast #0"],
    ),
    (lambda rank: store().get("a key"), 2, {}, ["a key"]),
    (
        asked_for_ever_for_a_key, 2, {},
        ["rank 0: waits since 0 ps for key 'default_pg/0//never' of the store"],
    ),
    (asked_for_ever_for_a_call, 2, {}, ["rank 0: waits since ", " for all_reduce #0"]),
    (asked_for_ever_for_a_call, 2, GPU, ["rank 0: waits since ", " for all_reduce #0"]),
    (
        group_of_some, 3, {},
        [
            "barrier #0 (tree, 1 × uint8, sum), in the group of ranks 1, 2, numbered from 0: step",
            "\n  in the group of ranks 1, 2: barrier #0 (tree, 1 × uint8, sum): "
            "rank 2 did not take part: finished at 0 ps, without calling it",
        ],
    ),
    (
        group_that_a_rank_is_not_in, 3, {},
        [
            "rank 1 did not take part: finished at 0 ps, without calling it\n"
            "  note: rank 2 calls all_reduce of a group that it is not in, which does nothing (",
        ],
    ),
    (messages_to_nobody, 8, FOLDED, []),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Running all_reduce on global rank")
@pytest.mark.parametrize(("work", "ranks", "options", "said"), STANDSTILLS)
def test_a_standstill_is_told_with_who_waits_for_whom_in_what(work, ranks, options, said, monkeypatch):
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    with pytest.raises(DeadlockError) as caught:
        in_group(work, ranks, **options)

    assert [phrase for phrase in said if phrase not in str(caught.value)] == []
    assert no_rank_is_left()


def test_ranks_that_disagree_about_parts_are_named():
    def other_parts(rank):
        expects = [2, 1] if rank == 0 else [1, 1]
        dist.all_to_all_single(torch.zeros(sum(expects)), torch.ones(2), expects, [1, 1])

    with pytest.raises((RankError, MismatchError), match=r"gives itself|rank 1 sends 1 elements to rank 0"):
        in_group(other_parts, 2, **GPU)


def test_an_error_inside_a_rank_shows_that_ranks_traceback(tmp_path):
    path = script(
        tmp_path,
        """
        import torch.distributed as dist
        dist.init_process_group()

        def part_of_the_script():
            raise ValueError("bad label")

        if dist.get_rank() == 2:
            part_of_the_script()
        dist.barrier()
        """,
    )

    with pytest.raises(RankError, match="rank 2 raised ValueError: bad label") as caught:
        run(path, network=switch(4))

    shown = "".join(traceback.format_exception(caught.value))
    assert "part_of_the_script" in shown
    assert 'raise ValueError("bad label")' in shown


class HookError(Exception):
    pass


def test_an_error_in_a_backward_hook_unwinds_ranks_that_wait_inside_their_backward_pass():
    def fail(parameter):
        raise HookError

    def work(rank):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
        if rank == 2:
            model[0].weight.register_post_accumulate_grad_hook(fail)
        ddp(torch.ones(1, 8)).sum().backward()

    with pytest.raises(RankError, match="rank 2 raised HookError") as caught:
        in_group(work, 3)

    assert isinstance(caught.value.__cause__, HookError)
    assert no_rank_is_left()


def test_packages_installed_for_one_user_are_none_of_the_users_code():
    assert is_users("/home/ann/train.py")
    assert not is_users("/home/ann/.local/lib/python3.11/site-packages/lightning/loops.py")
    assert not is_users("<string>")
