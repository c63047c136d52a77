"""Records a profile: runs real iterations and notes when each gradient becomes ready.

Times are those of the host on a CPU, and of the device's stream on CUDA, where the host runs ahead.
Every number is the median over the iterations, so that one hiccup does not bend the profile.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torch.autograd import Variable
from torch.utils import _pytree as pytree

from ddp.errors import ProfileError
from ddp.profile import Gradient, Profile

Stamps: TypeAlias = dict[str, Any]
FORWARD, BACKWARD, END = "forward began", "backward began", "backward ended"


class _Stopwatch(Protocol):
    def take(self) -> Any:
        """Return a stamp of this moment."""

    def seconds(self, earlier: Any, later: Any) -> float:
        """Return the time between two stamps."""


class _HostStopwatch:
    def take(self) -> float:
        return time.perf_counter()

    def seconds(self, earlier: float, later: float) -> float:
        return later - earlier


class _CudaStopwatch:
    def take(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, earlier: Any, later: Any) -> float:
        later.synchronize()
        return float(earlier.elapsed_time(later)) / 1000


def record_profile(
    module: nn.Module,
    step: Callable[[], object],
    *,
    name: str,
    num_iterations: int = 9,
    num_warmup: int = 2,
) -> Profile:
    """Return the profile of *module*, recorded while *step* trains it.

    Args:
        module: the module, or our or torch's `DistributedDataParallel` around it; alone, on one
            rank, or what is recorded contains communication.
        step: runs one iteration: forward pass, loss, backward pass; at the per-rank batch.
        name: of the profile.
        num_iterations: over which the medians are taken.
        num_warmup: iterations before these, which do not count.

    Raises:
        ProfileError: a step ran no forward and backward pass of the module, or some parameter got
            no gradient.
    """
    if num_iterations < 1 or num_warmup < 0:
        raise ProfileError(
            f"expected at least one iteration, got num_iterations={num_iterations}, num_warmup={num_warmup}"
        )
    module = _unwrap(module)
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise ProfileError("the module has no parameter that requires a gradient")
    device = next(iter(parameters.values())).device
    stopwatch = _CudaStopwatch() if device.type == "cuda" else _HostStopwatch()
    iterations = _observe(module, parameters, step, num_warmup + num_iterations, stopwatch)
    return _summarize(iterations[num_warmup:], parameters, name, stopwatch, device)


def _observe(
    module: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    step: Callable[[], object],
    count: int,
    stopwatch: _Stopwatch,
) -> list[Stamps]:
    """Run *count* steps with hooks on the module, remove the hooks, return the stamps of each step."""
    stamps: Stamps = {}

    def on_output(_: object) -> None:
        if BACKWARD not in stamps:
            note(BACKWARD)()
            Variable._execution_engine.queue_callback(note(END))

    def note(name: str) -> Callable[..., None]:
        def take(*_: object) -> None:
            stamps[name] = stopwatch.take()

        return take

    def watch(_module: nn.Module, _inputs: object, output: object) -> None:
        for leaf in pytree.tree_leaves(output):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                leaf.register_hook(on_output)

    handles = [
        module.register_forward_pre_hook(note(FORWARD)),
        module.register_forward_hook(watch),
        *(parameter.register_post_accumulate_grad_hook(note(name)) for name, parameter in parameters.items()),
    ]
    seen = []
    try:
        for _ in range(count):
            step()
            _check(stamps, parameters)
            seen.append(stamps)
            stamps = {}
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _check(stamps: Stamps, parameters: Mapping[str, nn.Parameter]) -> None:
    if FORWARD not in stamps or END not in stamps:
        raise ProfileError(
            "a step ran no forward and backward pass of the module; it must call the module, and backward() "
            "on a loss of what it returns"
        )
    missing = [name for name in parameters if name not in stamps]
    if missing:
        raise ProfileError(f"a step computed no gradient for {', '.join(missing)}")


def _summarize(
    iterations: Sequence[Stamps],
    parameters: Mapping[str, nn.Parameter],
    name: str,
    stopwatch: _Stopwatch,
    device: torch.device,
) -> Profile:
    def median(earlier: str, later: str) -> float:
        durations = [stopwatch.seconds(stamps[earlier], stamps[later]) for stamps in iterations]
        return round(statistics.median(durations), 12)

    ready = {parameter: median(BACKWARD, parameter) for parameter in parameters}
    return Profile(
        name=name,
        source=f"recorded, median of {len(iterations)} iterations, torch {torch.__version__}",
        device=_describe(device),
        forward_seconds=median(FORWARD, BACKWARD),
        backward_seconds=max(median(BACKWARD, END), *ready.values()),
        gradients=tuple(
            Gradient(
                name=key,
                numel=parameter.numel(),
                dtype=str(parameter.dtype).removeprefix("torch."),
                nbytes=parameter.numel() * parameter.element_size(),
                ready_seconds=ready[key],
            )
            for key, parameter in parameters.items()
        ),
    )


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} CPU, {torch.get_num_threads()} threads"


def _unwrap(module: nn.Module) -> nn.Module:
    from ddp.data_parallel import DistributedDataParallel

    wrapped = isinstance(module, DistributedDataParallel | nn.parallel.DistributedDataParallel)
    return module.module if wrapped else module  # type: ignore[return-value]
