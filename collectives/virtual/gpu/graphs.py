"""CUDA graphs of a rank: what a capture has seen is issued again at the cost of one launch.

Assumes:

    the host      takes the time of one operation for a replay, whatever is in the graph
    the device    does what was captured, kernel by kernel and stream by stream, in the same order; what was
                  captured on the capturing stream goes to the stream on which the graph is replayed
    a capture     takes the time of what it captures, as if it were carried out; memory stays as it was, and
                  so does the random generator, from which each replay draws anew
    memory        what is free at the end of a capture is free for all, in no pool of the graph's own

Values are computed again from what stands in the captured tensors then, and put into the captured results;
collectives and messages are made again, those of the capture on copies.  What lets the host wait is refused,
in CUDA's words.  Races are not looked for in what is replayed.

Source: torch, torch/cuda/graphs.py; aten/src/ATen/cuda/CUDAGraph.cpp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from collectives.communicators.requests import Request
from collectives.errors import NotSupportedError
from collectives.torch_backend.rows import Pair
from collectives.virtual.computation.operations import Operation, waits_for_data
from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu.accelerator import CudaDevices, InstantGpu
from collectives.virtual.gpu.computing import carry_out
from collectives.virtual.gpu.contexts import StreamContext
from collectives.virtual.iterations import Iterations
from collectives.virtual.streams.gpu import Gpu
from collectives.virtual.streams.happens_before import HappensBefore
from collectives.virtual.streams.score import Call, Item, Launch, Record, StreamWait
from collectives.virtual.streams.stream_api import DeviceStream
from sim.cluster import current_rank_thread

if TYPE_CHECKING:
    from collectives.virtual.group_calls.launcher import StreamLauncher, StreamWork

_copy = torch.ops.aten.copy_.default


class _Carried(NamedTuple):
    """An operation on values, with the results that it is to have again."""

    known: Operation
    func: Any
    values: Any
    options: Any
    results: list[Tensor]


class _Call(NamedTuple):
    """A collective or message, issued on a stream, with the events that were recorded for it."""

    launcher: StreamLauncher
    request: Request
    stream: int
    events: list[int]


class _Resized(NamedTuple):
    """Memory that is freed, or allocated again, by the bytes that it has then."""

    storage: torch.UntypedStorage
    nbytes: int


class _Waited(NamedTuple):
    """The wait for the data of a call, by its number in the graph."""

    call: int


_Step: TypeAlias = Launch | Record | StreamWait | _Carried | _Call | _Resized | _Waited


class CudaGraph:
    """A CUDA graph of a rank; it stands for ``torch.cuda.CUDAGraph``.

    Args:
        devices: of the rank.
        keep_graph: as torch has it; nothing follows from it.
    """

    def __init__(self, devices: CudaDevices, keep_graph: bool = False) -> None:
        self._devices = devices
        self._capturing = contextlib.ExitStack()
        self._generators: list[torch.Generator] = []
        self.reset()

    def reset(self) -> None:
        """Forget what was captured."""
        self._stream: DeviceStream | None = None
        self._steps: list[_Step] = []
        self._works: list[StreamWork] = []
        self._at_door: set[int] = set()
        self._events_of_call: list[int] | None = None
        self._optimizers: list[Optimizer] = []
        self._totals = Totals()
        self._num_draws = 0

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let *generator*, too, be after a capture where it was before."""
        self._generators.append(generator)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **options: Any) -> None:
        """Capture what this rank issues on the current stream from now on, and on those that wait for it.

        Raises:
            RuntimeError: another graph is being captured, this one has been, or it is the default stream.
        """
        gpu = self._devices.gpu
        if gpu.graph is not None:
            raise RuntimeError("a CUDA graph is being captured on this rank; end that capture first")
        if self._stream is not None:
            raise RuntimeError("this CUDA graph has been captured; reset() it, or create another one")
        if gpu.current == gpu.default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream: use torch.cuda.graph, or "
                "torch.cuda.stream(torch.cuda.Stream()) around capture_begin() and capture_end()"
            )
        gpu.issue_deferred()
        gpu.graph, self._stream = self, gpu.current
        self._events, self._last = set[int](), {gpu.current.number: 0}
        self._order = HappensBefore(gpu.live_events)
        self._totals.add_times(-1, self._devices.totals)
        gpu.listeners.append(self._note)
        self._capturing.callback(gpu.listeners.remove, self._note)
        gpu.at_host_wait.append(_refuse_wait)
        self._capturing.callback(gpu.at_host_wait.remove, _refuse_wait)
        self._capturing.enter_context(register_optimizer_step_post_hook(self._stepped))
        self._capturing.enter_context(self._devices.random.captured())
        for generator in self._generators:
            self._capturing.callback(generator.set_state, generator.get_state())

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
            NotSupportedError: another graph is being captured.
            RuntimeError: nothing was captured.
        """
        gpu = self._devices.gpu
        if gpu.graph is not None:
            raise NotSupportedError(
                "replay() within a capture is not modelled; capture its body there instead"
            )
        if self._stream is None:
            raise RuntimeError("replay() of a CUDA graph that has captured nothing")
        gpu.launch_graph()
        with _disable_current_modes(), torch.inference_mode():
            self._replay({self._stream.number: gpu.current.number})
        self._devices.random.move_on(self._num_draws)
        self._devices.totals.add_times(1, self._totals)
        rank_thread = current_rank_thread()
        assert rank_thread is not None
        for optimizer in self._optimizers:
            Iterations.of(rank_thread.cluster).stepped(optimizer)

    def _replay(self, streams: dict[int, int]) -> None:
        """Go through what was captured; *streams* says which stand for those of the capture."""
        gpu, events, works = self._devices.gpu, dict[int, int](), list["StreamWork"]()
        for step in self._steps:
            if isinstance(step, (_Carried, _Resized)):
                _carry_out_again(step)
                continue
            assert isinstance(gpu, Gpu)  # without a model there are values alone
            if isinstance(step, _Waited):
                works[step.call].wait_for_data()
            elif isinstance(step, _Call):
                with StreamContext(self._devices, DeviceStream(gpu, streams.get(step.stream, step.stream))):
                    recorded, work = gpu.replayed_call(partial(step.launcher.issue, step.request))
                works.append(work)
                events.update(zip(step.events, recorded, strict=True))
            else:
                gpu.reissue(step, streams.get(step.stream, step.stream), events)

    def call(self, launcher: StreamLauncher, request: Request, pairs: Sequence[Pair]) -> StreamWork:
        """Return the work of a call, which is made on copies now.

        Raises:
            NotSupportedError: it is not on tensors of the script, where a replay finds and leaves data.
        """
        for own in (request.given, request.output):
            if own is not None and not own.is_meta and own.untyped_storage()._cdata not in self._at_door:
                raise NotSupportedError(
                    f"{request.collective} in a CUDA graph is modelled on one tensor of the script, not on a "
                    "list with one for each rank: use all_gather_into_tensor, reduce_scatter_tensor or "
                    "all_to_all_single, or keep it out of the graph"
                )
        step = _Call(launcher, request, self._devices.gpu.current.number, [])
        self._devices.gpu.issue_deferred()
        self._steps.append(step)
        self._events_of_call = step.events
        try:
            self._works.append(launcher.issue(_copied(request), pairs))
        finally:
            self._events_of_call = None
        return self._works[-1]

    def pass_door(self, plain: Tensor) -> None:
        """Note that *plain* is what a tensor of the script has in its memory."""
        self._at_door.add(plain.untyped_storage()._cdata)

    def waited(self, work: StreamWork) -> None:
        """Note that the data of *work* are wanted, if it is one of the graph's."""
        if work in self._works:
            self._steps.append(_Waited(self._works.index(work)))

    def draw(self) -> None:
        """Note that something is drawn of which nobody asks what, in each replay again."""
        self._num_draws += 1

    def resize(self, storage: torch.UntypedStorage, nbytes: int) -> None:
        """Free the memory of values, or allocate it again, by its size in bytes."""
        storage.resize_(nbytes)
        self._steps.append(_Resized(storage, nbytes))

    def compute(self, known: Operation, func: Any, values: Any, options: Any) -> Any:
        """Return what an operation gives for tensors of the CPU; if captured, what it writes stays as it was.

        Raises:
            RuntimeError: it is captured, and gives a number or the size of its result to the host.
        """
        gpu = self._devices.gpu
        if gpu.current.number not in self._last and not isinstance(gpu, InstantGpu):
            return carry_out(known, func, values, options)
        if known.depends_on_data and waits_for_data(known, values):
            _refuse_wait()
        written = [] if known.mutates_kinds else _tensors(known.changed(values, options))
        before = [tensor.clone() for tensor in written]
        computed = carry_out(known, func, values, options)
        for tensor, value in zip(written, before, strict=True):
            _copy(tensor, value)
        results = _tensors(computed)
        if computed is not None and not results:
            _refuse_wait()
        if not known.is_view:
            self._steps.append(_Carried(known, func, values, options, results))
        return computed

    def _note(self, item: Item) -> None:
        """Keep what is issued on a stream that is captured."""
        self._order.note(item)
        if isinstance(item, StreamWait) and item.event in self._events:
            self._last.setdefault(item.stream, 0)
        if not isinstance(item, (Launch, Call, Record, StreamWait)) or item.stream not in self._last:
            return
        if isinstance(item, Record):
            self._events.add(item.event)
            if self._events_of_call is not None:
                self._events_of_call.append(item.event)
        elif not isinstance(item, StreamWait):
            self._last[item.stream] = self._order.clock(item.stream)[item.stream]
        if self._events_of_call is None and not isinstance(item, Call):
            self._steps.append(item)

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
    with StreamContext(devices, stream or devices.gpu.new_stream()):
        cuda_graph.capture_begin(pool, capture_error_mode)
        try:
            yield
        except BaseException:
            with contextlib.suppress(RuntimeError):  # which would hide it
                cuda_graph.capture_end()
            cuda_graph.reset()
            raise
        cuda_graph.capture_end()


def pool_handle(devices: CudaDevices) -> object:
    """Return what stands for a pool of memory that graphs share."""
    return (0, 1)


def _refuse_wait() -> None:
    raise RuntimeError(
        "CUDA error: operation not permitted when stream is capturing: the host would wait for the device; "
        "keep item(), cpu(), synchronize() and conditions on tensors out of the graph"
    )


def _carry_out_again(own: _Carried | _Resized) -> None:
    """Put what an operation gives now into its results, or resize memory."""
    if isinstance(own, _Resized):
        own.storage.resize_(own.nbytes)
        return
    again = _tensors(carry_out(own.known, own.func, own.values, own.options))
    for value, result in zip(again, own.results, strict=True):
        if value is not result:
            _copy(result, value)


def _copied(request: Request) -> Request:
    """Return *request* on copies of its tensors."""
    given, output = (None if own is None else own.clone() for own in (request.given, request.output))
    return replace(request, given=given, output=output)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
