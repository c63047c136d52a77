"""Untimed execution of a collective: the programs of all ranks on their data, in one thread and no time.

The programs are those that move the data of ranks without a GPU, and so are the order of chunks and the
reductions: the results are theirs to the bit.  Messages are matched by the one rule of
`collectives.execution.matching`; what is sent is copied when it is posted, so no send waits for its receive.
Where the rows of a program match, all ranks go row by row (`collectives.virtual.batched_execution`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from collectives.catalogue.selectors import Selector
from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.errors import ProgramError
from collectives.execution.call import Call
from collectives.execution.clock import Clock, RealClock
from collectives.execution.execute import execute, land
from collectives.execution.matching import Matching
from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm, Local, Send, Step
from collectives.program.chunking import Buffer
from collectives.virtual.batched_execution import carry_out, moves_of

MIN_RANKS = 3
"""Ranks from which on rows are carried out for all of them together."""


def carry_out_together(requests: Sequence[Request], selector: Selector) -> None:
    """Carry out one collective: that of each rank's request, by the algorithm that *selector* chooses."""
    group = _Group(len(requests))
    for rank, request in enumerate(requests):
        transport = _Transport(group, rank)
        ProgramLauncher(transport, selector, "cpu", group.carry_out).launch(request)
    group.run()


class _Posted:
    """A step whose receives have not all arrived."""

    def __init__(self, step: Step, buffer: Buffer | None) -> None:
        self.step = step
        self.buffer = buffer
        self.incoming: dict[int, torch.Tensor] = {}
        self.num_missing = 0
        self.execution: Execution | None = None


class _Group:
    """The executions of all ranks."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ready: deque[Execution] = deque()
        self._matching: Matching[tuple[_Posted, int, torch.Tensor | None]] = Matching()
        self._buffers: dict[int, Buffer] = {}
        self._together: list[_Posted] = []

    def run(self) -> None:
        """Advance all executions to their ends."""
        num_over, num_started = 0, len(self.ready)
        while self.ready:
            num_over += self._advance(self.ready.popleft())
        if num_over < num_started:
            raise ProgramError(f"{num_started - num_over} ranks wait for messages that nobody sends")

    def _advance(self, execution: Execution) -> bool:
        """Advance *execution* as far as it goes; return whether it is over."""
        for posted in execution:
            if posted.num_missing:
                posted.execution = execution
                return False
            self._land(posted)
        return True

    def post(self, rank: int, step: Step, buffer: Buffer, fingerprint: int) -> _Posted:
        """Post all operations of *step*, each message with a copy of what it brings."""
        posted = _Posted(step, buffer)
        for position, operation in enumerate(step):
            if isinstance(operation, Local):
                posted.incoming[position] = buffer.source(operation, step)
                continue
            sent = buffer.snapshot(operation) if isinstance(operation, Send) else None
            posted.num_missing += not isinstance(operation, Send)
            met = self._matching.post(rank, operation, fingerprint, (posted, position, sent))
            if met is not None:
                (_, _, data), (receiver, received, _) = met
                assert data is not None
                self._arrive(receiver, received, data)
        return posted

    def _arrive(self, posted: _Posted, position: int, data: torch.Tensor) -> None:
        posted.incoming[position] = data
        posted.num_missing -= 1
        if not posted.num_missing and posted.execution is not None:
            self._land(posted)
            self.ready.append(posted.execution)

    @staticmethod
    def _land(posted: _Posted) -> None:
        if posted.buffer is not None:
            land(posted.step, posted.buffer, posted.incoming)

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Poster, fingerprint: int
    ) -> Execution:
        """Run the program of one rank; row by row, once all ranks are here, where that is possible."""
        moves = None if self.world_size < MIN_RANKS else moves_of(algorithm, buffer.chunking, self.world_size)
        if moves is None:
            yield from execute(algorithm, buffer, transport, fingerprint)
            return

        self._buffers[transport.rank] = buffer
        if len(self._buffers) < self.world_size:
            held = _Posted((), None)
            held.num_missing = 1
            self._together.append(held)
            yield held
            return
        carry_out(algorithm, moves, self._buffers)
        self.ready.extend(held.execution for held in self._together if held.execution is not None)


class _Transport:
    """The transport of one rank of a group; `collectives.execution.transport.Transport`."""

    def __init__(self, group: _Group, rank: int) -> None:
        self.rank = rank
        self.world_size = group.world_size
        self.clock: Clock = RealClock()
        self._group = group

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> _Posted:
        """Post all operations of *step*."""
        return self._group.post(self.rank, step, buffer, fingerprint)

    def drain(self, fingerprint: int) -> None:
        """Return None: what is sent has been copied."""

    def start(self, execution: Execution, call: Call) -> _Started:
        """Let *execution* begin when the group runs."""
        self._group.ready.append(execution)
        return _Started()

    def poll(self) -> None:
        """Do nothing: the group runs to its end at once."""


class _Started:
    """What nobody waits for; a `collectives.execution.work.Work`."""

    completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Do nothing."""

    def is_completed(self) -> bool:
        """Return False: the group has not run yet."""
        return False
