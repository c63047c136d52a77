"""Mistakes that stop nothing: what is noticed of buffers, calls, groups and files, and what is not."""

import re
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD, Optimizer

from tests.collectives.virtual.clusters import mistakes, train

READS = r"py:\d+: ranks 0, 1: reads what all_reduce of test_checks\.py:\d+ has yet to put there"
CHANGES = r"py:\d+: ranks 0, 1: changes a buffer that all_reduce of test_checks\.py:\d+ has"
NOTHING = "^$"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda own: own * 2, READS), (lambda own: own[:2].sum(), READS), (lambda own: own.tolist(), READS),
        (lambda own: own.to("cuda"), READS),
        (lambda own: torch.cat([own, own]), READS), (lambda own: own.zero_(), CHANGES),
        (lambda own: own[2:].mul_(2), CHANGES), (lambda own: own.add_(1), CHANGES),
        (lambda own: own.shape, NOTHING), (lambda own: own.view(2, 2), NOTHING),
        (lambda own: own.numel(), NOTHING), (torch.empty_like, NOTHING),
        (lambda own: torch.ones(4) * 2, NOTHING),
    ],
)  # fmt: skip
def test_a_use_of_a_buffer_in_flight_is_noticed_with_both_lines(use, said):
    def work(rank):
        buffer = torch.ones(4)
        reduced = dist.all_reduce(buffer, async_op=True)
        use(buffer)
        reduced.wait()

    assert re.search(said, mistakes(work))


@pytest.mark.parametrize("is_local", [False, True])
def test_groups_in_another_order_are_noticed_but_for_those_of_a_name_of_their_own(is_local):
    def work(rank):
        for members in ([0, 1], [2, 3])[:: 1 if rank < 2 else -1]:
            if not is_local or rank in members:
                dist.new_group(members, use_local_synchronization=is_local)

    said = mistakes(work, 4)

    assert ("as group number 0 make ranks 0, 1 one of ranks 0, 1 (" in said) is not is_local


@pytest.mark.parametrize("kind", [list, tuple, iter, set, torch.tensor, lambda ranks: map(int, ranks)])
def test_a_group_is_made_of_ranks_in_any_iterable_without_a_notice(kind):
    def work(rank):
        group = dist.new_group(kind([2, 0]))
        if rank in (0, 2):
            assert dist.get_process_group_ranks(group) == [0, 2]

    assert mistakes(work, 4) == ""


def test_a_file_is_noticed_that_all_ranks_write_and_one_that_is_read_too_early(tmp_path):
    def work(rank):
        with open(tmp_path / "all.txt", "w") as file:
            file.write("x")
        if rank == 0:
            torch.save(torch.ones(2), tmp_path / "early.pt")
            torch.save(torch.ones(2), tmp_path / "late.pt")
        else:
            torch.load(tmp_path / "early.pt")
        dist.barrier()
        torch.load(tmp_path / "late.pt")

    said = mistakes(work)

    assert "ranks 0, 1 write the same file, all.txt" in said
    assert "rank 1 may read early.pt before rank 0 has written it" in said
    assert "late.pt" not in said


def two_models_in_turn(rank: int) -> None:
    models = [DistributedDataParallel(nn.Linear(2, 2)) for _ in range(2)]
    for _ in range(3):
        for model in models:
            train(model, [torch.ones(1, 2)])


def other_lines_under_a_condition_on_ranks(rank: int) -> None:
    for source in range(2):
        if rank == source:
            dist.all_reduce(torch.ones(2))
        else:
            dist.all_reduce(torch.zeros(2))


def hook_of_ddp_that_reduces_by_itself(rank: int) -> None:
    def hook(state, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0].div_(2))

    model = DistributedDataParallel(nn.Linear(4, 4))
    model.register_comm_hook(None, hook)
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def overlapped_by_hooks(rank: int) -> None:
    model, works = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)), []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda own: works.append(dist.all_reduce(own.grad, async_op=True))
        )
    train(model, [torch.ones(2, 4)] * 2, lambda model: [works.pop().wait() for _ in range(len(works))])


def gathered_in_place(rank: int) -> None:
    whole = torch.zeros(8)
    own = whole[rank * 4 : rank * 4 + 4]
    work = dist.all_gather_into_tensor(whole, own, async_op=True)
    own.sum()
    work.wait()
    whole.sum()


def ring_with_two_buffers(rank: int) -> None:
    held, coming = torch.ones(4), torch.empty(4)
    for _ in range(3):
        calls = [dist.P2POp(dist.isend, held, 1 - rank), dist.P2POp(dist.irecv, coming, 1 - rank)]
        works = dist.batch_isend_irecv(calls)
        held.sum()
        for work in works:
            work.wait()
        held, coming = coming.add_(held), held


def polled_and_by_future(rank: int) -> None:
    total = torch.ones(4)
    work = dist.all_reduce(total, async_op=True)
    while not work.is_completed():
        pass
    total.mul_(2)
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    future.then(lambda done: done.value()[0] / 2).wait()


def several_in_one(rank: int) -> None:
    tensors = torch.ones(2), torch.ones(3)
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    sum(tensor.sum() for tensor in tensors)


def modes_of_the_script_around_a_flight(rank: int) -> None:
    before = torch._C._len_torch_function_stack()
    with torch.device("meta"):
        reduced = dist.all_reduce(torch.ones(4, device="cpu"), async_op=True)
        assert torch.ones(1).is_meta
    assert not torch.ones(1).is_meta
    reduced.wait()
    assert torch._C._len_torch_function_stack() == before


RIGHT = [
    two_models_in_turn, other_lines_under_a_condition_on_ranks, hook_of_ddp_that_reduces_by_itself,
    overlapped_by_hooks, gathered_in_place, ring_with_two_buffers, polled_and_by_future, several_in_one,
    modes_of_the_script_around_a_flight,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, for names that scripts still use
@pytest.mark.parametrize("work", RIGHT, ids=lambda work: work.__name__)
def test_what_right_scripts_do_is_left_in_peace(work, monkeypatch):
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    assert mistakes(work) == ""


STEPS = 3


def model(outputs: int = 8) -> nn.Module:
    return DistributedDataParallel(nn.Linear(8, outputs))


def passes(passes_of_a_step: int, optimizers_of: Callable[[nn.Module], list[Optimizer]]) -> None:
    own = model()
    optimizers = optimizers_of(own)
    for _ in range(STEPS):
        for _ in range(passes_of_a_step):
            own(torch.randn(4, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def one_optimizer(own: nn.Module) -> list[Optimizer]:
    return [SGD(own.parameters(), lr=0.1)]


def accumulated_without_no_sync() -> None:
    passes(2, one_optimizer)


def accumulated_for_two_optimizers() -> None:
    passes(2, lambda own: [SGD([parameter], lr=0.1) for parameter in own.parameters()])


def one_pass_for_each_step() -> None:
    passes(1, one_optimizer)


def generator_and_discriminator() -> None:
    generator, discriminator = model(), model(1)
    optimizers = [SGD(own.parameters(), lr=0.1) for own in (discriminator, generator)]
    for _ in range(STEPS):
        made = generator(torch.randn(4, 8))
        for inputs, optimizer in zip((made.detach(), made), optimizers, strict=True):
            optimizer.zero_grad()
            discriminator(inputs).sum().backward()
            optimizer.step()


def closures() -> None:
    own = model()
    optimizer = LBFGS(own.parameters(), max_iter=3)
    inputs = torch.randn(4, 8)

    def closure():
        optimizer.zero_grad()
        loss = own(inputs).square().sum()
        loss.backward()
        return float(loss.detach())

    for _ in range(STEPS):
        optimizer.step(closure)


WASTED = [accumulated_without_no_sync, accumulated_for_two_optimizers]
NEEDED = [one_pass_for_each_step, generator_and_discriminator, closures]


@pytest.mark.parametrize("script", [*WASTED, *NEEDED], ids=lambda script: script.__name__)
def test_reductions_are_noticed_exactly_where_a_step_needs_one_of_them(script):
    said = mistakes(lambda rank: script())

    assert ("averages gradients 2 times for each step" in said) is (script in WASTED)
    assert ("averages gradients" in said) is (script in WASTED)
