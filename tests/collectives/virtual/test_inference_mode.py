"""Inference mode around collectives and views: the numbers are those without it."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import Roofline, run
from tests.given import switch

all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _model(device: str) -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(device)
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    return nn.parallel.DistributedDataParallel(model).eval()


def _validated(model: nn.Module, device: str) -> dict[str, list[float]]:
    """Return what a rank computes and exchanges; some calls end where the caller waits for them, later."""
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = nn.Parameter(torch.arange(4.0, device=device).reshape(1, 1, 4))
    made = (weight * (rank + 1)).flatten()
    results = {"view": weight.expand(2, -1, -1).sum(0).flatten(), "part": weight.flatten().split(2)[1]}

    parts = [torch.empty_like(made) for _ in range(size)]
    dist.all_gather(parts, made)
    results["all_gather"] = torch.cat(parts)
    for name, out, call in (
        ("all_reduce", made.clone(), dist.all_reduce),
        ("broadcast", made.clone(), lambda own: dist.broadcast(own, 1)),
        ("gathered", made.new_empty(size * 4), lambda own: all_gather(own, made)),
        ("reduce_scatter", made.new_empty(4 // size), lambda own: reduce_scatter(own, made)),
        ("all_to_all", torch.empty_like(made), lambda own: dist.all_to_all_single(own, made)),
    ):
        call(out)
        results[name] = out
    results["model"] = model(made.expand(3, -1)).flatten()
    return {name: tensor.tolist() for name, tensor in results.items()}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("compute", [None, "h100"])
def test_collectives_and_views_give_the_same_in_inference_mode(device, compute):
    def work(rank):
        dist.init_process_group("gloo")
        model = _model(device)
        with torch.no_grad():
            expected = _validated(model, device)
        with torch.inference_mode():
            found = _validated(model, device)
            weight = nn.Parameter(torch.ones(4, device=device))
            assert (weight * 2).is_inference()
            late = weight * (rank + 1)
            pending = dist.all_reduce(late, async_op=True)
        pending.wait()
        dist.destroy_process_group()
        return expected == found, late.tolist()

    model = None if compute is None else Roofline(compute)
    assert run(work, network=switch(2), compute=model).results == [(True, [3.0] * 4)] * 2
