"""Messages of a rank to itself: copied when both sides have been called, in order for each tag.

NCCL carries them in one batch of sends and receives; nothing leaves the rank, and no time passes.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass

import torch

from collectives.communicators.requests import flat, write_back
from collectives.errors import CollectiveError, MismatchError
from collectives.execution.clock import Clock


@dataclass(eq=False)
class OwnMessage:
    """One side of a message of a rank to itself; a `collectives.execution.work.Work`.

    Attributes:
        tensor: what is sent, or where it is wanted.
        title: of the message, for people.
        completed_ps: when the other side was called; None until then.
        is_known: whether what is sent has values.
    """

    tensor: torch.Tensor
    title: str
    completed_ps: int | None = None
    is_known: bool = True

    def wait(self, timeout: float | None = None) -> None:
        """Return if the message has been copied.

        Raises:
            CollectiveError: the other side has not been called, and cannot be while this rank waits.
        """
        if self.completed_ps is None:
            raise CollectiveError(
                f"{self.title} has only one side yet, and the other cannot be called while the rank "
                f"waits; start both with batch_isend_irecv, or with isend and irecv, and then wait"
            )

    def is_completed(self) -> bool:
        """Return whether the message has been copied."""
        return self.completed_ps is not None


class OwnMessages:
    """The messages of *rank* to itself of which one side has been called."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._sends: dict[int, deque[OwnMessage]] = defaultdict(deque)
        self._receives: dict[int, deque[OwnMessage]] = defaultdict(deque)

    def send(self, tensor: torch.Tensor, tag: int, clock: Clock) -> OwnMessage:
        """Send *tensor* under *tag*, which is read when the message is received."""
        return self._post(self._sends[tag], tensor, tag, clock)

    def recv(self, tensor: torch.Tensor, tag: int, clock: Clock) -> OwnMessage:
        """Replace *tensor* by what is sent under *tag*."""
        return self._post(self._receives[tag], tensor, tag, clock)

    def _post(self, side: deque[OwnMessage], tensor: torch.Tensor, tag: int, clock: Clock) -> OwnMessage:
        message = OwnMessage(tensor, f"the message from rank {self._rank} to itself (tag {tag})")
        with self._lock:
            side.append(message)
            sends, receives = self._sends[tag], self._receives[tag]
            if sends and receives:
                _carry(sends.popleft(), receives.popleft(), clock.now_ps())
        return message


def _carry(send: OwnMessage, receive: OwnMessage, now_ps: int) -> None:
    """Copy what *send* gives to where *receive* wants it.

    Raises:
        MismatchError: they differ in size or dtype.
    """
    given, wanted = send.tensor, receive.tensor
    if given.numel() != wanted.numel() or given.dtype != wanted.dtype:
        raise MismatchError(
            f"{send.title} sends {given.numel()} × {given.dtype}, "
            f"and {wanted.numel()} × {wanted.dtype} are wanted"
        )
    receive.is_known = not given.is_meta
    if receive.is_known:
        write_back(wanted, flat(given))
    send.completed_ps = receive.completed_ps = now_ps
