"""Regions of fused kernels, on ranks with a GPU: what ``torch.compile`` fuses, and what a script says is one.

A compiled function runs as it is, operation by operation, and is charged as inductor's code would be:
operations that follow each other and work element by element, norms, softmax, casts and sums among them, are
one kernel, which reads what none of them has made and writes what is still there when it ends.  Products,
attention, convolutions and all other operations are kernels of their own, and end the one before.  In the
backward pass operations belong to the region whose forward pass has made their node of the graph.

So whatever autograd keeps for the backward pass is written, although inductor may compute some of it again;
operations are not moved past a kernel to be fused behind it; nothing is autotuned or saved at the host, which
pays for each kernel as in eager mode.  Where the compiler is to use CUDA graphs (``mode="reduce-overhead"``,
``"max-autotune"`` or the option ``triton.cudagraphs``), a region costs the host one operation in each pass,
and copying its inputs into the graph's memory nothing.

What a script has in `fused` is one kernel, whatever it consists of: it reads what none of it has made, writes
what is still there when it ends, and takes as long as that, or as its products and attention take by
themselves one after the other, whichever is longer.  Its backward pass is one kernel by the same rule, made
of the nodes that the forward pass has made: what autograd keeps of the inside is written and read again (a
kernel that computes it again has ``torch.utils.checkpoint`` around its inside).  A collective, a copy, a
number that the host reads and ``flex_attention`` are no part of it: they end the kernel, and after them
another begins.
"""

from __future__ import annotations

import functools
import os
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.computation.launches import Launches
from collectives.virtual.computation.operations import LIKENESSES, nbytes_of, operation_of, tensors_in
from collectives.virtual.computation.totals import Totals
from collectives.virtual.isolation.patching import on_ranks, replaced
from collectives.virtual.streams.gpu import Gpu, current_gpu
from sim.cluster import RankThread
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
    """Where a rank's thread is compiled, and the kernel that its operations make together."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = weakref.ref(gpu)
        self._compiled = _Ranges()
        self._fused = _Ranges()

    @classmethod
    def of(cls, gpu: Gpu) -> Regions:
        """Return those of a rank's thread."""
        if gpu not in _regions:
            _regions[gpu] = cls(gpu)
        return _regions[gpu]

    @contextmanager
    def inside(self, name: str = "", is_graph: bool = False) -> Iterator[None]:
        """Be compiled while the body runs, or with a *name* one kernel; one inside another is its part."""
        ranges = self._fused if name else self._compiled
        begin = _nodes_made()
        if name and ranges.open is None:
            self._issue()
        outer, ranges.open = ranges.open, ranges.open or Region(name, begin, is_graph)
        try:
            yield
        finally:
            inner, ranges.open = ranges.open, outer
            if outer is None and inner is not None:
                ranges.add(inner, _nodes_made())
                self._issue()

    def _issue(self) -> None:
        gpu = self._gpu()
        if gpu is not None:
            gpu.issue_deferred()

    @property
    def current(self) -> Region | None:
        """That of what the thread computes now; a fused one, if it is in both kinds."""
        return self._fused.current or self._compiled.current


@dataclass(frozen=True, eq=False)
class Region:
    """A region of the forward pass.

    Attributes:
        name: of its kernel; empty: compiled, of as many kernels as that makes.
        begin: number of the first node of a graph that it may have made.
        is_graph: its kernels are launched by a CUDA graph, in each pass one.
    """

    name: str
    begin: int
    is_graph: bool


class _Ranges:
    """Regions of one kind, which do not overlap, and the nodes of graphs that they have made."""

    def __init__(self) -> None:
        self.open: Region | None = None
        self._regions: list[Region] = []
        self._ends: list[int] = []

    def add(self, region: Region, end: int) -> None:
        self._regions.append(region)
        self._ends.append(end)
        del self._regions[:-_MOST_REGIONS], self._ends[:-_MOST_REGIONS]

    @property
    def current(self) -> Region | None:
        """That in which the thread is, or that whose node is on its way back."""
        if self.open is not None:
            return self.open
        node = torch._C._current_autograd_node() if self._regions else None
        if node is None:
            return None
        number = node._sequence_nr()
        position = bisect_right(self._regions, number, key=lambda region: region.begin) - 1
        return self._regions[position] if position >= 0 and number < self._ends[position] else None


_regions: WeakKeyDictionary[Gpu, Regions] = WeakKeyDictionary()


class Fusing:
    """Kernels of the regions of one rank."""

    def __init__(self, gpu: Gpu, costs: Launches, totals: Totals) -> None:
        self._gpu = gpu
        self._costs = costs
        self._totals = totals
        self._computing_ps = 0
        self._region: Region | None = None
        self._latest: Region | None = None
        self._graph: tuple[Region | None, int] = None, -1
        self._regions = Regions.of(gpu)
        self._read: dict[int, int] = {}
        self._made: dict[int, tuple[Any, int]] = {}
        self._names: dict[str, None] = {}
        self._stream, self._part = gpu.current, ""

    @property
    def pads(self) -> bool:
        """Whether what is launched now is compiled, so that its matrices are padded to whole loads."""
        return self._regions.current is not None

    def takes(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, part: str
    ) -> bool:
        """Return whether a call becomes part of a fused kernel, launched when no more comes to it."""
        region, gpu = self._regions.current, self._gpu
        if region is not self._latest:
            gpu.issue_deferred()
            self._latest, gpu.replays = region, region is not None and region.is_graph
            graph = region, torch._C._current_graph_task_id()
            if gpu.replays and graph != self._graph:
                self._graph = graph
                gpu.launch_graph()
        if region is None or not (region.name or _is_fused(func)) or operation_of(func).free:
            return False
        if self._stream is not gpu.current or region is not self._region:
            gpu.issue_deferred()
        self._stream, self._part, self._region = gpu.current, part, region
        if region.name:
            self._compute(func, args, kwargs, result)

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

    def _compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Add the arithmetic of a call to that of the kernel."""
        for launch in self._costs.of(func, args, kwargs, result, padded=True):
            if launch.flops or launch.unmodelled:
                self._totals.add(launch.flops, 0, launch.dtype, self._part, launch.unmodelled)
            if launch.flops:
                self._computing_ps += launch.duration_ps - self._gpu.device.launch_ps

    def _launch(self) -> None:
        """Launch what has been put together."""
        written = sum(nbytes for storage, nbytes in self._made.values() if storage() is not None)
        nbytes = written + sum(self._read.values())
        gpu, device = self._gpu, self._gpu.device
        moving_ps = -(-nbytes * SECOND // device.memory_bandwidth)
        duration_ps = max(moving_ps, self._computing_ps) + device.launch_ps
        named = self._region.name if self._region is not None else ""
        name = named or "fused " + " ".join(list(self._names)[:3])
        self._read, self._made, self._names, self._computing_ps = {}, {}, {}, 0
        part, gpu.part = gpu.part, self._part
        gpu.launch(name, duration_ps, stream=self._stream)
        gpu.part = part


def fused(name: str) -> _GeneratorContextManager[None]:
    """Let what is computed inside be one kernel, called *name*, on a rank's virtual GPU; else do nothing.

    It stands for a kernel of Triton, Apex, TransformerEngine or Liger in a script that computes the same by
    torch's operations.  What it takes says the module that defines it: its inputs and outputs cross the
    memory once, its arithmetic is the sum of what is inside, and so it is in its backward pass.  It is a
    decorator of functions, too; one inside of another is part of it.

        with testbed.fused("rotary"):
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)

    Args:
        name: under which traces show it.

    Raises:
        NotSupportedError: no name.
    """
    if not isinstance(name, str) or not name:
        raise NotSupportedError(f'fused: expected the name of a kernel, as in fused("rotary"), got {name!r}')
    return _fused(name)


@contextmanager
def _fused(name: str) -> Iterator[None]:
    gpu = current_gpu()
    if gpu is None:
        yield
        return
    with Regions.of(gpu).inside(name):
        yield


def regions_of_torch() -> AbstractContextManager[None]:
    """Return a context in which ``torch.compile`` makes regions on ranks, where code runs as it is.

    Torch's compiler does not look below modes, by which tensors are on virtual devices, and what it keeps of
    code it keeps for the process: code that ranks share would find the globals of another one.
    """
    original = torch.compile

    def compiled(rank_thread: RankThread, model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compiled(rank_thread, function, **options)
        if (
            options.get("disable")
            or options.get("backend") in _UNFUSED
            or callable(options.get("backend"))  # as torch's eager one is
            or os.environ.get("TORCHDYNAMO_DISABLE") == "1"
        ):
            return model  # as torch's own does
        if isinstance(model, torch.nn.Module):
            optimized: Any = original(model, backend="eager")
            optimized.forward = _in_region(model.__call__, _uses_graphs(options))
            kind: Any = type(optimized)
            optimized.__class__ = _without_warning(kind)
            return optimized
        return _in_region(model, _uses_graphs(options))

    return replaced([(torch, "compile", on_ranks(original, compiled))])


@functools.cache
def _without_warning(kind: type) -> type:
    """Return the class of compiled modules without its warning of hooks of all modules, which are ours."""
    return type(kind.__name__, (kind,), {"__call__": torch.nn.Module.__call__, "__module__": kind.__module__})


def _uses_graphs(options: Mapping[str, Any]) -> bool:
    """Return whether these *options* of the compiler let it launch by CUDA graphs."""
    if options.get("mode") in ("reduce-overhead", "max-autotune"):
        return True
    return bool((options.get("options") or {}).get("triton.cudagraphs"))


def _in_region(function: Callable[..., Any], is_graph: bool) -> Callable[..., Any]:
    """Return *function*, compiled on ranks with a GPU."""

    def called(gpu: Gpu, *args: Any, **options: Any) -> Any:
        with Regions.of(gpu).inside(is_graph=is_graph):
            return function(*args, **options)

    in_region: Callable[..., Any] = on_ranks(function, called, here=current_gpu)
    return in_region


@functools.cache
def _is_fused(func: Any) -> bool:
    return torch.Tag.pointwise in func.tags or func.overloadpacket.__name__ in _FUSED


def _nodes_made() -> int:
    """Return how many nodes of graphs this thread has made."""
    return int(torch._C._autograd._get_sequence_nr())
