"""Shardings of DTensor's operations are the same for whoever asks, and hold nothing of who asked first."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from collectives.virtual import Roofline, run
from collectives.virtual.isolation import shardings


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
    return [
        parameter.to_local().tolist() for parameter in model.parameters() if isinstance(parameter, DTensor)
    ]


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
    options = {"network": "dgx-h100", "compute": Roofline("h100")} if device == "cuda" else {}
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
