"""Runs without data in which some ranks do something alone: seen, as they have a thread or are compared."""

import sys
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives.virtual.folding import attempts
from collectives.virtual.folding.classes import RankClass
from collectives.virtual.folding.conditions import unmet
from collectives.virtual.folding.probes import probes_of
from sim import SimulationError
from tests.collectives.virtual.clusters import on_gpus, script

SMALL = 8
"""Ranks of a run in which each has a thread."""


KINDS: dict[str, Callable[[], object]] = {
    "raises": lambda: int("of some ranks alone"),
    "leaves": lambda: sys.exit(3),
    "sleeps": lambda: time.sleep(1),
    "calls once more": lambda: dist.all_reduce(torch.ones(4, device="cuda")),
    "fills its memory": lambda: torch.empty(2**40, device="cuda"),
    "computes more": lambda: torch.ones(4096, 4096, device="cuda") @ torch.ones(4096, 4096, device="cuda"),
}
"""What odd ranks do."""


def training(own: Callable[[], object], odd: Callable[[int], bool]) -> Callable[[int], None]:
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


nothing_odd = training(lambda: None, lambda rank: False)
RANKS, ON_NODE = 72, 8
PROBES = probes_of(range(RANKS), ON_NODE)
SOME: dict[str, Callable[[int], bool]] = {
    **{f"rank {probe}": lambda rank, probe=probe: rank == probe for probe in (0, *PROBES)},
    "even ranks": lambda rank: rank % 2 == 0,
    "first of their node": lambda rank: rank % ON_NODE == 0,
    "first node": lambda rank: rank < ON_NODE,
    "last node": lambda rank: rank >= RANKS - ON_NODE,
    "second half": lambda rank: rank >= RANKS // 2,
}
BETWEEN = next(rank for rank in range(RANKS) if rank not in (0, *PROBES))


def outcome(work: Callable[[int], None], num_ranks: int, fold: bool | None) -> tuple[object, ...]:
    """Return the times of all ranks and their memory, or how the run failed."""
    try:
        report = (ran := on_gpus(work, num_ranks, fake=True, fold=fold)).report
    except SimulationError as error:
        return type(error), type(error.__cause__)
    return ran.times_ps, report.memory.peak_bytes


@settings(max_examples=settings.default.max_examples // 20)
@given(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(SOME)))
@example("sleeps", "even ranks")
@example("calls once more", "rank 2")
def test_what_ranks_of_a_kind_that_is_compared_do_is_seen(own, some):
    work = training(KINDS[own], SOME[some])

    assert outcome(work, RANKS, fold=True) == outcome(work, RANKS, fold=False)


@pytest.mark.parametrize("own", KINDS)
@pytest.mark.parametrize("some", ["rank 2", "even ranks"])
def test_what_some_ranks_of_a_small_run_do_is_seen(own, some):
    work = training(KINDS[own], SOME[some])

    assert outcome(work, SMALL, fold=None) == outcome(work, SMALL, fold=False)


def test_each_rank_of_a_small_run_has_a_thread_and_writes_once(capsys):
    def work(rank):
        nothing_odd(rank)
        print(f"rank {rank}")

    assert on_gpus(work, SMALL, fake=True).report.ranks_simulated == SMALL
    assert sorted(capsys.readouterr().out.split("\n")) == ["", *(f"rank {rank}" for rank in range(SMALL))]


def test_a_run_that_turns_out_large_is_folded(monkeypatch):
    monkeypatch.setattr(attempts, "SMALL_RUN", 100)

    assert on_gpus(nothing_odd, SMALL, fake=True).report.ranks_simulated == 1


def test_halves_that_differ_are_two_classes_in_few_attempts():
    work = training(KINDS["computes more"], SOME["even ranks"])

    report = on_gpus(work, RANKS, fake=True, fold=True).report

    assert len(report.folded) == report.ranks_simulated == 2
    assert {0, 1, RANKS - 1, *PROBES} <= set(report.ranks_run)


def test_a_file_that_a_rank_writes_which_is_compared_is_written(tmp_path):
    work = training((tmp_path / "done").touch, SOME[f"rank {PROBES[0]}"])

    on_gpus(work, RANKS, fake=True, fold=True)

    assert (tmp_path / "done").exists()


ON_ONE_RANK = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank, tensor = dist.get_rank(), torch.ones(8, device="cuda")
if rank == {}:
    tensor + 1
if rank == 0:
    pass
"""


def test_a_condition_that_no_rank_meets_which_was_run_is_named(tmp_path):
    report = on_gpus(script(tmp_path, ON_ONE_RANK.format(BETWEEN)), RANKS, fake=True, fold=True).report
    (notice,) = (text for text in report.notices if "conditions" in text)

    assert notice.endswith(f": script.py:7 rank == {BETWEEN} (rank {BETWEEN})")


CODE = """
import os
import torch.distributed as dist

r, n = dist.get_rank(), dist.get_world_size()
local = int(os.environ["LOCAL_RANK"])
half = r // 2
step = 0
if {}:
    pass
"""


@pytest.mark.parametrize(
    ("condition", "who"),
    [
        ("r == 37", {37}),
        ("r != 37", {37}),
        ("37 - half == half + 1 and step == 3", {36, 37}),  # whatever `step` is
        ("not (r == 37 or r == 38)", {37, 38}),
        ("r in (0, 37)", set()),  # rank 0 does what 37 does
        ("local == 3", {rank for rank in range(RANKS) if rank % ON_NODE == 3}),
        ("r == n - 1 or local == 0", set()),
        ("r in special", set()),  # which is not known
        ("r == step", set()),
    ],
)
def test_conditions_are_worked_out_for_each_rank(condition, who, tmp_path):
    path = script(tmp_path, CODE.format(condition) + "step = step + 1\n")
    own = RankClass(range(RANKS), probes=[1, 2, 8, RANKS - 1])

    found = list(unmet([path], [own], RANKS, ON_NODE))

    first = f"script.py:9 {condition} (rank {min(who, default=0)}"
    more = f" and {len(who) - 1} more)" if len(who) > 1 else ")"
    assert found == ([first + more] if who else [])
