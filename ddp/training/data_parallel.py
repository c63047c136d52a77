"""`DistributedDataParallel` with torch's arguments and meaning, on any of our algorithms.

The module is replicated: rank 0's parameters and buffers are broadcast when it is wrapped, each
rank computes on its own part of the batch, and gradients are averaged over the ranks during the
backward pass.  What happens when is `ddp.reduction.reducer`'s decision; `ddp.autograd.driver` carries it out.
`docs/ddp.md` lists torch's features, and the test that shows each.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
VLDB 13(12), 2020; arguments as of torch 2.13.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from collectives.communicators.connection import connect
from ddp.autograd.backward_pass import tensors_of
from ddp.autograd.observation.checks import Check
from ddp.autograd.observation.timeline import SpanRecorder
from ddp.autograd.unfinished import PRIOR
from ddp.buckets import torch_hooks
from ddp.buckets.comm_hooks import TWICE, CommHook, Hook, builtin_hook
from ddp.buckets.delayed import DelayedReduction
from ddp.errors import DDPError, UnknownStrategyError
from ddp.reduction.overlap import Strategy, resolve_strategy
from ddp.reduction.timings import bucket_rows, bucket_table, overlap_ratio
from ddp.training import arguments, logging_data, torch_interface
from ddp.training.buffers import AFTER, BEFORE, Buffers
from ddp.training.drivers import driver_of
from ddp.training.join import ShadowingHook, agree_on_rank, anybody_reduces, count_those_with_inputs
from ddp.training.mixed_precision import MixedPrecision
from ddp.training.replication import BROADCAST_BYTES, broadcast_from, describe, verify_same

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from collectives.program import Algorithm


NOT_PICKLED = ("process_group", "device_mesh", "_communicator", "_driver", "_delayed", "_recorder")


class DistributedDataParallel(Joinable, nn.Module):
    """Trains copies of *module* on the ranks of a group with averaged gradients.

    The positional arguments are those of torch's class, which documents them; ``docs/ddp.md`` says
    where we differ.  Five more say how it communicates.

    Args:
        module: the module to replicate.
        device_ids: None, or the one device of a module on an accelerator: inputs are moved to it.
        output_device: None, or that same device.
        dim: not used, as in torch.
        broadcast_buffers: deprecated by torch in favour of *forward_sync_buffers*; False also
            leaves buffers alone when wrapping.
        init_sync: verify that all ranks wrapped the same module, and broadcast rank 0's values.
        process_group: a ``torch.distributed`` group; by default the default group.
        bucket_cap_mb: size in MiB at which a bucket is closed; by default 25, the first one 1.
        find_unused_parameters: parameters may be unused in some iterations, on some ranks.
        check_reduction: deprecated by torch; has no effect.
        gradient_as_bucket_view: let gradients be views of the buckets.
        static_graph: every iteration uses the same parameters, equally often.
        delay_all_reduce_named_params: names and parameters that are reduced together, later.
        param_to_hook_all_reduce: the parameter whose gradient starts that.
        mixed_precision: torch's ``_MixedPrecision``.
        device_mesh: of one dimension, in place of *process_group*.
        skip_all_reduce_unused_params: do not reduce buckets that no rank uses.
        bucket_cap_mb_list: a size for each bucket, in the order in which they are reduced.
        batched_grad_copy: copy the gradients of a bucket all at once.
        forward_sync_buffers: broadcast rank 0's buffers before each forward pass; by default True.
        algorithm: None for what is fastest where the ranks stand (memory, where one host has all and
            tensors are in it; else ``native``), ``native`` for the group's own all-reduce, with torch's
            bits, or a name, a callable or ``FILE.py:FUNCTION`` for one of our programs over the group's
            point-to-point.
        strategy: an overlap strategy or its name, for example ``wait_free`` or ``after_backward``.
        timeout: seconds that one collective may take; by default the group's.
        recorder: is told spans of computation and communication, for example a `sim.Trace`.
        check_gradients: ``finite`` or ``identical``: raise on every rank, naming parameter, rank and
            iteration, where a computed gradient is not finite, or the averaged ones differ.

    Raises:
        NotSupportedError: the strategy does not go with an argument.
        ModelMismatchError: on every rank, when the ranks wrapped different modules.
        DDPError: the module has nothing to train, or parameters without a shape.
        ValueError: arguments that do not fit the module, or each other.
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
        delay_all_reduce_named_params: list[tuple[str, nn.Parameter]] | None = None,
        param_to_hook_all_reduce: nn.Parameter | None = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: list[float] | None = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
        *,
        algorithm: str | Callable[..., Any] | Algorithm | None = None,
        strategy: str | Strategy = "wait_free",
        timeout: float | None = None,
        recorder: SpanRecorder | None = None,
        check_gradients: Check | None = None,
    ) -> None:
        super().__init__()
        arguments.check_delayed(delay_all_reduce_named_params, param_to_hook_all_reduce)
        if check_reduction:
            warnings.warn("`check_reduction` is deprecated and has no effect", FutureWarning, stacklevel=2)

        self.process_group = arguments.resolve_group(process_group, device_mesh, module)
        self._default_group = process_group is None and device_mesh is None
        self.device_mesh = device_mesh

        self.module = module
        self.dim = dim
        self.find_unused_parameters = find_unused_parameters
        self.static_graph = static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.batched_grad_copy = batched_grad_copy
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.bucket_cap_mb = bucket_cap_mb
        self.bucket_cap_mb_list = bucket_cap_mb_list
        self.mixed_precision = mixed_precision
        self.check_gradients = check_gradients
        self.algorithm = algorithm
        self.timeout = timeout
        self.strategy = resolve_strategy(strategy)
        if self.strategy.simulated_only:
            raise UnknownStrategyError(
                f"strategy {self.strategy.name!r} can be simulated only; train with torch.distributed.fsdp"
            )
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        self._recorder = recorder
        self._joins = False
        self._authoritative_rank = 0
        self._divide_by_initial_world_size = True
        sync_buffers = arguments.resolve_buffer_sync(broadcast_buffers, forward_sync_buffers)
        self.forward_sync_buffers, sync_buffers_at_init = sync_buffers

        delayed = delay_all_reduce_named_params or []
        user_ignored = frozenset(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self.parameters_to_ignore: Collection[str] = user_ignored.union(name for name, _ in delayed)
        parameters = arguments.trainable_parameters(module, self.parameters_to_ignore)
        arguments.check_parameters(module, parameters, [name for name, _ in delayed])
        self.device = next(iter(parameters.values()), param_to_hook_all_reduce).device  # type: ignore[union-attr]
        self.device_ids, self.output_device = device_ids, output_device
        arguments.check_batch_norm(self, module)
        self._buffers_of_module = Buffers(module, user_ignored)

        self._connect()
        is_mapped = self._communicator.clock.must_be_charged
        self._input_device = arguments.resolve_input_device(
            module, self.device, device_ids, output_device, is_mapped
        )
        if init_sync:
            verify_same(describe(parameters, self._common_options()), self._communicator, self.device)
            state: list[torch.Tensor] = [
                value for name, value in module.named_parameters() if name not in user_ignored
            ]
            state += self._buffers_of_module.collect().values() if sync_buffers_at_init else ()
            broadcast_from(0, state, self._communicator)

        self._mixed: MixedPrecision | None = None
        if mixed_precision is not None:
            self._mixed = MixedPrecision(mixed_precision, module, user_ignored)
        self._delayed: DelayedReduction | None = None
        if param_to_hook_all_reduce is not None:
            self._delayed = DelayedReduction(delayed, param_to_hook_all_reduce, self._communicator)
        self._build_driver()

    @property
    def bucket_nbytes(self) -> list[int]:
        """Size in bytes of each bucket, in the order in which they are reduced."""
        return self._driver.buckets.sizes

    def bucket_rows(self) -> list[dict[str, Any]]:
        """Return what became of each bucket in the latest pass; see `ddp.reduction.timings.bucket_rows`."""
        return bucket_rows(self._driver.in_flight.landed)

    def bucket_table(self) -> str:
        """Return the same as text."""
        return bucket_table(self._driver.in_flight.landed)

    @property
    def overlap_ratio(self) -> float:
        """Part of the latest pass's communication that no computation waited for."""
        return overlap_ratio(self._driver.in_flight.landed)

    @property
    def broadcast_buffers(self) -> bool:
        """Torch's older name of ``forward_sync_buffers``."""
        return self.forward_sync_buffers

    @broadcast_buffers.setter
    def broadcast_buffers(self, value: bool) -> None:
        self.forward_sync_buffers = value

    @torch._disable_dynamo(  # type: ignore[attr-defined]
        recursive=False
    )
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Run the module; a backward pass through what it returns reduces the gradients."""
        self._driver.check_finished()
        if self._join_config.enable:
            count_those_with_inputs(self, Join.notify_join_context(self))

        self._driver.forward_begins()
        self._sync_buffers(BEFORE)
        if self._join_config.enable:
            anybody_reduces(self._communicator, self.device, self.require_backward_grad_sync)

        if self._input_device is not None:
            inputs, kwargs = arguments.move_inputs((inputs, kwargs), self._input_device)
        if self._mixed is None:
            output = self.module(*inputs, **kwargs)
        else:
            output = self._mixed.run(self.module, inputs, kwargs)

        self._sync_buffers(AFTER)
        synchronize = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = synchronize
        if self._delayed is not None:
            self._delayed.forward_ended(synchronize)
        self._driver.forward_ended(list(tensors_of(output)) if synchronize else None)
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
            raise self._logged(RuntimeError(TWICE.format(registered=self._driver.in_flight.comm_hook.name)))
        arguments.refuse_elsewhere(self.strategy, register_comm_hook=True)
        in_turn = torch_hooks.takes_turns(hook, self.process_group, self.device)
        state = torch_hooks.state_for(hook, state, self.device)
        try:
            self._driver.in_flight.comm_hook = CommHook(state, hook, name, in_turn)
        except (TypeError, ValueError) as error:
            raise self._logged(error) from None

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
            raise self._logged(
                DDPError(
                    "_set_static_graph() should be called before training loop starts: it comes before the "
                    "first backward pass"
                )
            )
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
            DDPError: one has not; an exception may have ended it, or gradients are missing.
        """
        if self._driver.unfinished.kept is not None:
            raise self._driver.unfinished.kept
        if self._driver.passes.under_way:
            raise self._logged(
                DDPError(f"{PRIOR} A backward pass has begun and not ended: some gradients are not averaged")
            )

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
        self._divide_by_initial_world_size = bool(kwargs.get("divide_by_initial_world_size", True))
        return ShadowingHook(self)

    @property
    def join_device(self) -> torch.device:
        """The device of the tensors in which ``Join`` counts."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """The group over which ``Join`` counts."""
        return self.process_group

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Take times in one of so many iterations, after the first ten.

        Raises:
            ValueError: the rate is not positive.
        """
        if sample_rate < 1:
            raise ValueError(f"the sample rate must be at least 1, got {sample_rate}")
        self._driver.times.rate = sample_rate

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """Return options, buckets, times and the latest error; see `ddp.training.logging_data`."""
        return logging_data.of_model(self)

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
        nn.Module.__setstate__(self, state)
        self.process_group = None
        self._delayed = None
        self._recorder = None
        self._connect()
        self._build_driver()

    def _common_options(self) -> dict[str, object]:
        """Return what must be the same on every rank."""
        return {
            "bucket_cap_mb": self.bucket_cap_mb,
            "bucket_cap_mb_list": self.bucket_cap_mb_list,
            "strategy": self.strategy.name,
            "forward_sync_buffers": self.forward_sync_buffers,
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "check_gradients": self.check_gradients,
        }

    def _connect(self) -> None:
        self._communicator = connect(
            self.process_group, self.algorithm, timeout=self.timeout, device=self.device
        )
        if self.process_group is None:
            self.process_group = torch.distributed.group.WORLD

    def _build_driver(self) -> None:
        """Reduce with a new driver, which starts with the buckets of the first pass."""
        self._driver = driver_of(self)
        if self._mixed is not None and (hook := self._mixed.hook(self.process_group)) is not None:
            self.register_comm_hook(None, hook)

    def _logged(self, error: Exception) -> Exception:
        """Return *error*, which logging data tell from now on."""
        driver = self.__dict__.get("_driver")
        if driver is not None:
            driver.latest_error = error
        return error

    def _sync_buffers(self, location: Any) -> None:
        if self.require_forward_param_sync and self.forward_sync_buffers:
            agree = partial(agree_on_rank, self._communicator, self.device, True)
            self._buffers_of_module.synchronize(
                location, self._communicator, agree if self._join_config.enable else None
            )

    reducer = property(torch_interface.reducer)
    logger = property(torch_interface.logger)
    device_type = property(torch_interface.device_type)
    is_multi_device_module = False
    modules_buffers = property(torch_interface.modules_buffers)
    named_module_buffers = property(torch_interface.named_module_buffers)
    bucket_bytes_cap = property(torch_interface.bucket_bytes_cap)
    bucket_bytes_cap_list = property(torch_interface.bucket_bytes_cap_list)
    broadcast_bucket_size: ClassVar[int] = BROADCAST_BYTES

    _get_data_parallel_params = staticmethod(torch_interface.get_data_parallel_params)
    _set_params_and_buffers_to_ignore_for_model = staticmethod(
        torch_interface.set_params_and_buffers_to_ignore_for_model
    )
    _build_params_for_reducer = torch_interface.build_params_for_reducer
    _build_debug_param_to_name_mapping = torch_interface.build_debug_param_to_name_mapping
    _assign_modules_buffers = torch_interface.assign_modules_buffers
    _default_broadcast_coalesced = torch_interface.default_broadcast_coalesced
    _distributed_broadcast_coalesced = torch_interface.distributed_broadcast_coalesced
    _log_and_throw = torch_interface.log_and_throw
