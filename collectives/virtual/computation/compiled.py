"""Compiled regions: what ``torch.compile`` fuses, on ranks with a GPU.

A compiled function runs as it is, operation by operation, and is charged as inductor's code would be:
operations that follow each other and work element by element, norms, softmax, casts and sums among them, are
one kernel, which reads what none of them has made and writes what is still there when it ends.  Products,
attention, convolutions and all other operations are kernels of their own, and end the one before.  In the
backward pass operations belong to the region whose forward pass has made their node of the graph.

So whatever autograd keeps for the backward pass is written, although inductor may compute some of it again;
operations are not moved past a kernel to be fused behind it; nothing is autotuned, captured in CUDA graphs or
saved at the host, which pays for each operation as in eager mode.
"""

from __future__ import annotations

import functools
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

from collectives.virtual.computation.launches import operation_of
from collectives.virtual.computation.operations import LIKENESSES, nbytes_of, tensors_in
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.streams.gpu import Gpu, current_gpu
from sim.units import SECOND

_FUSED = {
    "_fused_rms_norm", "_fused_rms_norm_backward", "_log_softmax", "_log_softmax_backward_data", "_softmax",
    "_softmax_backward_data", "_to_copy", "_unsafe_index", "amax", "amin", "arange", "cat", "clone",
    "copy_", "fill_", "full", "full_like", "mean", "native_dropout", "native_dropout_backward",
    "native_group_norm", "native_layer_norm", "native_layer_norm_backward", "new_zeros", "nll_loss_backward",
    "nll_loss_forward", "ones", "ones_like", "scalar_tensor", "select_backward", "slice_backward", "sum",
    "var_mean", "zero_", "zeros", "zeros_like",
}  # fmt: skip
"""Operations that inductor fuses beside those that work element by element."""
_UNFUSED = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends of the compiler that fuse nothing."""
_MOST_REGIONS = 4096
"""Latest regions of a rank that a backward pass may belong to."""


class Regions:
    """Where a rank's thread is compiled, and the kernel that its operations make together.

    Args:
        gpu: of the rank.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = weakref.ref(gpu)
        self._depth = 0
        self._begins: list[int] = []
        self._ends: list[int] = []

    @classmethod
    def of(cls, gpu: Gpu) -> Regions:
        """Return those of a rank's thread."""
        if gpu not in _regions:
            _regions[gpu] = cls(gpu)
        return _regions[gpu]

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Be compiled while the body runs."""
        begin = _nodes_made()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._begins.append(begin)
                self._ends.append(_nodes_made())
                del self._begins[:-_MOST_REGIONS], self._ends[:-_MOST_REGIONS]
                gpu = self._gpu()
                if gpu is not None:
                    gpu.issue_deferred()

    @property
    def are_entered(self) -> bool:
        """Whether what the thread computes now is compiled."""
        if self._depth:
            return True
        node = torch._C._current_autograd_node() if self._begins else None
        if node is None:
            return False
        number = node._sequence_nr()
        position = bisect_right(self._begins, number) - 1
        return position >= 0 and number < self._ends[position]


_regions: WeakKeyDictionary[Gpu, Regions] = WeakKeyDictionary()


class Fusing:
    """Kernels of the compiled regions of one rank.

    Args:
        gpu: of the rank.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._regions = Regions.of(gpu)
        self._read: dict[int, int] = {}
        self._made: dict[int, tuple[Any, int]] = {}
        self._names: dict[str, None] = {}
        self._stream, self._part = gpu.current, ""

    @property
    def pads(self) -> bool:
        """Whether what is launched now is compiled, so that its matrices are padded to whole loads."""
        return self._regions.are_entered

    def takes(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, part: str
    ) -> bool:
        """Return whether a call becomes part of a fused kernel, which is launched when no more comes to it.

        Args:
            func: the overload.
            args: of the call.
            kwargs: of the call.
            result: of the call.
            part: of the iteration, for the trace.
        """
        if not self._regions.are_entered or not _is_fused(func) or operation_of(func).free:
            return False
        gpu = self._gpu
        if self._stream is not gpu.current:
            gpu.issue_deferred()
        self._stream, self._part = gpu.current, part

        if func.overloadpacket.__name__ not in LIKENESSES:
            for tensor in tensors_in((args, tuple(kwargs.values()))):
                self._reads(tensor)
        for tensor in tensors_in(result):
            storage = tensor.untyped_storage()
            self._made[storage._cdata] = weakref.ref(storage), nbytes_of(tensor)
        self._names.setdefault(func.overloadpacket.__name__)
        gpu.defer(self._launch)
        return True

    def _reads(self, tensor: torch.Tensor) -> None:
        key = tensor.untyped_storage()._cdata
        made = self._made.get(key)
        if made is None or made[0]() is None:
            self._read[key] = max(self._read.get(key, 0), nbytes_of(tensor))

    def _launch(self) -> None:
        """Launch what has been put together."""
        written = sum(nbytes for storage, nbytes in self._made.values() if storage() is not None)
        nbytes = written + sum(self._read.values())
        gpu, device = self._gpu, self._gpu.device
        duration_ps = -(-nbytes * SECOND // device.memory_bandwidth) + device.launch_ps
        name = "fused " + " ".join(list(self._names)[:3])
        self._read, self._made, self._names = {}, {}, {}
        part, gpu.part = gpu.part, self._part
        gpu.launch(name, duration_ps, stream=self._stream)
        gpu.part = part


def regions_of_torch(is_rank: Callable[[], bool]) -> AbstractContextManager[None]:
    """Return a context in which ``torch.compile`` makes regions on ranks, where code runs as it is.

    Torch's compiler does not look below modes, by which tensors are on virtual devices, and what it keeps of
    code it keeps for the process: code that ranks share would find the globals of another one.

    Args:
        is_rank: returns whether this thread is a rank's.
    """
    original = torch.compile

    @functools.wraps(original)
    def compiled(model: Any = None, **options: Any) -> Any:
        if not is_rank():
            return original(model, **options)
        if model is None:
            return lambda function: compiled(function, **options)
        if (
            options.get("disable")
            or _fuses_nothing(options.get("backend"))
            or os.environ.get("TORCHDYNAMO_DISABLE") == "1"
        ):
            return model  # as torch's own does
        if isinstance(model, torch.nn.Module):
            optimized: Any = original(model, backend="eager")
            optimized.forward = _in_region(model.__call__)
            kind: Any = type(optimized)
            optimized.__class__ = _without_warning(kind)
            return optimized
        return _in_region(model)

    return replaced([(torch, "compile", compiled)])


@functools.cache
def _without_warning(kind: type) -> type:
    """Return the class of compiled modules without its warning of hooks of all modules, which are ours."""
    return type(kind.__name__, (kind,), {"__call__": torch.nn.Module.__call__, "__module__": kind.__module__})


def _fuses_nothing(backend: Any) -> bool:
    """Return whether a *backend* of the compiler is one of these, or a function, as torch's eager one is."""
    return backend in _UNFUSED or callable(backend)


def _in_region(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, compiled on ranks with a GPU."""

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        gpu = current_gpu()
        if gpu is None:
            return function(*args, **options)
        with Regions.of(gpu).inside():
            return function(*args, **options)

    return called


@functools.cache
def _is_fused(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func.overloadpacket.__name__ in _FUSED


def _nodes_made() -> int:
    """Return how many nodes of graphs this thread has made."""
    return int(torch._C._autograd._get_sequence_nr())
