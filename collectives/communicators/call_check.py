"""Check that all ranks make the same call, before it is handed to somebody else's collective."""

from __future__ import annotations

import torch

from collectives.algorithms.tree import tree
from collectives.execution.call import Call
from collectives.execution.execute import execute
from collectives.execution.transport import Transport
from collectives.program.chunking import Buffer


class CallCheck:
    """Returns, when called, as soon as every rank has called with an equal `Call`.

    A barrier whose messages carry the call's own fingerprint: those of ranks whose calls differ
    never meet, so they wait, and the failure of the wait names them.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def __call__(self, call: Call) -> None:
        """Return when all ranks have made this call.

        Raises:
            CollectiveError: some rank has not; the message names it.
        """
        token = torch.zeros(1, dtype=torch.uint8)
        buffer = Buffer.for_program(tree, self.transport.world_size, token, 1)
        execution = execute(tree, buffer, self.transport, call.fingerprint())
        self.transport.start(execution, call).wait()
