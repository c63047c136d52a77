"""Home process: the one in which a rank was made, and the only one that may speak for it.

A child that is forked afterwards has a copy of all that a rank calls by: memory that it shares with the other
ranks, sockets, a place in the queues.  Were it to make a call, the others would take it for the rank, whose
own calls would then be one behind; over Gloo, whose threads are not copied, it would be aborted.
"""

from __future__ import annotations

import os

from collectives.errors import NotSupportedError


class HomeProcess:
    """The process that makes this."""

    def __init__(self) -> None:
        self.number = os.getpid()

    def check(self) -> None:
        """Check that this is still that process, before anything is done that others would see.

        Raises:
            NotSupportedError: it is a child that was forked from it.
        """
        if os.getpid() != self.number:
            raise NotSupportedError(
                f"process {os.getpid()} was forked from process {self.number}, a rank whose group had been "
                "made, and is no rank itself: make the call in the parent, or give the child a group of its "
                "own by starting it before init_process_group, or with the method 'spawn'"
            )
