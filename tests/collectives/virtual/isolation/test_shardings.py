"""DTensors on rank threads: shardings are the same for whoever asks, and each rank's contexts its own."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.nn.functional import scaled_dot_product_attention as torchs_attention

from collectives.virtual import Roofline, run
from collectives.virtual.isolation import shardings
from tests.collectives.virtual.clusters import in_group

ON_GPUS = {"network": "dgx-h100", "compute": Roofline("h100")}
of_a_prototype = pytest.mark.filterwarnings("ignore")  # torch warns of it


def train(rank: int, device: str = "cpu") -> list[Any]:
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    with torch.device(device):
        model = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(2):
        torch.manual_seed(10 * step + rank // 2)
        model(torch.randn(4, 5, device=device)).square().sum().clone().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [own.to_local().tolist() for own in model.parameters() if isinstance(own, DTensor)]


def operate(rank: int, device: str = "cpu") -> list[Any]:
    mesh, numbers = init_device_mesh(device, (4,)), torch.arange(35.0, device=device)
    rows = distribute_tensor(numbers.reshape(7, 5), mesh, [Shard(0)])  # not alike on all ranks
    columns = distribute_tensor(numbers.reshape(5, 7), mesh, [Shard(1)])
    made = [
        rows @ columns, rows.view(7, 5, 1), rows.new_zeros(7, 5) + 1,
        (rows * 2).sum(0).redistribute(placements=[Replicate()]), torch.stack([rows, rows]),
        DTensor.from_local(torch.ones(3, device=device), mesh, [Partial()]) + 1, rows + columns.t(),
    ]  # fmt: skip
    return [[tensor.to_local().tolist(), tensor.full_tensor().tolist()] for tensor in made]


@pytest.mark.filterwarnings("ignore:.*view tensor")
@pytest.mark.parametrize("program", [train, operate])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_results_and_times_are_those_of_shardings_that_are_found_each_time(program, device, monkeypatch):
    body = partial(program, device=device)
    options = ON_GPUS if device == "cuda" else {}
    found = [run(body, ranks=4, **options) for _ in range(2)]
    monkeypatch.setattr(shardings, "_kept_for", lambda device_type: None)
    each_time = run(body, ranks=4, **options)

    assert [one.results for one in found] == [each_time.results] * 2
    assert [one.times_ps for one in found] == [each_time.times_ps] * 2


def test_a_sharding_is_found_once_and_then_has_the_mesh_of_who_asks(monkeypatch):
    asked, find = [], ShardingPropagator.propagate_op_sharding_non_cached

    def finding(self, schema):
        asked.append(schema.op)
        return find(self, schema)

    monkeypatch.setattr(ShardingPropagator, "propagate_op_sharding_non_cached", finding)

    def add(rank):
        mesh = init_device_mesh("cpu", (2, 2))
        tensor = distribute_tensor(torch.ones(11, 13), mesh, [Shard(0), Shard(1)])
        return (tensor + tensor).device_mesh is mesh

    for _ in range(2):
        assert run(add, ranks=4).results == [True] * 4
    assert asked.count(torch.ops.aten.add.Tensor) == 1


def test_nothing_of_a_run_is_kept():
    run(operate, ranks=4)

    kept = [part for sharding in shardings._shardings.values() for part in specifications(vars(sharding))]

    assert kept
    assert {part.mesh for part in kept} == {None}


def specifications(thing) -> list[Any]:
    """Return the specifications anywhere in *thing*."""
    if hasattr(thing, "placements"):
        return [thing]
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, tuple | list) else ()
    return [found for part in parts for found in specifications(part)]


def test_rules_of_a_script_are_asked_each_time():
    from torch.distributed.tensor.experimental import register_sharding

    library = torch.library.Library("testbed_shardings", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    asked = []

    @register_sharding(torch.ops.testbed_shardings.twice.default)
    def rule(x: Any) -> Any:
        asked.append(1)
        return [([Replicate()], [Replicate()]), ([Shard(0)], [Shard(0)])]

    def twice(rank):
        tensor = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (2,)), [Shard(0)])
        return torch.ops.testbed_shardings.twice(tensor).full_tensor().tolist()

    assert run(twice, ranks=2).results == [[2.0] * 4] * 2
    once = len(asked)
    run(twice, ranks=2)

    assert len(asked) == 2 * once > 0


@of_a_prototype
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_over_parts_of_a_sequence_is_that_over_the_whole(dtype):
    def work(rank):
        torch.cuda.set_device(rank)
        mesh = init_device_mesh("cuda", (4,))
        torch.manual_seed(0)
        whole = [torch.randn(1, 2, 256, 16, device="cuda", dtype=dtype) for _ in "qkv"]
        parts = [tensor.clone() for tensor in whole]

        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3, no_restore_buffers=set(parts)):
            output = attended(parts)
        given = parts[0].grad
        assert given is not None
        output, given = context_parallel_unshard(mesh, [output, given], [2, 2])
        expected = attended(whole)  # while other ranks may still be at theirs
        assert whole[0].grad is not None
        return (output - expected).abs().max().item(), (given - whole[0].grad).abs().max().item()

    differences = in_group(work, 4, "nccl", **ON_GPUS).results

    limit = 0.05 if dtype is torch.bfloat16 else 1e-5
    assert all(max(found) < limit for found in differences)
    assert torch.nn.functional.scaled_dot_product_attention is torchs_attention


def attended(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return causal attention, of which the gradients are those of its squares."""
    for tensor in tensors:
        tensor.requires_grad_()
    query, key, value = tensors
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    output.float().square().sum().backward()
    return output.detach()


@of_a_prototype
def test_loss_parallelism_after_context_parallelism_ends_for_each_rank_by_itself():
    def work(rank):
        torch.cuda.set_device(rank)
        mesh = init_device_mesh("cuda", (2,))
        buffer = torch.ones(1, 1, 64, 8, device="cuda", dtype=torch.bfloat16)
        with context_parallel(mesh, buffers=[buffer], buffer_seq_dims=[2], no_restore_buffers={buffer}):
            torch.nn.functional.scaled_dot_product_attention(buffer, buffer, buffer, is_causal=True)
        scores = distribute_tensor(torch.ones(4, 16, device="cuda"), mesh, [Shard(1)]).requires_grad_()
        for _ in range(2):
            with loss_parallel():
                loss = cross_entropy(scores, torch.arange(4, device="cuda"))
                loss.backward()
        return float(loss.item())

    assert in_group(work, 2, "nccl", **ON_GPUS).results == [pytest.approx(2.7725887)] * 2
