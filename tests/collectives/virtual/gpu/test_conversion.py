"""Modules and files on virtual CUDA devices: moved, trained, saved and loaded as on real ones."""

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import ddp
from collectives.virtual import Roofline, run
from tests.collectives.virtual.clusters import in_group, on_gpus
from tests.given import switch

SHORT = torch.bfloat16


def by_shards(model: nn.Module) -> nn.Module:
    device = next(model.parameters()).device.type
    return fully_shard(model, mesh=init_device_mesh(device, (dist.get_world_size(),)))


@pytest.mark.parametrize(
    ("wrap", "is_before"),
    [
        (DistributedDataParallel, False), (ddp.DistributedDataParallel, False), (by_shards, False),
        (DistributedDataParallel, True), (nn.Module.train, True),
    ],
)  # fmt: skip
def test_training_on_cuda_is_that_on_the_cpu_also_if_the_optimizer_was_made_before(wrap, is_before):
    def trained(rank, device):
        dist.init_process_group("nccl")
        torch.manual_seed(rank)
        layers = nn.Linear(8, 24), nn.BatchNorm1d(24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 8)
        module = nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(module.parameters(), foreach=False)
        model = wrap(module.to(device))
        if not is_before:
            optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        losses = []
        for _ in range(3):
            loss = (model(torch.randn(4, 8).to(device)) ** 2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        left = module.cpu().state_dict().values() if is_before else model.buffers()
        return losses, [tensor.tolist() for tensor in left]

    on_cuda, on_cpu = (
        run(lambda rank: trained(rank, device), 4, "dgx-h100")  # noqa: B023
        for device in ("cuda", "cpu")
    )
    modelled = on_gpus(lambda rank: trained(rank, f"cuda:{rank}"), 4)

    assert on_cuda.results == modelled.results == on_cpu.results
    assert on_cuda.times_ps == on_cpu.times_ps


SHARDS = {
    "flat": lambda model: FullyShardedDataParallel(
        model, mixed_precision=MixedPrecision(SHORT, SHORT, SHORT), use_orig_params=True
    ),
    "each": lambda model: fully_shard(model, mp_policy=MixedPrecisionPolicy(SHORT, torch.float32)),
}


@pytest.mark.costly
@pytest.mark.parametrize("shards", SHARDS)
def test_sharded_training_in_sixteen_bits_learns(shards):
    def losses(rank):
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        model = SHARDS[shards](
            nn.Sequential(layer, nn.LayerNorm(16), nn.GroupNorm(1, 5), nn.RMSNorm(16)).cuda()
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        inputs, found = torch.randn(2, 5, 16).cuda(), []
        for _ in range(3):
            loss = model(inputs).float().sub(1).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
        return found

    for first, second, third in in_group(losses, 2, network="dgx-h100", compute=Roofline("h100")).results:
        assert first > second > third


def test_parameters_keep_what_users_write_on_them_and_who_refers_to_them():
    def work(rank):
        layer = nn.Linear(2, 2)
        before, layer.weight.mine = layer.weight, "kept"
        layer.cuda()
        there = layer.weight is before, layer.weight.is_cuda, layer.weight.mine
        layer.half()
        layer.cpu()
        return there, (layer.weight is before, str(layer.weight.dtype), layer.weight.mine), type(before)

    [result] = run(work, network=switch(1), compute=Roofline("h100")).results

    assert result == ((True, True, "kept"), (True, "torch.float16", "kept"), nn.Parameter)


@pytest.mark.parametrize("compute", [None, Roofline("h100")], ids=["no model", "h100"])
def test_hooks_of_parameters_stay_whatever_a_module_is_converted_to(compute):
    def work(rank):
        layer, seen, passes = nn.Linear(2, 2, bias=False), [], []
        layer.weight.register_hook(lambda gradient: seen.append(gradient.device.type))
        layer.weight.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.device.type))
        for convert in (layer.cpu, layer.cuda, layer.cuda, layer.double, layer.cpu):
            convert()
            layer(torch.ones_like(layer.weight)).sum().backward()
            passes.append(list(seen))
            seen.clear()
        return passes

    [passes] = run(work, network=switch(1), compute=compute).results

    assert passes == [[device] * 2 for device in ("cpu", "cuda", "cuda", "cuda", "cpu")]


@pytest.mark.parametrize("make", [DistributedDataParallel, ddp.DistributedDataParallel])
def test_gradients_are_averaged_though_a_wrapped_module_is_sent_to_its_own_device_again(make):
    def work(rank):
        dist.init_process_group("nccl")
        layer = nn.Linear(1, 1, bias=False).cuda()
        model = make(layer)
        layer.cuda()
        model(torch.full((1, 1), float(rank), device="cuda")).sum().backward()
        return layer.weight.grad.item()

    assert run(work, network=switch(2), compute=Roofline("h100")).results == [0.5, 0.5]


PLACES: list[tuple[Any, str]] = [
    (None, "saved"), ("cpu", "cpu"), ("cuda", "saved"), ("cuda:1", "cuda:1"),
    (torch.device("cuda:0"), "cuda:0"), ({"cuda:1": "cuda:0"}, "cuda:0"),
    (lambda storage, place: storage, "cpu"), (lambda storage, place: storage.cuda(1), "cuda:1"),
]  # fmt: skip


@pytest.mark.parametrize("compute_model", [None, Roofline("h100")])
@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_are_loaded_where_they_were_or_where_it_is_asked_for(zipped, compute_model):
    def work(rank):
        torch.cuda.set_device(rank)
        weight = torch.randn(3, 2).cuda()
        file = io.BytesIO()
        torch.save({"weight": weight}, file, _use_new_zipfile_serialization=zipped)

        for place, expected in PLACES:
            file.seek(0)
            loaded = torch.load(file, map_location=place)["weight"]
            assert str(loaded.device) == (f"cuda:{rank}" if expected == "saved" else expected)
            assert loaded.tolist() == weight.tolist()

    run(work, 2, "dgx-h100", compute=compute_model)


def test_models_and_copies_stay_on_their_device():
    def work(rank):
        dist.init_process_group("nccl")
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(f"cuda:{rank}")
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)

        gathered = [None, None]
        dist.all_gather_object(gathered, model[0].weight)
        places = [loaded[0].weight, loaded[1].running_var, copy.copy(model[0].weight), *gathered]
        assert isinstance(loaded[0].weight, nn.Parameter)
        assert loaded(torch.ones(2, 3).cuda(rank)).is_cuda
        return [str(tensor.device) for tensor in places]

    results = run(work, 2, "dgx-h100").results

    assert results == [[f"cuda:{rank}"] * 3 + ["cuda:0", "cuda:1"] for rank in range(2)]
