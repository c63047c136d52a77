"""Making sure, before a call is handed to somebody else's collective, that all ranks make the same."""

from __future__ import annotations

import torch

from collectives.call import Call
from collectives.chunking import Buffer, Chunking
from collectives.execute import execute
from collectives.reduction import REDUCE
from collectives.resolve import resolve_algorithm
from collectives.transports import Transport


class Agreement:
    """Returns, when called, as soon as every rank has called with an equal `Call`.

    A barrier whose messages travel in the call's own channel: those of ranks whose calls differ
    never meet, so they wait, and the failure of the wait names them.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.barrier = resolve_algorithm("tree")

    def __call__(self, call: Call) -> None:
        """Return when all ranks have made this call.

        Raises:
            CollectiveError: some rank has not; the message names it.
        """
        token = torch.zeros(1, dtype=torch.uint8)
        buffer = Buffer(
            Chunking(1, self.barrier.num_chunks(self.transport.world_size), 1), token, REDUCE["sum"]
        )
        execution = execute(self.barrier, buffer, self.transport, call.channel())
        self.transport.start(execution, call).wait()
