"""Observer of a module's passes: when forward and backward begin, each gradient is ready, and all is over.

Hooks on the module and its parameters; nothing of it changes.  Times are those of the host on a CPU, and
of the device's stream on CUDA, where the host runs ahead.  A pass counts from the first forward call with
gradients enabled to the end of the backward pass that reaches a parameter; of a backward pass that comes
through no tensor of the output, the first gradient is taken for its beginning.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn
from torch.autograd import Variable

from ddp.autograd.backward_pass import tensors_of
from ddp.profiles import Buffers, Gradient, Profile

Stamps: TypeAlias = dict[str, Any]
FORWARD, BACKWARD, END = "forward began", "backward began", "backward ended"


class Stopwatch(Protocol):
    """Takes stamps of moments."""

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


class PassObserver:
    """The stamps of each pass of *module*.

    Args:
        module: what is called in the forward pass.
        parameters: those that train, by name.
        buffers: those that are sent before each forward pass.
        on_forward: is called when a forward pass with gradients enabled begins.

    Attributes:
        passes: the stamps of every pass that has ended: of the parameters by name, and three more.
        stopwatch: which took them.
    """

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        buffers: Iterable[torch.Tensor],
        on_forward: Callable[[], None] = lambda: None,
    ) -> None:
        self.parameters = dict(parameters)
        self.buffers = [*buffers]
        self.device = next(iter(self.parameters.values())).device
        self.stopwatch: Stopwatch = _CudaStopwatch() if self.device.type == "cuda" else _HostStopwatch()
        self.passes: list[Stamps] = []
        self._stamps: Stamps = {}
        self._on_forward = on_forward
        self._handles = [
            module.register_forward_pre_hook(self.forward_begins),
            module.register_forward_hook(self._watch_output),
            *(
                parameter.register_post_accumulate_grad_hook(self._noting(name))
                for name, parameter in self.parameters.items()
            ),
        ]

    def forward_begins(self, *_: object) -> None:
        """Take note that the module is called."""
        if torch.is_grad_enabled():
            self._on_forward()
            self._stamps.setdefault(FORWARD, self.stopwatch.take())

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def abandon(self) -> None:
        """Forget a pass that has not ended."""
        self._stamps = {}

    def _watch_output(self, _module: nn.Module, _inputs: object, output: object) -> None:
        for tensor in tensors_of(output):
            if tensor.requires_grad:
                tensor.register_hook(self._backward_begins)

    def _backward_begins(self, _: object = None) -> None:
        if FORWARD in self._stamps and BACKWARD not in self._stamps:
            self._stamps[BACKWARD] = self.stopwatch.take()
            Variable._execution_engine.queue_callback(self._backward_ended)

    def _noting(self, name: str) -> Callable[[object], None]:
        def note(_: object) -> None:
            self._backward_begins()
            self._stamps[name] = self.stopwatch.take()

        return note

    def _backward_ended(self) -> None:
        self._stamps[END] = self.stopwatch.take()
        if any(name in self._stamps for name in self.parameters):
            self.passes.append(self._stamps)
        self._stamps = {}


def profile_of(passes: Sequence[Stamps], observer: PassObserver, name: str, where: str) -> Profile:
    """Return the medians of *passes*, which *observer* has seen; *where* is a remark for the source."""

    def median(earlier: str, later: str) -> float:
        own = [stamps for stamps in passes if later in stamps]
        times = [observer.stopwatch.seconds(stamps[earlier], stamps[later]) for stamps in own]
        return round(statistics.median(times), 12)

    ready = {
        parameter: median(BACKWARD, parameter)
        for parameter in observer.parameters
        if any(parameter in stamps for stamps in passes)
    }
    missing = [parameter for parameter in observer.parameters if parameter not in ready]
    without = f"; without {', '.join(missing)}, which got no gradient" if missing else ""
    iterations = "1 iteration" if len(passes) == 1 else f"{len(passes)} iterations"
    return Profile(
        name=name,
        source=f"recorded, median of {iterations}{where}, torch {torch.__version__}{without}",
        device=_describe(observer.device),
        forward_seconds=median(FORWARD, BACKWARD),
        backward_seconds=max(median(BACKWARD, END), *ready.values()),
        gradients=tuple(
            Gradient(
                name=key,
                numel=parameter.numel(),
                dtype=_name_of(parameter.dtype),
                nbytes=parameter.numel() * parameter.element_size(),
                ready_seconds=ready[key],
            )
            for key, parameter in observer.parameters.items()
            if key in ready
        ),
        buffers=Buffers.by_type((_name_of(own.dtype), own.nbytes) for own in observer.buffers),
    )


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _describe(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} CPU, {torch.get_num_threads()} threads"
