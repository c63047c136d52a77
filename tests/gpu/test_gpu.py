"""Runs on a GPU: one rank over NCCL, several ranks on one GPU over Gloo, one GPU each over NCCL."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from collectives.communicators.connection import connect
from ddp import DistributedDataParallel
from tests.collectives.transports import transport_contract as contract

pytestmark = [pytest.mark.gpu, pytest.mark.distributed]

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8)


def all_reduces(group, algorithm: str, device: torch.device) -> bytes:
    """Check sums of all dtypes and sizes; return the bits of a sum that rounds."""
    communicator = connect(group, algorithm, timeout=60, device=device)
    rank, world_size = communicator.rank, communicator.world_size
    for count in (0, 1, 2, 3, 7, 1000, 100_003):
        for dtype in DTYPES:
            tensor = contract.part(rank, count, dtype).to(device)
            communicator.all_reduce(tensor)
            assert torch.equal(tensor.cpu(), contract.whole(world_size, count, dtype)), (count, dtype)
    tensors = [torch.full((1000,), float(n), device=device) for n in range(8)]
    works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [n * world_size for n in range(8)]
    for root in range(world_size):
        tensor = torch.full((9,), float(rank), device=device)
        communicator.broadcast(tensor, root)
        assert (tensor == root).all()
    gathered = torch.zeros(world_size, 5, device=device)
    communicator.all_gather(gathered, torch.full((5,), float(rank), device=device))
    assert torch.equal(gathered[:, 0].cpu(), torch.arange(world_size, dtype=torch.float32))
    communicator.barrier()
    rounding = torch.randn(1001, generator=torch.Generator().manual_seed(rank)).to(device)
    communicator.all_reduce(rounding)
    return rounding.cpu().numpy().tobytes()


def trains(group, algorithm: str, device: torch.device) -> list[torch.Tensor]:
    """Train a few steps with our DDP; return the parameters."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    model = DistributedDataParallel(
        network, process_group=group, algorithm=algorithm, bucket_cap_mb=0.002, timeout=60
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randn(12, 16, generator=torch.Generator().manual_seed(1)).to(device)
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    for _ in range(5):
        optimizer.zero_grad()
        model(images[rank::world_size]).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in network.parameters()]


def over(rank: int, world_size: int, backend: str, algorithm: str, what: str):
    device = torch.device("cuda", rank if backend == "nccl" else 0)
    torch.cuda.set_device(device)
    group = dist.new_group(list(range(world_size)), backend=backend)
    return {"all_reduces": all_reduces, "trains": trains}[what](group, algorithm, device)


def check_training(results: list[list[torch.Tensor]], alone: list[torch.Tensor]) -> None:
    for parameters in results:
        assert all(torch.equal(mine, other) for mine, other in zip(parameters, results[0], strict=True))
        for mine, reference in zip(parameters, alone, strict=True):
            torch.testing.assert_close(mine, reference)


@pytest.mark.parametrize("algorithm", ["native", "naive", "ring", "tree"])
def test_one_rank_over_nccl(pool, algorithm):
    pool.run(over, 1, "nccl", algorithm, "all_reduces")
    pool.run(over, 1, "nccl", algorithm, "trains")


@pytest.mark.parametrize("algorithm", ["naive", "ring", "tree"])
def test_ranks_that_share_one_gpu_over_gloo(pool, algorithm):
    results = pool.run(over, 3, "gloo", algorithm, "all_reduces")

    assert all(result == results[0] for result in results)
    alone = pool.run(over, 1, "gloo", algorithm, "trains")[0]
    check_training(pool.run(over, 3, "gloo", algorithm, "trains"), alone)


@pytest.mark.parametrize("algorithm", ["native", "naive", "ring", "tree"])
def test_ranks_with_a_gpu_each_over_nccl(pool, algorithm):
    world_size = min(torch.cuda.device_count(), 4)
    if world_size < 2:
        pytest.skip("fewer than two CUDA devices")
    results = pool.run(over, world_size, "nccl", algorithm, "all_reduces")

    assert all(result == results[0] for result in results)
    alone = pool.run(over, 1, "nccl", algorithm, "trains")[0]
    check_training(pool.run(over, world_size, "nccl", algorithm, "trains"), alone)
