"""Folded runs: one thread for ranks that do the same takes the same virtual time as one for each rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.iterations import end_iteration
from collectives.virtual.setting import VirtualRun
from sim.errors import DeadlockError
from sim.files.device_file import load_device
from sim.scenario.conditions import Straggler

GPU = replace(load_device("h100"), kind="gpu")
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
Work = Callable[[int], Any]


def run_on_gpus(
    work: Work, ranks: int, *, fold: bool, network: str = "dgx-h100", **options: Any
) -> VirtualRun:
    return run(work, ranks, network, compute=Roofline(GPU), fold=fold, **options)


def check_folded(work: Work, ranks: int, threads: int, **options: Any) -> VirtualRun:
    """Check that *work* takes the same time folded, with so many threads at its end; return that run."""
    folded = run_on_gpus(work, ranks, fold=True, **options)
    unfolded = run_on_gpus(work, ranks, fold=False, **options)

    assert folded.times_ps == unfolded.times_ps
    assert folded.report.iterations == unfolded.report.iterations
    assert folded.report.ranks == unfolded.report.ranks
    assert folded.report.ranks_simulated == threads
    assert unfolded.report.ranks_simulated == ranks
    return folded


def train(model: nn.Module, steps: int = 2, batch: int = 4, features: int = 16) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(batch, features)).sum().backward()
        optimizer.step()


def data_parallel(rank: int) -> None:
    dist.init_process_group("nccl")
    train(DistributedDataParallel(nn.Linear(16, 16)))


def fully_sharded(rank: int, *mesh: int) -> None:
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("nccl")
    shape = mesh or (dist.get_world_size(),)
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 16))
    whole = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for layer in model:
        fully_shard(layer, mesh=whole)
    train(fully_shard(model, mesh=whole))


def test_data_parallel_training_is_one_thread() -> None:
    folded = check_folded(data_parallel, 16, 1)

    assert folded.report.folded == ("ranks 0-15 as rank 0",)


def test_sharded_training_is_one_thread() -> None:
    check_folded(fully_sharded, 16, 1)


@pytest.mark.costly
def test_hybrid_sharded_training_is_one_thread_though_groups_share_links() -> None:
    check_folded(lambda rank: fully_sharded(rank, 4, 4), 16, 1, network="aws-p4d")


def test_a_first_rank_that_waits_for_its_loss_is_a_thread_of_its_own() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(nn.Linear(16, 16))
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            loss = model(torch.ones(4, 16)).sum()
            loss.backward()
            optimizer.step()
            if rank == 0:
                loss.item()

    check_folded(work, 16, 2)


def test_a_last_batch_that_is_shorter_is_a_thread_of_its_own() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        train(DistributedDataParallel(nn.Linear(16, 16)), batch=2 if rank == 15 else 4)

    check_folded(work, 16, 2)


def test_stages_of_a_pipeline_are_classes() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("pp", "dp"))
        group, stage = mesh.get_group("pp"), mesh.get_local_rank("pp")
        peers = dist.get_process_group_ranks(group)
        layer = nn.Linear(16, 16)
        for _ in range(2):
            x = torch.ones(4, 16)
            for _ in range(3):
                if stage > 0:
                    dist.recv(x, peers[stage - 1], group=group)
                x = layer(x.detach())
                if stage < 3:
                    dist.send(x.detach(), peers[stage + 1], group=group)
            dist.all_reduce(layer.weight.data, group=mesh.get_group("dp"))
            end_iteration()

    folded = check_folded(work, 8, 4)

    assert folded.report.folded[1] == "ranks 2, 3 as rank 2"


def test_a_straggler_is_a_thread_of_its_own_and_ranks_that_wait_for_it_are_still_one() -> None:
    check_folded(data_parallel, 16, 2, conditions=[Straggler(5, 2.0)])


def test_ranks_that_differ_in_a_number_only_are_one_thread() -> None:
    def work(rank: int) -> str:
        dist.init_process_group("nccl")
        torch.manual_seed(rank)
        train(DistributedDataParallel(nn.Linear(16, 16)))
        return f"checkpoint-{rank}.pt"

    folded = check_folded(work, 8, 1)

    assert folded.results == ["checkpoint-0.pt"] * 8


def test_output_of_attempts_that_are_given_up_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        print(f"rank {rank}")
        train(nn.Linear(16, 16), batch=2 if rank == 0 else 4)

    run_on_gpus(work, 8, fold=True)

    assert capsys.readouterr().out.splitlines() == ["rank 0", "rank 1"]


def test_a_deadlock_of_folded_ranks_says_that_they_are_folded() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        group = dist.new_group(range(4))
        if rank < 4:
            dist.recv(torch.zeros(1), 1 - rank % 2, group=group) if rank < 2 else None

    with pytest.raises(DeadlockError):
        run_on_gpus(work, 8, fold=True)


@pytest.mark.costly
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_folded_scripts_take_the_time_of_unfolded_ones(data: st.DataObject) -> None:
    shape = data.draw(st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2)]), label="mesh")
    special = data.draw(st.sampled_from([None, "first", "last", "half"]), label="who differs")
    calls = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "compute", "item"]),
                st.integers(0, len(shape) - 1),
                st.sampled_from([8, 4096, 1 << 20]),
            ),
            min_size=1,
            max_size=6,
        ),
        label="calls",
    )

    def work(rank: int) -> None:
        dist.init_process_group("nccl")
        names = ("a", "b", "c")[: len(shape)]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        differs = {None: False, "first": rank == 0, "last": rank == 7, "half": rank >= 4}[special]
        for kind, dim, size in calls:
            group = mesh.get_group(names[dim])
            tensor = torch.zeros(size)
            if kind == "compute":
                tensor * (2 if differs else 1)
                if differs:
                    tensor + 1
            elif kind == "item" and differs:
                tensor.sum().item()
            elif kind == "all_reduce":
                dist.all_reduce(tensor, group=group)
            elif kind == "all_gather":
                all_gather(tensor.new_empty(size * group.size()), tensor, group=group)
            elif kind == "reduce_scatter":
                reduce_scatter(tensor.new_empty(size), tensor.new_empty(size * group.size()), group=group)

    folded = run_on_gpus(work, 8, fold=True)
    unfolded = run_on_gpus(work, 8, fold=False)

    assert folded.times_ps == unfolded.times_ps
