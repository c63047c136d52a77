"""Scripts of stock systems that are none of a drawn `TrainingScript`, by name."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

import ddp
from tests.collectives.virtual.training_scripts import TrainingScript


@dataclass(frozen=True)
class StockScript:
    """A script that does *body* on each of *ranks*, in a group of all, on a device of its own."""

    body: Callable[[], Any]
    ranks: int = 4

    def __call__(self, rank: int) -> None:
        """Do it on *rank*."""
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        self.body()
        dist.destroy_process_group()


def trained(model: nn.Module) -> None:
    """Train *model* for two steps."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 8, device="cuda")).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def layers() -> nn.Sequential:
    """Return a model of layers of eight numbers."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8)).cuda()


def _synchronized_batch_norm() -> None:
    model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.Conv1d(6, 4, 3, padding=2)).cuda()
    trained(DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model)))


def _context_parallelism() -> None:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    query, key, value = parts = [
        torch.randn(2, 4, 32, 16, device="cuda", dtype=torch.bfloat16) for _ in "qkv"
    ]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3, no_restore_buffers=set(parts)):
        for part in parts:
            part.requires_grad_()
        nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()


def _divided_attention_and_loss() -> None:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    heads = distribute_tensor(torch.randn(2, 4, 16, 8, device="cuda"), mesh, [Shard(1)]).requires_grad_()
    nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
    scores = distribute_tensor(torch.randn(4, 16, device="cuda"), mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        nn.functional.cross_entropy(scores, torch.arange(4, device="cuda")).backward()


def _full_state() -> None:
    model = FullyShardedDataParallel(layers(), use_orig_params=True)
    trained(model)
    kept = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, kept):
        model.state_dict()
    trained(model)


STOCK_SCRIPTS: dict[str, TrainingScript | StockScript] = {
    **{
        system: TrainingScript(system, 4, ("layer norm",), extras=frozenset({"clip"}))
        for system in ("ddp", "zero", "fsdp2", "hsdp", "1f1b")
    },
    "our ddp": StockScript(lambda: trained(ddp.DistributedDataParallel(layers())), 2),
    "copied": StockScript(lambda: trained(copy.deepcopy(DistributedDataParallel(layers()).module))),
    "synchronized batch norm": StockScript(_synchronized_batch_norm),
    "context parallelism": StockScript(_context_parallelism),
    "divided attention and loss": StockScript(_divided_attention_and_loss),
    "full state": StockScript(_full_state),
}
