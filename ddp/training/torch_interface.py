"""The rest of torch's interface: hooks, logging data, pickling, uneven inputs, another group.

Names with an underscore are torch's own; programs and torch's optimizers call them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from ddp.autograd.logging_data import dtype_name, environment, joined
from ddp.buckets import torch_hooks
from ddp.buckets.comm_hooks import TWICE, CommHook, Hook, builtin_hook
from ddp.errors import DDPError
from ddp.training import arguments
from ddp.training.buffers import AFTER, BEFORE
from ddp.training.join import ShadowingHook, agree_on_rank, anybody_reduces
from ddp.training.replication import broadcast_from

if TYPE_CHECKING:
    from collectives.communicators.communicator import Communicator
    from ddp.autograd.driver import TorchDriver
    from ddp.autograd.timeline import SpanRecorder
    from ddp.reduction.overlap import Strategy
    from ddp.training.buffers import Buffers

NOT_PICKLED = ("process_group", "_communicator", "_driver", "_delayed", "_recorder")


class TorchInterface(Joinable):
    """What `ddp.DistributedDataParallel` has in common with torch's class beside training."""

    module: nn.Module
    device: torch.device
    process_group: Any
    strategy: Strategy
    static_graph: bool
    find_unused_parameters: bool
    forward_sync_buffers: bool
    require_forward_param_sync: bool
    _buffers_of_module: Buffers
    _communicator: Communicator
    _default_group: bool
    _delayed: Any
    _driver: TorchDriver
    _join_config: Any
    _joins: bool = False
    _divide_by_initial_world_size: bool
    _recorder: SpanRecorder | None
    _build_driver: Callable[[], None]
    _connect: Callable[[], None]

    def register_comm_hook(self, state: object, hook: Hook) -> None:
        """Let *hook* do what the averaging of buckets does; see `ddp.buckets.comm_hooks`.

        Raises:
            RuntimeError: there is a hook already.
            TypeError: *hook* cannot be called with a state and a bucket.
            NotSupportedError: the strategy does not reduce whole buckets in the backward pass, or the
                backend would let the hook wait for ever; see `ddp.buckets.torch_hooks`.
        """
        self._register(state, hook)

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        """Register the hook of that kind; of torch's built-in ones, which are C++, we run the twins."""
        self._register(self.process_group, builtin_hook(comm_hook_type), str(comm_hook_type))

    def _register(self, state: object, hook: Hook, name: str | None = None) -> None:
        if self._driver.in_flight.comm_hook is not None:
            raise RuntimeError(TWICE.format(registered=self._driver.in_flight.comm_hook.name))
        arguments.refuse_elsewhere(self.strategy, register_comm_hook=True)
        in_turn = torch_hooks.takes_turns(hook, self.process_group, self.device)
        state = torch_hooks.state_for(hook, state, self.device)
        self._driver.in_flight.comm_hook = CommHook(state, hook, name, in_turn)

    def _register_buffer_comm_hook(
        self, state: object, hook: Callable[..., Any], comm_hook_location: Any = AFTER
    ) -> None:
        """Let *hook* do what the broadcast of buffers does; see `ddp.training.buffers`."""
        self._buffers_of_module.register(state, hook, comm_hook_location)

    def _register_fused_optim(self, optim: type, *args: Any, optim_params: Any = None, **kwargs: Any) -> None:
        """Run the optimizer on each bucket once it has been averaged."""
        from torch.distributed.algorithms._optimizer_overlap.optimizer_overlap import _as_overlapped_optim

        overlapped: Any = _as_overlapped_optim(optim, optim_params, *args, **kwargs)
        overlapped.register_ddp(self)

    @property
    def _has_rebuilt_buckets(self) -> bool:
        return self._driver.has_rebuilt

    def _set_static_graph(self) -> None:
        """Take it that every iteration uses the same parameters, equally often; before training.

        Raises:
            DDPError: the first iteration has begun.
        """
        if self.static_graph:
            warnings.warn("the graph of this model is static already", stacklevel=2)
            return
        if self._driver.ready.ready_ps:
            raise DDPError("_set_static_graph comes before the first backward pass")
        self.static_graph = True
        self._rebuild_driver()

    def _set_ddp_sink_clone(self, val: bool) -> None:
        """Do nothing: outputs are handed on as they are, and never copied."""

    def _set_sparse_metadata(self, global_unique_ids: Any) -> None:
        """Do nothing: sparse gradients are summed by what ranks tell each other."""

    def _update_process_group(self, new_process_group: Any) -> None:
        """Go on with the ranks of another group; buckets start as in the first pass."""
        self.process_group = new_process_group
        self._default_group = False
        self._connect()
        self._rebuild_driver()

    def _rebuild_driver(self) -> None:
        hook = self._driver.in_flight.comm_hook
        self._driver.passes.remove_hooks()
        self._build_driver()
        self._driver.in_flight.comm_hook = self._driver.in_flight.comm_hook or hook

    def _remove_autograd_hooks(self) -> None:
        """Reduce no further gradient."""
        self._driver.passes.remove_hooks()

    def _check_reducer_finalized(self) -> None:
        """Check that every backward pass that began has come to its end.

        Raises:
            DDPError: one has not; an exception may have ended it.
        """
        if self._driver.passes.under_way:
            raise DDPError("a backward pass has begun and not finished: some gradients are not averaged")

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Return the context in which ranks may run out of inputs; see `join` and torch's ``join``."""
        arguments.refuse_elsewhere(self.strategy, join=enable)
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """Return what a rank does that has run out of inputs; for torch's ``Join``."""
        self._joins = True
        return ShadowingHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> torch.device:
        """The device of the tensors in which ``Join`` counts."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group over which ``Join`` counts."""
        return self.process_group

    def _shadow(self) -> None:
        """Take part in one iteration of those ranks that have inputs."""
        self._driver.rebuild_if_due()
        if self.require_forward_param_sync and self.forward_sync_buffers:
            self._buffers_of_module.synchronize(BEFORE, self._communicator, lambda: self._agree(False))
        reduces = anybody_reduces(self._communicator, self.device, False)
        self.require_forward_param_sync = reduces
        if reduces:
            self._driver.shadow()

    def _take_final_model(self, is_last_joiner: bool) -> None:
        self._driver.in_flight.divisor = self._communicator.world_size
        state: list[torch.Tensor] = [*self.module.parameters()]
        if self.forward_sync_buffers:
            state += self._buffers_of_module.collect().values()
        broadcast_from(self._agree(is_last_joiner), state, self._communicator)

    def _agree(self, candidate: bool) -> int:
        return agree_on_rank(self._communicator, self.device, candidate)

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Take times in one of so many iterations, after the first ten.

        Raises:
            ValueError: the rate is not positive.
        """
        if sample_rate < 1:
            raise ValueError(f"the sample rate must be at least 1, got {sample_rate}")
        self._driver.times.rate = sample_rate

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Return settings, buckets and times, with torch's keys; see `ddp.autograd.logging_data`."""
        driver = self._driver
        parameters = driver.buckets.parameters
        sizes = joined(driver.buckets.sizes)
        hook = driver.in_flight.comm_hook
        return {
            "backend_name": dist.get_backend(self.process_group),
            "module_name": type(self.module).__name__,
            "bucket_sizes": joined(driver.first_sizes),
            "rebuilt_bucket_sizes": sizes if driver.has_rebuilt else "",
            "rebuilt_per_bucket_param_indices": (
                ", ".join(" ".join(map(str, bucket)) for bucket in driver.buckets.members)
                if driver.has_rebuilt
                else ""
            ),
            "prev_iteration_grad_ready_order_indices": joined(driver.ready.ready_ps),
            "dtypes": ", ".join(sorted({dtype_name(p.dtype) for p in parameters})),
            "device_ids": "" if self.device.index is None else str(self.device.index),
            "output_device": -1 if self.device.index is None else self.device.index,
            "comm_hook": "" if hook is None else hook.name,
            **self._environment(),
            **driver.times.rows(),
            "rank": self._communicator.rank,
            "world_size": self._communicator.world_size,
            "broadcast_buffers": int(self.forward_sync_buffers),
            "bucket_cap_bytes": driver.options.limits[-1],
            "find_unused_parameters": int(self.find_unused_parameters),
            "static_graph": int(self.static_graph),
            "gradient_as_bucket_view": int(driver.options.as_view),
            "has_rebuilt_buckets": int(driver.has_rebuilt),
            "has_sync_bn": int(any(isinstance(m, nn.SyncBatchNorm) for m in self.module.modules())),
            "is_multi_device_module": int(len({p.device for p in parameters}) > 1),
            "num_buckets_reduced": len(driver.buckets.members),
            "num_parameter_tensors": len(parameters),
            "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in parameters),
            "unused_parameter_size": sum(p.numel() * p.element_size() for p in driver.ready.unused()),
            **({"join_uneven_inputs": 1} if self._joins else {}),
        }

    def _environment(self) -> dict[str, Any]:
        backend = torch_hooks.backend_of(self.process_group, self.device)
        data: dict[str, Any] = {**environment(backend)}
        if backend == "gloo":
            data["gloo_num_threads"] = self.process_group._get_backend(self.device).options._threads
        return data

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: nn.Module, names: Iterable[str]) -> None:
        """Exclude parameters and buffers of *module* from all communication, as in torch."""
        ignored = list(names)
        module._ddp_params_and_buffers_to_ignore = ignored  # type: ignore[assignment]
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name in ignored:
                tensor._ddp_ignored = True  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but what belongs to this process group."""
        if not self._default_group:
            raise RuntimeError(
                "DistributedDataParallel can be pickled only over the default group; pickle model.module, or "
                "save model.state_dict()"
            )
        return {name: value for name, value in self.__dict__.items() if name not in NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state, and reduce over the default group of this process."""
        nn.Module.__setstate__(self, state)  # type: ignore[arg-type]
        self.process_group = self._delayed = self._recorder = None
        self._connect()
        self._build_driver()
