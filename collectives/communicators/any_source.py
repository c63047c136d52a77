"""Receives from any source: of the messages to a rank under one tag the one that arrives first.

Messages are numbered from each source by itself, so a rank that does not say from whom it wants one posts a
receive for the next of every source, a *claim*, into memory of its own.  The claim that is met first gives
the message; in virtual time the earliest, of several at one time that of the least rank, unless an order of
events chooses another.  The other claims
stay for later receives under that tag, whether those say from whom or not, in the order of their calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import torch

from collectives.communicators.requests import flat, write_back
from collectives.errors import NotSupportedError
from collectives.execution.work import Work

Receive = Callable[[torch.Tensor, int, int], Work]
"""Starts the receive of the next message of a rank under a tag."""
WaitAny = Callable[[Sequence[Work], float | None], None]
"""Returns when one of several works is complete."""
FirstSource: TypeAlias = Callable[[Sequence[int]], int]
"""Returns which of several ranks, in ascending order, is first: their messages came at one time."""


@dataclass(eq=False)
class ReceiveWork:
    """A receive that a claim will meet; a `collectives.execution.work.Work`.

    Attributes:
        tensor: where the message is wanted.
        sources: ranks from which it may come.
        source: the rank from which it came; None until then.
        completed_ps: when it was there.
    """

    queue: AnySource
    tag: int
    tensor: torch.Tensor
    sources: tuple[int, ...]
    source: int | None = None
    completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return when the message is in place."""
        while self.source is None:
            self.queue.wait_for_one(self, timeout)

    def is_completed(self) -> bool:
        """Return whether the message is in place, after advancing what can be advanced."""
        if self.source is None:
            self.queue.poll()
            self.queue.look(self)
            self.queue.settle(self.tag)
        return self.source is not None


@dataclass(frozen=True)
class _Claim:
    work: Work
    memory: torch.Tensor


class AnySource:
    """The claims of one rank, by tag.

    Args:
        receive: starts an ordinary receive.
        wait_any: waits for one of several.
        poll: advances what is in flight.
        first_source: chooses among messages that came at one time.
        turn: which a thread has that touches the claims; who starts a receive has it.
    """

    def __init__(
        self,
        receive: Receive,
        wait_any: WaitAny,
        poll: Callable[[], None],
        first_source: FirstSource,
        turn: AbstractContextManager[object],
    ) -> None:
        self.poll = poll
        self._receive = receive
        self._wait_any = wait_any
        self._first_source = first_source
        self._turn = turn
        self._claims: dict[int, dict[int, _Claim]] = defaultdict(dict)
        self._wanted: dict[int, list[ReceiveWork]] = defaultdict(list)

    def has_claim(self, source: int, tag: int) -> bool:
        """Return whether the next message of *source* under *tag* is claimed, or may come to be."""
        return source in self._claims.get(tag, ()) or bool(self._wanted.get(tag))

    def start(self, tensor: torch.Tensor, sources: tuple[int, ...], tag: int) -> ReceiveWork:
        """Start receiving into *tensor* what comes first from one of *sources* under *tag*.

        Raises:
            NotSupportedError: a message of another size or dtype has been claimed from one of them.
        """
        work = ReceiveWork(self, tag, tensor, sources)
        self._wanted[tag].append(work)
        self._claim(work)
        return work

    def wait_for_one(self, work: ReceiveWork, timeout: float | None) -> None:
        """Wait until a message has come that *work*, or one before it, may take, and hand it out."""
        with self._turn:
            if work.source is not None:  # another thread has handed it out
                return
            self._claim(work)
            claimed = [self._claims[work.tag][source].work for source in work.sources]
        self._wait_any(claimed, timeout)
        self.settle(work.tag)

    def look(self, work: ReceiveWork) -> None:
        """Let what may have come for *work* be seen."""
        with self._turn:
            if work.source is not None:  # another thread has handed it out
                return
            self._claim(work)
            for source in work.sources:
                self._claims[work.tag][source].work.is_completed()

    def settle(self, tag: int) -> None:
        """Hand out the messages that have come to those who want them, in the order of their calls."""
        with self._turn:
            self._settle(tag)

    def _settle(self, tag: int) -> None:
        claims, wanted = self._claims[tag], self._wanted[tag]
        for work in list(wanted):
            come = [
                (claim.work.completed_ps, source)
                for source, claim in claims.items()
                if source in work.sources and claim.work.completed_ps is not None
            ]
            if come:
                first_ps = min(completed_ps for completed_ps, _ in come)
                source = self._first_source(
                    sorted(source for completed_ps, source in come if completed_ps == first_ps)
                )
                write_back(work.tensor, flat(claims.pop(source).memory))
                work.completed_ps, work.source = first_ps, source
                wanted.remove(work)

    def _claim(self, work: ReceiveWork) -> None:
        """Claim the next message of every source of *work*, unless that is done."""
        claims = self._claims[work.tag]
        for source in work.sources:
            if source not in claims:
                memory = torch.empty_like(work.tensor, memory_format=torch.contiguous_format)
                claims[source] = _Claim(self._receive(memory, source, work.tag), memory)
            claimed = claims[source].memory
            if claimed.numel() != work.tensor.numel() or claimed.dtype != work.tensor.dtype:
                raise NotSupportedError(
                    f"an earlier recv from any source under tag {work.tag} may take the next message of rank "
                    f"{source}, as {claimed.numel()} × {claimed.dtype}, and now {work.tensor.numel()} × "
                    f"{work.tensor.dtype} are wanted from it; use another tag"
                )
