"""Untimed execution of a collective: the programs of all ranks on their data, in one thread and no time.

The programs are those that move the data of ranks without a GPU, and so are the order of chunks and the
reductions: the results are theirs to the bit.  They go over the transport of threads, one after the other as
far as each gets without waiting, until all are through.  Where the rows of a program match, all ranks go row
by row (`collectives.virtual.batched_execution`).
"""

from __future__ import annotations

from collections.abc import Sequence

from collectives.catalogue.selectors import Selector
from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.errors import ProgramError
from collectives.execution.blame import Messages
from collectives.execution.execute import execute
from collectives.execution.transport import Execution, Poster
from collectives.program import Algorithm
from collectives.program.chunking import Buffer
from collectives.transports.threaded import ThreadedTransport, ThreadMeetingPoint
from collectives.virtual.batched_execution import carry_out, moves_of

MIN_RANKS = 3
"""Ranks from which on rows are carried out for all of them together."""


def carry_out_together(requests: Sequence[Request], selector: Selector) -> None:
    """Carry out one collective: that of each rank's request, by the algorithm that *selector* chooses.

    Raises:
        ProgramError: ranks wait for messages that nobody sends.
    """
    meeting_point, together = ThreadMeetingPoint(len(requests)), _Together(len(requests))
    works = [
        ProgramLauncher(ThreadedTransport(meeting_point, rank), selector, "cpu", together.carry_out).launch(
            own
        )
        for rank, own in enumerate(requests)
    ]
    num_steps = -1
    while waiting := [work for work in works if not work.is_completed()]:
        if together.num_steps == num_steps:
            raise ProgramError(f"{len(waiting)} ranks wait for messages that nobody sends")
        num_steps = together.num_steps


class _Together:
    """The programs of all ranks; row by row, once all ranks are here, where that is possible.

    Attributes:
        num_steps: that have been posted, of all ranks.
    """

    def __init__(self, world_size: int) -> None:
        self.num_steps = 0
        self._world_size = world_size
        self._buffers: dict[int, Buffer] = {}

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Poster, fingerprint: int
    ) -> Execution:
        """Run the program of one rank; a `collectives.communicators.programs.CarryOut`."""
        num_ranks = self._world_size
        moves = None if num_ranks < MIN_RANKS else moves_of(algorithm, buffer.chunking, num_ranks)
        if moves is None:
            for handle in execute(algorithm, buffer, transport, fingerprint):
                self.num_steps += 1
                yield handle
            return

        self._buffers[transport.rank] = buffer
        if len(self._buffers) < num_ranks:
            yield self
        else:
            carry_out(algorithm, moves, self._buffers)

    def done(self) -> bool:
        """Return whether all ranks are here, so that their rows have been carried out."""
        return len(self._buffers) == self._world_size

    def observe(self, timeout: float) -> None:
        """Do nothing: `done` always tells."""

    def wait(self, timeout: float) -> None:
        """Do nothing: nobody waits before all are here."""

    def doing(self) -> str:
        """Return what is waited for, in words."""
        return "all ranks to come"

    def messages(self) -> Messages:
        """Return none."""
        return Messages()
