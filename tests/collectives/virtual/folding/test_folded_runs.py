"""Folded runs: one thread for ranks that do the same takes the same virtual time as one for each rank."""

import json
from functools import partial

import pytest
import torch
import torch.distributed as dist
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.folding.attempts import REPEATED
from collectives.virtual.folding.divisions import SIZES_NOT_COMPARED
from collectives.virtual.iterations import end_iteration
from sim.scenario.conditions import Straggler
from tests.collectives.virtual.clusters import check_folded, on_gpus

all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def train(model: nn.Module, batch: int = 4, is_asked: bool = False) -> None:
    """Train for two steps; if *is_asked*, wait for the loss of each."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.ones(batch, 16)).sum()
        loss.backward()
        optimizer.step()
        if is_asked:
            loss.item()


def data_parallel(rank: int, **options) -> str:
    dist.init_process_group("nccl")
    torch.manual_seed(rank)
    train(DistributedDataParallel(nn.Linear(16, 16)), **options)
    return f"checkpoint-{rank}.pt"


def fully_sharded(rank: int, shape: tuple[int, ...] = (), hidden: int = 32) -> None:
    dist.init_process_group("nccl")
    shape = shape or (dist.get_world_size(),)
    model = nn.Sequential(nn.Linear(16, hidden), nn.Linear(hidden, 16))
    whole = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for layer in model:
        fully_shard(layer, mesh=whole)
    train(fully_shard(model, mesh=whole))


def pipeline(rank: int) -> None:
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


def waiting_for_the_loss_of_rank_0(rank: int) -> None:
    data_parallel(rank, is_asked=rank == 0)


def a_shorter_last_batch(rank: int) -> None:
    data_parallel(rank, batch=2 if rank == 15 else 4)


COSTLY = pytest.mark.costly
STAGES = tuple(f"ranks {first}, {first + 1} as rank {first}" for first in (0, 2, 4, 6))
SIX_OF_EIGHT = ("ranks 0, 1, 2, 3, 4, 5 as rank 0",)  # of 3 rows; then 2, then none


@pytest.mark.parametrize(
    ("work", "ranks", "folded", "options"),
    [
        (data_parallel, 16, ("ranks 0-15 as rank 0",), {}),
        (data_parallel, 16, ("ranks 0-4, 6-15 as rank 0",), {"conditions": [Straggler(5, 2.0)]}),
        (waiting_for_the_loss_of_rank_0, 16, ("ranks 1-15 as rank 1",), {}),
        (a_shorter_last_batch, 16, ("ranks 0-14 as rank 0",), {}),
        (fully_sharded, 16, ("ranks 0-15 as rank 0",), {}),
        pytest.param(  # groups share links
            partial(fully_sharded, shape=(4, 4)), 16, ("ranks 0-15 as rank 0",), {"network": "aws-p4d"},
            marks=COSTLY,
        ),
        pytest.param(partial(fully_sharded, hidden=20), 8, SIX_OF_EIGHT, {"fake": True}, marks=COSTLY),
        (pipeline, 8, STAGES, {}),
    ],
)  # fmt: skip
def test_ranks_that_do_the_same_are_one_thread(work, ranks, folded, options):
    assert check_folded(work, ranks, **options).report.folded == folded


def test_what_a_folded_rank_returns_is_what_its_representative_does():
    assert on_gpus(data_parallel, 8, fold=True).results == ["checkpoint-0.pt"] * 8


def test_output_of_attempts_that_are_given_up_is_not_shown(capsys):
    def work(rank):
        dist.init_process_group("nccl")
        print(f"rank {rank}")
        train(nn.Linear(16, 16), batch=2 if rank == 0 else 4)

    on_gpus(work, 8, fold=True)

    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["rank 0", "rank 1"]
    assert len(set(shown)) == len(shown)  # ranks that are compared in the last attempt write, too


SHARES = st.lists(st.integers(1, 3), min_size=4, max_size=4).map(tuple)


def exchanging(rank: int, iterations: list[tuple[int, ...]]) -> None:
    """Send each rank of four its share of rows, work on what arrives, and say how much that is."""
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "ep"))
    for shares in iterations:
        dist.all_reduce(torch.ones(8192))
        out_of, into = [1024 * share for share in shares], [1024 * shares[mesh.get_local_rank("ep")]] * 4
        rows = torch.empty(sum(into))
        dist.all_to_all_single(rows, torch.ones(sum(out_of)), into, out_of, group=mesh.get_group("ep"))
        rows * 2
        print(f"rank {rank} has {sum(into)}")
        end_iteration()


@pytest.mark.parametrize("fake", [False, True])
@settings(max_examples=4)
@given(iterations=st.lists(SHARES, min_size=1, max_size=4))
@example(iterations=[(1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (2, 1, 1, 2)])
def test_unequal_parts_of_any_iteration_tell_ranks_apart(fake, iterations):
    outcome = check_folded(lambda rank: exchanging(rank, iterations), 8, fake=fake)

    places = {tuple(shares[place] for shares in iterations) for place in range(4)}
    assert len(outcome.report.folded) == len(places)


def test_output_that_comes_again_as_ranks_turn_out_to_differ_late_is_announced(capsys):
    shares = [(1, 1, 1, 1)] * 3
    (quiet, late) = (
        on_gpus(lambda rank, own=own: exchanging(rank, own), 8, fold=True)
        for own in (shares, [*shares, (2, 1, 1, 2)])
    )

    assert REPEATED not in quiet.report.notices
    assert REPEATED in late.report.notices
    assert capsys.readouterr().out.count("rank 0 has 4096\n") == 3 + 3 + 3


TOKENS = 1024


def gathering(expert: int, num_iterations: int) -> list[int]:
    """Work on the tokens of all ranks that go to an *expert*; return how many, by iteration."""
    dist.init_process_group("nccl")
    ranks, tokens, found = dist.get_world_size(), torch.randn(TOKENS, 8, device="cuda"), []
    for _ in range(num_iterations):
        chosen = torch.randn(TOKENS, ranks, device="cuda").topk(1)[1]
        of_all, experts = tokens.new_empty(ranks, TOKENS, 8), chosen.new_empty(ranks, TOKENS, 1)
        dist.all_gather([*of_all], tokens)
        dist.all_gather([*experts], chosen)
        own = of_all[(experts == expert).squeeze(-1)]
        torch.nn.functional.gelu(own @ torch.randn(8, 4096, device="cuda"))
        found.append(len(own))
        end_iteration()
    return found


@settings(max_examples=max(2, settings.default.max_examples // 8))
@given(iterations=st.lists(SHARES, min_size=1, max_size=4))
@example(iterations=[(1, 1, 2, 1)])
@example(iterations=[*[(1, 1, 1, 1)] * 3, (2, 1, 1, 2)])
def test_sizes_that_follow_from_routing_in_any_iteration_tell_ranks_apart(tmp_path_factory, iterations):
    routing = tmp_path_factory.mktemp("routing") / "routing.json"
    routing.write_text(json.dumps({"schema": 1, "routers": {"": iterations}}))

    outcome = check_folded(lambda rank: gathering(rank, len(iterations)), 4, fake=True, routing=routing)

    for rank, found in enumerate(outcome.results):
        assert found == [pytest.approx(4 * TOKENS * own[rank] / sum(own), abs=4) for own in iterations]


def test_sizes_of_more_ranks_than_can_have_a_thread_each_are_said_not_to_be_compared():
    def notices(routing: str) -> list[str]:
        outcome = on_gpus(lambda rank: gathering(0, 3), 72, fake=True, fold=True, routing=routing)
        return [notice for notice in outcome.report.notices if notice.startswith(SIZES_NOT_COMPARED)]

    assert notices("power-law:1.2")
    assert not notices("balanced")


@pytest.mark.costly
@settings(max_examples=6)
@given(
    shape=st.sampled_from([(8,), (2, 4), (4, 2), (2, 2, 2)]),
    special=st.sampled_from([[], [0], [7], [4, 5, 6, 7]]),
    calls=st.lists(
        st.tuples(
            st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "compute", "item"]),
            st.integers(0, 2),
            st.sampled_from([8, 4096, 1 << 20]),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_folded_scripts_take_the_time_of_unfolded_ones(shape, special, calls):
    def work(rank):
        dist.init_process_group("nccl")
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("a", "b", "c")[: len(shape)])
        for kind, dim, size in calls:
            group = mesh.get_group(dim % len(shape))
            tensor = torch.zeros(size)
            if kind == "compute":
                tensor * 2
                if rank in special:
                    tensor + 1
            elif kind == "item" and rank in special:
                tensor.sum().item()
            elif kind == "all_reduce":
                dist.all_reduce(tensor, group=group)
            elif kind == "all_gather":
                all_gather(tensor.new_empty(size * group.size()), tensor, group=group)
            elif kind == "reduce_scatter":
                reduce_scatter(tensor.new_empty(size), tensor.new_empty(size * group.size()), group=group)

    check_folded(work, 8)
