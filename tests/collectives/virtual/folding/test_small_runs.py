"""Small runs without data: what one rank in the middle does is seen, as each rank has a thread."""

import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import Roofline, run
from collectives.virtual.folding import attempts
from sim.errors import SimulationError

RANKS = 8


def raises() -> None:
    raise ValueError("of rank 2 alone")


def sleeps() -> None:
    time.sleep(1)


def leaves() -> None:
    raise SystemExit(3)


def fills_its_memory() -> None:
    torch.empty(2**40, device="cuda")


def calls_once_more() -> None:
    dist.all_reduce(torch.ones(4, device="cuda"))


def computes_more() -> None:
    torch.ones(4096, 4096, device="cuda") @ torch.ones(4096, 4096, device="cuda")


def training(own: Callable[[], None], odd: Callable[[int], bool]) -> Callable[[int], None]:
    """Return what ranks do in three iterations; those that are *odd* do their *own* in the second, too."""

    def work(rank):
        dist.init_process_group("nccl")
        weight = torch.nn.Parameter(torch.ones(256, 256, device="cuda"))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for step in range(3):
            loss = (torch.ones(8, 256, device="cuda") @ weight).sum()
            loss.backward()
            if step == 1 and odd(rank):
                own()
            dist.all_reduce(weight.grad)
            optimizer.step()
            optimizer.zero_grad()

    return work


def outcome(work: Callable[[int], None], fold: bool | None) -> tuple[object, ...]:
    """Return what became of a run: the times of its ranks and their memory, or how it failed."""
    try:
        ran = run(work, RANKS, "dgx-h100", compute=Roofline("h100"), fake=True, fold=fold)
    except SimulationError as error:
        return type(error), str(error)
    memory = ran.report.memory
    return ran.times_ps, None if memory is None else memory.peak_bytes


@pytest.mark.parametrize(
    "own",
    [raises, sleeps, leaves, fills_its_memory, calls_once_more, computes_more],
    ids=lambda own: own.__name__,
)
@pytest.mark.parametrize(
    "odd", [lambda rank: rank == 2, lambda rank: rank % 2 == 0], ids=["rank 2", "even ranks"]
)
def test_what_some_ranks_alone_do_is_seen(own, odd):
    work = training(own, odd)

    assert outcome(work, fold=None) == outcome(work, fold=False)


def test_each_rank_of_a_small_run_has_a_thread_and_writes_once(capsys):
    def work(rank):
        training(raises, lambda rank: False)(rank)
        print(f"rank {rank}")

    ran = run(work, RANKS, "dgx-h100", compute=Roofline("h100"), fake=True)

    assert ran.report.ranks_simulated == RANKS
    assert sorted(capsys.readouterr().out.split("\n")) == ["", *(f"rank {rank}" for rank in range(RANKS))]


def test_a_run_that_turns_out_large_is_folded(monkeypatch):
    monkeypatch.setattr(attempts, "SMALL_RUN", 100)
    ran = run(training(raises, lambda rank: False), RANKS, "dgx-h100", compute=Roofline("h100"), fake=True)

    assert ran.report.ranks_simulated == 1
