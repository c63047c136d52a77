"""Context parallelism on rank threads: each rank is in its own, and gets what attention over all gives."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy
from torch.nn.functional import scaled_dot_product_attention as torchs_attention

from collectives.virtual import Roofline
from tests.collectives.virtual.clusters import in_group

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of a prototype
ON_GPUS = {"network": "dgx-h100", "compute": Roofline("h100")}


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
