"""`DistributedDataParallel` with torch's arguments and meaning, on any of our algorithms.

The module is replicated: rank 0's parameters and buffers are broadcast when it is wrapped, each
rank computes on its own part of the batch, and gradients are averaged over the ranks during the
backward pass.  What happens when is `ddp.reducer`'s decision; `ddp.drivers.torch` carries it out.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 13(12), 2020; arguments as of torch 2.13.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from collectives.connection import connect
from ddp.drivers.timeline import SpanRecorder
from ddp.drivers.torch import TorchDriver
from ddp.errors import DDPError, NotSupportedError
from ddp.overlap import Strategy, resolve_strategy
from ddp.replication import broadcast_from_first, describe, verify_same

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from collectives.program import Algorithm


class DistributedDataParallel(nn.Module):
    """Trains copies of *module* on the ranks of a group with averaged gradients.

    Args:
        module: the module to replicate.
        device_ids: None, or the one CUDA device of the module, to which inputs are then moved.
        output_device: None, or that same device.
        dim: must be 0.
        broadcast_buffers: deprecated by torch in favour of *forward_sync_buffers*; False also
            leaves buffers alone when wrapping.
        init_sync: verify that all ranks wrapped the same module, and broadcast rank 0's values.
        process_group: a ``torch.distributed`` group; by default the default group.
        bucket_cap_mb: size in MiB at which a bucket is closed; by default 25, the first one 1.
        gradient_as_bucket_view: let gradients be views of the buckets.
        forward_sync_buffers: broadcast rank 0's buffers before each forward pass; by default True.
        algorithm: ``native`` for the group's own all-reduce, or a name, a callable or
            ``FILE.py:FUNCTION`` for one of our programs over the group's point-to-point.
        strategy: an overlap strategy or its name: ``wait_free`` or ``after_backward``.
        timeout: seconds that one collective may take; by default the group's.
        recorder: is told spans of computation and communication, for example a `sim.Trace`.

    The other arguments are torch's; they are refused where they ask for what is not there yet.

    Raises:
        NotSupportedError: an argument that is not supported yet has not its default value.
        ModelMismatchError: on every rank, when the ranks wrapped different modules.
    """

    def __init__(
        self,
        module: nn.Module,
        device_ids: list[int | torch.device] | None = None,
        output_device: int | torch.device | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[int] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
        *,
        algorithm: str | Callable[..., Any] | Algorithm = "native",
        strategy: str | Strategy = "wait_free",
        timeout: float | None = None,
        recorder: SpanRecorder | None = None,
    ) -> None:
        super().__init__()
        _refuse_unsupported(
            dim=(dim, 0),
            find_unused_parameters=(find_unused_parameters, False),
            check_reduction=(check_reduction, False),
            static_graph=(static_graph, False),
            delay_all_reduce_named_params=(delay_all_reduce_named_params, None),
            param_to_hook_all_reduce=(param_to_hook_all_reduce, None),
            mixed_precision=(mixed_precision, None),
            device_mesh=(device_mesh, None),
            skip_all_reduce_unused_params=(skip_all_reduce_unused_params, False),
            bucket_cap_mb_list=(bucket_cap_mb_list, None),
            batched_grad_copy=(batched_grad_copy, False),
        )
        self.module = module
        self._ignored = frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        parameters = self._trainable_parameters()
        first = next(iter(parameters.values()))
        self.device = first.device
        self._input_device = _input_device(self.device, device_ids, output_device)
        self.process_group = process_group
        self.gradient_as_bucket_view = gradient_as_bucket_view
        sync_buffers = _sync_buffers(broadcast_buffers, forward_sync_buffers)
        self.forward_sync_buffers, sync_buffers_at_init = sync_buffers
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        chosen = resolve_strategy(strategy)
        self._communicator = connect(process_group, algorithm, timeout=timeout, device=self.device)
        if init_sync:
            options = {
                "bucket_cap_mb": bucket_cap_mb,
                "strategy": chosen.name,
                "forward_sync_buffers": self.forward_sync_buffers,
            }
            verify_same(describe(parameters, options), self._communicator, self.device)
            state = [*self._kept(module.named_parameters())]
            if sync_buffers_at_init:
                state += self._kept(module.named_buffers())
            broadcast_from_first(state, self._communicator)
        self._driver = TorchDriver(
            parameters, self._communicator, chosen, bucket_cap_mb, gradient_as_bucket_view, recorder
        )

    @property
    def bucket_nbytes(self) -> list[int]:
        """Size in bytes of each bucket, in the order in which they are reduced."""
        return self._driver.bucket_nbytes

    @property
    def broadcast_buffers(self) -> bool:
        """Torch's older name of ``forward_sync_buffers``."""
        return self.forward_sync_buffers

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module; a backward pass through what it returns reduces the gradients."""
        self._driver.forward_begins()
        if self.require_forward_param_sync and self.forward_sync_buffers:
            broadcast_from_first(list(self._kept(self.module.named_buffers())), self._communicator)
        if self._input_device is not None:
            inputs, kwargs = _move((inputs, kwargs), self._input_device)
        output = self.module(*inputs, **kwargs)
        synchronize = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = synchronize
        self._driver.forward_ended(list(_tensors_of(output)) if synchronize else None)
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients locally: forward passes inside do not reduce in their backward.

        The backward pass of the first forward pass outside reduces what has accumulated.
        """
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: nn.Module, names: Iterable[str]) -> None:
        """Exclude parameters and buffers of *module* from all communication, as in torch."""
        module._ddp_params_and_buffers_to_ignore = list(names)  # type: ignore[assignment]

    def _trainable_parameters(self) -> dict[str, nn.Parameter]:
        """Return what is reduced, by name; a shared parameter counts once."""
        trainable = {
            name: parameter
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad and name not in self._ignored
        }
        if not trainable:
            raise DDPError(
                "DistributedDataParallel is not needed when a module has no parameter that "
                "requires a gradient"
            )
        for name, parameter in trainable.items():
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise DDPError(
                    f"parameter {name} has no shape yet; run the module forward once before wrapping it"
                )
        return trainable

    def _kept(self, named: Iterable[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
        return [tensor for name, tensor in named if name not in self._ignored]


def _refuse_unsupported(**arguments: tuple[Any, Any]) -> None:
    for name, (value, default) in arguments.items():
        if value != default:
            raise NotSupportedError(
                f"DistributedDataParallel({name}={value!r}) is not supported yet; leave it at {default!r}"
            )


def _sync_buffers(broadcast_buffers: bool | None, forward_sync_buffers: bool | None) -> tuple[bool, bool]:
    """Return whether to broadcast buffers before forward passes, and whether when wrapping."""
    if broadcast_buffers is not None:
        warnings.warn(
            "`broadcast_buffers` is deprecated, use `forward_sync_buffers`, which syncs buffers at "
            "wrapping in any case and wins where both are given",
            FutureWarning,
            stacklevel=3,
        )
    if forward_sync_buffers is not None:
        return forward_sync_buffers, True
    effective = broadcast_buffers is not False
    return effective, effective


def _input_device(
    device: torch.device,
    device_ids: list[int | torch.device] | None,
    output_device: int | torch.device | None,
) -> torch.device | None:
    """Return the device to which inputs are moved, if the user named one."""
    if not device_ids:
        if output_device is not None:
            raise ValueError("output_device needs device_ids; leave both out, or give the module's device")
        return None
    if len(device_ids) != 1 or device.type == "cpu":
        raise ValueError(
            f"device_ids must be None, or the one device of a module on an accelerator; got {device_ids} "
            f"for a module on {device}"
        )
    for named in (device_ids[0], device_ids[0] if output_device is None else output_device):
        if (torch.device(device.type, named) if isinstance(named, int) else torch.device(named)) != device:
            raise ValueError(f"device_ids and output_device must be the module's, {device}; got {named}")
    return device


def _move(arguments: Any, device: torch.device) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), arguments)


def _tensors_of(output: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers and dataclasses."""
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from _tensors_of(getattr(leaf, field.name))
