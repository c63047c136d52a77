"""Messages by the point-to-point calls of an NCCL process group, on CUDA streams.

NCCL has no tags and orders operations by stream.  So all steps of a collective are enqueued when
it starts, in launch order, on a stream of the transport's own; the host never waits.  A `Work` is
an event on that stream, and waiting for it makes the caller's stream wait, as torch's NCCL does.

Every lane has a stream.  Steps of collectives go through ``batch_isend_irecv``, which torch carries
on the communicator of the whole group; a point-to-point message goes alone, for which torch makes a
communicator of the two ranks, with a stream of its own.  So messages and collectives do not wait for
each other.  Assumed is what NCCL assumes of its users: between two ranks, messages of all tags and
of both directions are started in an order in which they can be carried out one after another, and
both sides name one size and dtype.

Torch gives the CPU streams and events that do nothing, so the contract suite runs this transport
over Gloo too, where every wait blocks.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from collectives.execution.blame import Report
from collectives.execution.call import Call, Lane
from collectives.execution.clock import RealClock
from collectives.execution.execute import land
from collectives.execution.transport import Execution
from collectives.program import Local, Recv, Send, Step
from collectives.program.chunking import Buffer
from collectives.transports.store_reports import Explain, grace

_POLL_SECONDS = 0.0005


class NcclTransport:
    """The ranks of an NCCL group; *device* is this rank's GPU.

    Args:
        group: the process group.
        device: the GPU on which tensors live.
        explain: turns a failure into the error that is raised.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        device: torch.device,
        explain: Explain,
    ) -> None:
        self.group = group
        self.rank = group.rank()
        self.world_size = group.size()
        self.clock = RealClock()
        self.device = device
        self.explain = explain
        self.accelerator: Any = torch.get_device_module(device)
        self.streams: dict[Lane, Any] = {}
        self.lane: Lane = None
        self.turn = threading.RLock()
        self.global_ranks = dist.get_process_group_ranks(group)
        # NCCL's first call must be one in which every rank takes part, which a step need not be.
        dist.all_reduce(torch.zeros(1, device=device), group=group)

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> _NcclStep:
        """Enqueue all operations of *step* on the current stream."""
        return _NcclStep(self, step, buffer)

    def drain(self, fingerprint: int) -> None:
        """Return None: everything is in order on the stream of its lane."""

    def start(self, execution: Execution, call: Call) -> NcclWork:
        """Enqueue all of *execution*; it begins when the caller's stream has come this far."""
        if call.lane not in self.streams:
            self.streams[call.lane] = self.accelerator.Stream(self.device)
        self.lane, stream = call.lane, self.streams[call.lane]
        stream.wait_stream(self.accelerator.current_stream(self.device))
        held: list[_NcclStep] = []
        with self.accelerator.stream(stream):
            for step in execution:
                step.wait()
                held.append(step)
            done = self.accelerator.Event()
            done.record(stream)
        return NcclWork(self, done, call, held)

    def poll(self) -> None:
        """Do nothing: streams advance by themselves."""


class NcclWork:
    """A collective in flight on a stream; a `collectives.execution.work.Work`."""

    def __init__(self, transport: NcclTransport, done: Any, call: Call, held: list[Any]) -> None:
        self.transport = transport
        self.done = done
        self.call = call
        self.held = held
        self.completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Make the current stream wait; with *timeout*, the host waits that many seconds at most."""
        if timeout is not None:
            deadline = time.monotonic() + timeout - grace(timeout)
            while not self.done.query():
                if time.monotonic() > deadline:
                    cause = TimeoutError(f"timed out after {timeout - grace(timeout):.3g} s")
                    report = Report(self.call, "enqueued on its stream")
                    raise self.transport.explain(report, cause, grace(timeout))
                time.sleep(_POLL_SECONDS)
        self.transport.accelerator.current_stream(self.transport.device).wait_event(self.done)
        self.held.clear()

    def is_completed(self) -> bool:
        """Return whether the GPU is done with it."""
        if self.completed_ps is None and self.done.query():
            self.completed_ps = self.transport.clock.now_ps()
        return self.completed_ps is not None


class _NcclStep:
    """A step that has been enqueued."""

    def __init__(self, transport: NcclTransport, step: Step, buffer: Buffer) -> None:
        self.step = step
        self.buffer = buffer
        self.incoming: dict[int, torch.Tensor] = {}

        read = {chunk for operation in step if isinstance(operation, Send) for chunk in _chunks(operation)}
        calls: list[tuple[Any, torch.Tensor, int]] = []
        for position, operation in enumerate(step):
            if isinstance(operation, Local):
                self.incoming[position] = buffer.source(operation, step)
                continue
            data = buffer.view(operation)
            method: Any = dist.isend
            if not isinstance(operation, Send):
                method = dist.irecv
                if not isinstance(operation, Recv) or not read.isdisjoint(_chunks(operation)):
                    data = self.incoming[position] = torch.empty_like(data)
            calls.append((method, data.view(torch.uint8), transport.global_ranks[operation.peer]))

        if not calls:
            self.works = []
        elif transport.lane is None:
            self.works = dist.batch_isend_irecv([dist.P2POp(*call, transport.group) for call in calls])
        else:
            self.works = [method(data, peer, transport.group) for method, data, peer in calls]

    def wait(self) -> None:
        """Make the current stream wait for the messages, then write what they bring."""
        for work in self.works:
            work.wait()
        land(self.step, self.buffer, self.incoming)


def _chunks(operation: Any) -> range:
    return range(operation.chunk, operation.chunk + operation.num_chunks)
