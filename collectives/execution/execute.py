"""Execution of a program: a loop that posts a step and yields what is to be waited for.

`execute` never waits itself, because in virtual time nothing may block and in real time
something must.  Whoever drives it decides how: `collectives.transports.progress` calls ``handle.wait()``,
the simulator hands it to SimPy, for which every handle is an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm, Step
from collectives.program.chunking import Buffer


def execute(algorithm: Algorithm, buffer: Buffer, transport: Poster, fingerprint: int) -> Execution:
    """Yield one handle per step of this rank's program; go on when the step is complete.

    When the generator ends, nothing reads or writes the buffer any more.
    """
    for step in algorithm.steps(transport.rank, transport.world_size):
        operations = buffer.without_empty(step)
        if operations:
            yield transport.post(operations, buffer, fingerprint)
    rest = transport.drain(fingerprint)
    if rest is not None:
        yield rest


def land(step: Step, buffer: Buffer, incoming: Mapping[int, Any]) -> None:
    """Write what a step received or read into *buffer*, in the order in which the step lists it.

    Args:
        step: the step.
        buffer: the buffer that it works on.
        incoming: the data to be written, by position of the operation in the step.
    """
    for position in sorted(incoming):
        operation = step[position]
        target = buffer.view(operation)
        if operation.reduces:
            buffer.reduce(target, incoming[position])
        else:
            target[:] = incoming[position]
