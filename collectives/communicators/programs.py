"""Collectives and messages on tensors, carried out by our programs over a transport."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from collectives.algorithms.direct import direct_all_to_all
from collectives.algorithms.tree import tree
from collectives.catalogue.selectors import Choice, Selector, fixed
from collectives.communicators.all_to_all_v import all_to_all_v
from collectives.communicators.any_source import FirstSource, WaitAny
from collectives.communicators.dispatch_modes import calls_hidden_from_modes
from collectives.communicators.point_to_point import message
from collectives.communicators.reduction import REDUCE
from collectives.communicators.requests import Memory, Request, apart_from, flat
from collectives.errors import NotSupportedError
from collectives.execution.call import Call
from collectives.execution.execute import execute
from collectives.execution.transport import Execution, Transport
from collectives.execution.work import Work
from collectives.program import Algorithm
from collectives.program.chunking import Buffer, Chunking

CarryOut = Callable[[Algorithm, Buffer, Transport, int], Execution]
"""Runs the program of a collective; as `collectives.execution.execute.execute`."""


@calls_hidden_from_modes
class ProgramLauncher:
    """A `collectives.communicators.communicator.Launcher` of programs over *transport*.

    Args:
        transport: moves the messages.
        algorithm: which algorithm carries out a call; see `collectives.catalogue.selectors`.
        device: on which a barrier's token lives.
        carry_out: runs the program of a collective.
    """

    def __init__(
        self,
        transport: Transport,
        algorithm: Choice | Selector = "ring",
        device: torch.device | str = "cpu",
        carry_out: CarryOut = execute,
    ) -> None:
        self.transport = transport
        self.selector = algorithm if isinstance(algorithm, Selector) else fixed(algorithm)
        self.device = torch.device(device)
        self.rank = transport.rank
        self.world_size = transport.world_size
        self.clock = transport.clock
        self.moves_by_itself = False
        self.wait_any: WaitAny | None = getattr(transport, "wait_any", None)
        self.first_source: FirstSource = getattr(transport, "first_source", min)
        self.turn: AbstractContextManager[object] = getattr(transport, "turn", nullcontext())
        self.memory: Memory | None = getattr(transport, "memory", None)
        self._carry_out = carry_out

    def launch(self, request: Request) -> Work:
        """Start the program that carries out *request*."""
        algorithm = algorithm_of(request, self.selector)
        call = request.call(str(algorithm))
        if request.splits is not None:
            execution = self._exchange_parts(request, call)
        elif request.lane is not None:
            execution = self._pass_message(request, algorithm, call)
        else:
            execution = self._run(request, algorithm, self._whole(request), call)
        return self.transport.start(execution, call)

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.transport.poll()

    def _whole(self, request: Request) -> torch.Tensor:
        """Return the whole buffer, in which this rank's part is what it gives."""
        given, output = request.given, request.output
        match request.collective:
            case "barrier":
                return torch.zeros(1, dtype=request.dtype, device=self.device)
            case "all_gather" | "gather":
                assert given is not None
                whole = given.data.new_empty(request.count) if output is None else flat(output)
                self._own_part(whole).copy_(given.data.reshape(-1))
                return whole
            case "reduce_scatter" | "scatter":
                if given is not None:
                    return apart_from(given, given)
                assert output is not None
                return output.data.new_empty(request.count)
            case "all_to_all":
                assert given is not None
                assert output is not None
                return flat(output).copy_(apart_from(output, given))
            case _:
                if output is not None:
                    return output
                assert given is not None
                return apart_from(given, given)

    def _own_part(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.view(self.world_size, -1)[self.rank]

    def _run(self, request: Request, algorithm: Algorithm, whole: torch.Tensor, call: Call) -> Execution:
        """Execute on a flat, contiguous buffer; hand out what had to be copied for that."""
        data = flat(whole)
        reduce = REDUCE[request.op or "sum"]
        buffer = Buffer.for_program(algorithm, self.world_size, data, data.element_size(), reduce)
        yield from self._carry_out(algorithm, buffer, self.transport, call.fingerprint())

        has_part = request.collective in ("reduce_scatter", "scatter")
        request.finish(self._own_part(data) if has_part else data, self.world_size)

    def _pass_message(self, request: Request, algorithm: Algorithm, call: Call) -> Execution:
        tensor = request.given if request.output is None else request.output
        assert tensor is not None
        data = flat(tensor)
        buffer = Buffer(Chunking(len(data), 1, data.element_size()), data)
        yield from execute(algorithm, buffer, self.transport, call.fingerprint())
        request.finish(data, self.world_size)

    def _exchange_parts(self, request: Request, call: Call) -> Execution:
        given, output, splits = request.given, request.output, request.splits
        assert given is not None
        assert output is not None
        assert splits is not None
        received = flat(output)
        yield from all_to_all_v(received, apart_from(output, given), *splits, self.transport, call)
        request.finish(received, self.world_size)


def algorithm_of(request: Request, selector: Selector) -> Algorithm:
    """Return the program that carries out *request*, which *selector* chooses where there is a choice.

    Raises:
        NotSupportedError: the vendor's own collective is wanted, and there is none.
    """
    if request.lane is not None:
        source, destination, _ = request.lane
        return message(source, destination)
    if request.splits is not None:
        return direct_all_to_all
    if request.collective == "barrier":
        return tree

    algorithm = selector.select(request.collective, request.nbytes)
    if algorithm is None:
        raise NotSupportedError(f"there is no native {request.collective} under our own programs")
    return algorithm if request.root is None else algorithm.with_parameters(root=request.root)
