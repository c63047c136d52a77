"""The wrapped module as the files beside `data_parallel` see it: options, and what carries them out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Protocol

import torch
from torch import nn

from collectives.communicators.communicator import Communicator
from ddp.autograd.driver import TorchDriver
from ddp.autograd.observation.checks import Check
from ddp.autograd.observation.timeline import SpanRecorder
from ddp.buckets.delayed import DelayedReduction
from ddp.reduction.overlap import Strategy
from ddp.training.buffers import Buffers


class WrappedModule(Protocol):
    """Attributes of `ddp.DistributedDataParallel`, which documents them."""

    module: nn.Module
    process_group: Any
    device: torch.device
    device_ids: list[int | torch.device] | None
    algorithm: Any
    strategy: Strategy
    timeout: float | None
    bucket_cap_mb: float | None
    bucket_cap_mb_list: list[float] | None
    find_unused_parameters: bool
    static_graph: bool
    gradient_as_bucket_view: bool
    batched_grad_copy: bool
    skip_all_reduce_unused_params: bool
    mixed_precision: Any
    check_gradients: Check | None
    parameters_to_ignore: Collection[str]
    forward_sync_buffers: bool
    require_forward_param_sync: bool
    broadcast_bucket_size: ClassVar[int]
    _communicator: Communicator
    _driver: TorchDriver
    _buffers_of_module: Buffers
    _delayed: DelayedReduction | None
    _recorder: SpanRecorder | None
    _joins: bool
    _join_config: Any
    _authoritative_rank: int
    _divide_by_initial_world_size: bool

    def _logged(self, error: Exception) -> Exception:
        """Return *error*, which logging data tell from now on."""

    def _check_reducer_finalized(self) -> None:
        """Check that every backward pass that began has come to its end."""

    def _remove_autograd_hooks(self) -> None:
        """Reduce no further gradient."""

    def _set_static_graph(self) -> None:
        """Take it that every iteration uses the same parameters, equally often."""

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Take times in one of so many iterations, after the first ten."""
