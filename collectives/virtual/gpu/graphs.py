"""CUDA graphs of a rank: what a capture has seen is issued again at the cost of one launch.

Assumes:

    the host      takes the time of one operation for a replay, whatever is in the graph
    the device    does what was captured, kernel by kernel and stream by stream, in the same order; what was
                  captured on the capturing stream goes to the stream on which the graph is replayed
    a capture     takes the time of what it captures, as if it were carried out; memory stays as it was
    memory        what is free at the end of a capture is free for all, in no pool of the graph's own

Values are computed again from what stands in the captured tensors then, and put into the captured results.
Collectives within a graph are refused, by name; so is, in CUDA's words, whatever lets the host wait.  Races
are not looked for in what is replayed.

Source: torch, torch/cuda/graphs.py; aten/src/ATen/cuda/CUDAGraph.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from collectives.virtual.computation.operations import Operation
from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu.accelerator import CudaDevices, InstantGpu
from collectives.virtual.gpu.computing import carry_out
from collectives.virtual.iterations import Iterations
from collectives.virtual.streams.happens_before import HappensBefore
from collectives.virtual.streams.score import Item, Launch, Record, StreamWait
from collectives.virtual.streams.stream_api import DeviceStream
from sim.cluster import current_rank_thread

_copy = torch.ops.aten.copy_.default


class _Computed(NamedTuple):
    """An operation on values, with the results that it is to have again."""

    known: Operation
    func: Any
    values: Any
    options: Any
    results: list[Tensor]


class CudaGraph:
    """A CUDA graph of a rank; it stands for ``torch.cuda.CUDAGraph``.

    Args:
        devices: of the rank.
        keep_graph: as torch has it; nothing follows from it.
    """

    def __init__(self, devices: CudaDevices, keep_graph: bool = False) -> None:
        self._devices = devices
        self._capturing = contextlib.ExitStack()
        self.reset()

    def reset(self) -> None:
        """Forget what was captured."""
        self._stream: DeviceStream | None = None
        self._items: list[Launch | Record | StreamWait] = []
        self._computed: list[_Computed] = []
        self._optimizers: list[Optimizer] = []
        self._totals = Totals()

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **options: Any) -> None:
        """Capture what this rank issues on the current stream from now on, and on those that wait for it.

        Raises:
            RuntimeError: another graph is being captured.
        """
        gpu = self._devices.gpu
        if gpu.graph is not None:
            raise RuntimeError("a CUDA graph is being captured on this rank; end that capture first")
        gpu.issue_deferred()
        self.reset()
        gpu.graph, self._stream = self, gpu.current
        self._events, self._last = set[int](), {gpu.current.number: 0}
        self._order = HappensBefore(gpu.live_events)
        self._totals.add_times(-1, self._devices.totals)
        gpu.listeners.append(self._note)
        self._capturing.callback(gpu.listeners.remove, self._note)
        gpu.at_host_wait.append(_refuse_wait)
        self._capturing.callback(gpu.at_host_wait.remove, _refuse_wait)
        self._capturing.enter_context(register_optimizer_step_post_hook(self._stepped))

    def capture_end(self) -> None:
        """Capture no more.

        Raises:
            RuntimeError: nothing is being captured, or the stream has not waited for others at the end.
        """
        gpu = self._devices.gpu
        if gpu.graph is not self or self._stream is None:
            raise RuntimeError("capture_end() of a CUDA graph that is not being captured")
        gpu.issue_deferred()
        gpu.graph = None
        self._capturing.close()
        self._totals.add_times(1, self._devices.totals)
        seen = self._order.clock(self._stream.number)
        if apart := [own for own, epoch in self._last.items() if epoch > seen.get(own, 0)]:
            self.reset()
            raise RuntimeError(
                "CUDA error: capturing stream has unjoined work; let it wait for stream "
                f"{', '.join(map(str, apart))} before the capture ends"
            )

    def instantiate(self) -> None:
        """Do nothing: what is captured can be replayed."""

    enable_debug_mode = instantiate

    def pool(self) -> object:
        """Return a pool, of which nothing is kept apart."""
        return pool_handle(self._devices)

    def replay(self) -> None:
        """Issue on the current stream what was captured, and compute it again.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._stream is None:
            raise RuntimeError("replay() of a CUDA graph that has captured nothing")
        self._devices.gpu.reissue(self._items, self._stream)
        self._devices.totals.add_times(1, self._totals)
        with _disable_current_modes(), torch.inference_mode():
            for own in self._computed:
                again = _tensors(carry_out(own.known, own.func, own.values, own.options))
                for value, result in zip(again, own.results, strict=True):
                    if value is not result:
                        _copy(result, value)
        rank_thread = current_rank_thread()
        assert rank_thread is not None
        for optimizer in self._optimizers:
            Iterations.of(rank_thread.cluster).stepped(optimizer)

    def compute(self, known: Operation, func: Any, values: Any, options: Any) -> Any:
        """Return what an operation gives for tensors of the CPU; if captured, what it writes stays as it was.

        Raises:
            RuntimeError: it is captured, and gives a number to the host.
        """
        gpu = self._devices.gpu
        if gpu.current.number not in self._last and not isinstance(gpu, InstantGpu):
            return carry_out(known, func, values, options)
        written = [] if known.mutates_kinds else _written(func, values, options)
        before = [tensor.clone() for tensor in written]
        computed = carry_out(known, func, values, options)
        for tensor, value in zip(written, before, strict=True):
            _copy(tensor, value)
        results = _tensors(computed)
        if computed is not None and not results:
            _refuse_wait()
        if not known.is_view:
            self._computed.append(_Computed(known, func, values, options, results))
        return computed

    def _note(self, item: Item) -> None:
        """Keep what is issued on a stream that is captured."""
        self._order.note(item)
        if isinstance(item, StreamWait) and item.event in self._events:
            self._last.setdefault(item.stream, 0)
        if not isinstance(item, (Launch, Record, StreamWait)) or item.stream not in self._last:
            return
        self._items.append(item)
        if isinstance(item, Record):
            self._events.add(item.event)
        elif isinstance(item, Launch):
            self._last[item.stream] = self._order.clock(item.stream)[item.stream]

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        devices = CudaDevices.here()
        if devices is not None and devices.gpu.graph is self:
            self._optimizers.append(optimizer)


@contextlib.contextmanager
def captured(
    devices: CudaDevices,
    cuda_graph: CudaGraph,
    pool: object = None,
    stream: DeviceStream | None = None,
    capture_error_mode: str = "global",
    **options: Any,
) -> Iterator[None]:
    """Capture into *cuda_graph* what the body issues, on *stream* or on a new one; ``torch.cuda.graph``."""
    devices.synchronize()
    with devices.on_stream(stream or devices.gpu.new_stream()):
        cuda_graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        finally:
            cuda_graph.capture_end()


def pool_handle(devices: CudaDevices) -> object:
    """Return what stands for a pool of memory that graphs share."""
    return (0, 1)


def _refuse_wait() -> None:
    raise RuntimeError(
        "CUDA error: operation not permitted when stream is capturing: the host would wait for the device; "
        "keep item(), cpu(), synchronize() and conditions on tensors out of the graph"
    )


def _written(func: Any, values: Any, options: Any) -> list[Tensor]:
    """Return the tensors that a call writes."""
    given = dict(zip((own.name for own in func._schema.arguments), values, strict=False)) | dict(options)
    return _tensors([given.get(own.name) for own in func._schema.arguments if _is_written(own)])


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
