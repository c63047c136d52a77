"""Training scripts of stock systems, drawn at random: pieces of a model, and how ranks train it."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from hypothesis import strategies as st
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

SHORT = torch.bfloat16


class Attention(nn.Module):
    """Causal attention of two heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.into(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Recurrent(nn.LSTM):
    """An LSTM of which only the outputs count."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__(width, width, bias=bias, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]


class Perceptron(nn.Module):
    """Two layers, which tensor parallelism divides by columns and by rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


PIECES: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width), "perceptron": Perceptron, "attention": Attention,
    "layer norm": nn.LayerNorm, "rms norm": nn.RMSNorm, "group norm": lambda width: nn.GroupNorm(1, 5),
    "dropout": lambda width: nn.Dropout(0.1),
    "encoder": lambda width: nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True),
    "convolution": lambda width: nn.Conv1d(5, 5, 3, padding=1), "batch norm": lambda width: nn.BatchNorm1d(5),
    "recurrent": lambda width: Recurrent(width, bias=True),
    "recurrent without bias": lambda width: Recurrent(width, bias=False),
}  # fmt: skip
"""Modules of (batch, 5, width) that keep that shape, by name."""

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    "one by one": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, foreach=False),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
}

INITIALISERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "normal": nn.init.normal_, "uniform": nn.init.uniform_, "truncated": nn.init.trunc_normal_,
    "xavier": nn.init.xavier_uniform_, "kaiming": nn.init.kaiming_normal_,
}  # fmt: skip
"""Not ``orthogonal_``, which torch refuses of a `DTensor` whose rows do not divide by the ranks."""

SYSTEMS = (
    "alone", "ddp", "ddp fp16 hook", "ddp static", "zero", "fsdp1", "fsdp1 grad op", "fsdp2", "fsdp2 kept",
    "hsdp", "tp", "tp fsdp2", "1f1b", "gpipe",
)  # fmt: skip
"""How the ranks work together."""


@dataclass(frozen=True)
class TrainingScript:
    """One script; its fields are drawn at random.

    Attributes:
        system: how the ranks work together.
        ranks: how many.
        pieces: of the model.
        width: of its tensors.
        optimizer: by name.
        precision: ``float32``, ``autocast``, or ``policy`` (of sharded systems; elsewhere autocast).
        extras: other things that scripts do.
        steps: how often the optimizer steps.
        words: rows of an embedding before the pieces, and of a layer after them; 0: there are neither.
        initialiser: of matrices, by name, where weights are made without data and drawn on the device.
    """

    system: str
    ranks: int
    pieces: tuple[str, ...]
    width: int = 16
    optimizer: str = "adamw"
    precision: str = "float32"
    extras: frozenset[str] = field(default_factory=frozenset)
    steps: int = 2
    words: int = 0
    initialiser: str = ""

    def __call__(self, rank: int) -> None:
        """Train on *rank*."""
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.manual_seed(0 if "one seed" in self.extras else rank)
        if self.system in ("1f1b", "gpipe"):
            self._pipeline(rank)
        else:
            model = self._parallel(self._model())
            if self.initialiser:
                model.to_empty(device="cuda")
                for weight in model.parameters():
                    INITIALISERS[self.initialiser](weight) if weight.dim() > 1 else nn.init.zeros_(weight)
            self._train(model)
        dist.destroy_process_group()

    def _model(self) -> nn.Module:
        with torch.device("meta" if self.initialiser else "cpu"):
            pieces = [PIECES[name](self.width) for name in self.pieces]
            if self.words:
                first, last = (
                    nn.Embedding(self.words, self.width),
                    nn.Linear(self.width, self.words, bias=False),
                )
                if "tied" in self.extras:
                    last.weight = first.weight
            else:
                first, last = nn.Linear(self.width, self.width), nn.Identity()
            if "checkpoint" in self.extras:
                pieces = [checkpoint_wrapper(piece) for piece in pieces]
            model = nn.Sequential(first, *pieces, last)
        if self.initialiser:
            return model
        return torch.compile(model.cuda()) if "compile" in self.extras else model.cuda()

    def _parallel(self, model: nn.Module) -> nn.Module:
        precise = self.precision != "policy"
        policy = MixedPrecisionPolicy() if precise else MixedPrecisionPolicy(SHORT, torch.float32)
        match self.system:
            case "ddp" | "zero":
                return DistributedDataParallel(model, gradient_as_bucket_view="views" in self.extras)
            case "ddp static":
                return DistributedDataParallel(model, static_graph=True)
            case "ddp fp16 hook":
                from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

                wrapped = DistributedDataParallel(model)
                wrapped.register_comm_hook(None, fp16_compress_hook)
                return wrapped
            case "fsdp1" | "fsdp1 grad op":
                kept = ShardingStrategy.SHARD_GRAD_OP if "op" in self.system else ShardingStrategy.FULL_SHARD
                return FullyShardedDataParallel(
                    model,
                    sharding_strategy=kept,
                    mixed_precision=None if precise else MixedPrecision(SHORT, SHORT, SHORT),
                    use_orig_params=True,
                )
            case "fsdp2" | "fsdp2 kept" | "hsdp":
                shape = (2, self.ranks // 2) if self.system == "hsdp" else (self.ranks,)
                names = ("replicate", "shard")[-len(shape) :]
                self._shard(model, init_device_mesh("cuda", shape, mesh_dim_names=names), policy)
            case "tp" | "tp fsdp2":
                mesh = init_device_mesh("cuda", (self.ranks // 2, 2), mesh_dim_names=("data", "tensor"))
                for piece in model.modules():
                    if isinstance(piece, Perceptron):
                        parallelize_module(
                            piece, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
                        )
                    elif isinstance(piece, nn.LayerNorm) and "sequence" in self.extras:
                        parallelize_module(piece, mesh["tensor"], SequenceParallel(use_local_output=True))
                if self.words and "tied" not in self.extras:
                    parallelize_module(model[0], mesh["tensor"], RowwiseParallel(input_layouts=Replicate()))
                    parallelize_module(model[-1], mesh["tensor"], ColwiseParallel(output_layouts=Replicate()))
                if "fsdp2" in self.system:
                    self._shard(model, mesh["data"], policy)
        return model

    def _shard(self, model: nn.Module, mesh, policy: MixedPrecisionPolicy) -> None:
        kept = self.system == "fsdp2 kept"
        pieces = list(model.children())
        for piece in pieces[1:-1] if self.words else pieces:
            if any(True for _ in piece.parameters()):
                fully_shard(piece, mesh=mesh, mp_policy=policy, reshard_after_forward=not kept)
        fully_shard(model, mesh=mesh, mp_policy=policy)

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.system == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer  # it warns when it is imported

            return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
        if self.system == "tp":  # lists take no plain tensors beside those of DTensor
            return torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
        return OPTIMIZERS[self.optimizer](model.parameters())

    def _train(self, model: nn.Module) -> None:
        optimizer = self._optimizer(model)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        per_step = 2 if "accumulate" in self.extras else 1
        for number in range(1, self.steps * per_step + 1):
            is_last = number % per_step == 0
            waits = isinstance(model, DistributedDataParallel) and self.system != "ddp static" and not is_last
            with model.no_sync() if waits else nullcontext():
                loss = self._loss(model)
                loss.backward()
            if not is_last:
                continue

            if "draws" in self.extras:
                weight = next(weight for weight in model.parameters() if isinstance(weight, DTensor))
                with torch.no_grad():
                    weight.add_(torch.randn_like(weight))
                    nn.functional.dropout(weight, 0.1)
            if "clip" in self.extras and not self.system.startswith("tp"):  # torch takes no two meshes
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            if "item" in self.extras:
                loss.item()

    def _loss(self, model: nn.Module) -> torch.Tensor:
        inputs = torch.randint(self.words, (2, 5)) if self.words else torch.randn(2, 5, self.width)
        if "pinned" in self.extras:
            inputs = inputs.pin_memory()
        inputs = inputs.to("cuda", non_blocking=True)
        with torch.autocast("cuda", SHORT, enabled=self.precision == "autocast"):
            outputs = model(inputs).float()
        if self.words:
            return nn.functional.cross_entropy(outputs.flatten(0, 1), inputs.flatten())
        return outputs.square().mean()

    def _pipeline(self, rank: int) -> None:
        stage = PipelineStage(self._model(), rank, self.ranks, torch.device("cuda"))
        kind = Schedule1F1B if self.system == "1f1b" else ScheduleGPipe
        schedule = kind(stage, self.ranks, loss_fn=nn.functional.mse_loss)
        optimizer = self._optimizer(stage.submod)
        for _ in range(self.steps):
            batch = torch.randn(2 * self.ranks, 5, self.width, device="cuda")
            given = (batch,) if rank == 0 else ()
            schedule.step(*given, **({"target": batch} if rank == self.ranks - 1 else {}))
            optimizer.step()
            optimizer.zero_grad()


def training_scripts(
    worlds: tuple[int, ...], systems: tuple[str, ...] = SYSTEMS
) -> st.SearchStrategy[TrainingScript]:
    """Return scripts on as many ranks as one of *worlds* says."""
    return st.builds(
        TrainingScript,
        st.sampled_from(systems),
        st.sampled_from(worlds),
        st.lists(st.sampled_from(sorted(PIECES)), max_size=3).map(tuple),
        st.sampled_from([16, 24]),
        st.sampled_from(sorted(OPTIMIZERS)),
        st.sampled_from(["float32", "autocast", "policy"]),
        st.frozensets(st.sampled_from(EXTRAS), max_size=3),
    )


EXTRAS = ("accumulate", "checkpoint", "clip", "compile", "item", "pinned", "sequence", "views")
"""Other things that scripts do; besides ``tied`` words, ``draws`` of DTensors, and ``one seed`` for all."""
