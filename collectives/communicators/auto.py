"""Collectives by whichever is fastest at each size: the vendor's own, or one of our programs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from collectives.catalogue.selectors import Selector
from collectives.communicators.native import VENDOR_DTYPES, NativeLauncher
from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.execution.work import Work


class AutoLauncher:
    """A `collectives.communicators.communicator.Launcher` that asks *selector* who carries out each call.

    Calls on both sides are in flight together.  A wait for the vendor first completes our programs
    that were started before: they need this rank to advance, and peers may be waiting for that.

    Args:
        native: hands calls to the vendor.
        programs: carries them out by programs; also those of dtypes that the vendor does not take.
        selector: decides by collective and size, on every rank alike.
    """

    def __init__(self, native: NativeLauncher, programs: ProgramLauncher, selector: Selector) -> None:
        self.native = native
        self.programs = programs
        self.selector = selector
        self.rank = programs.rank
        self.world_size = programs.world_size
        self.clock = programs.clock
        self.moves_by_itself = False
        self.turn = threading.RLock()
        self._in_flight: list[Work] = []

    def launch(self, request: Request) -> Work:
        """Let the side that is fastest at this size start *request*."""
        self._in_flight = [work for work in self._in_flight if work.completed_ps is None]
        if self._is_for_the_vendor(request):
            return _AfterPrograms(self.native.launch(request), self._in_flight)

        work = self.programs.launch(request)
        if request.lane is None:
            self._in_flight.append(work)
        return work

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.programs.poll()

    def _is_for_the_vendor(self, request: Request) -> bool:
        """Return whether the vendor is fastest.

        Messages and barriers are ours; so are parts whose sizes differ between ranks, as these choose nobody.
        """
        if request.lane is not None or request.splits is not None or request.collective == "barrier":
            return False
        if request.dtype not in VENDOR_DTYPES:
            return False
        return self.selector.select(request.collective, request.nbytes) is None


class _AfterPrograms:
    """A call in the vendor's library, and our programs that were started before it."""

    def __init__(self, work: Work, before: Sequence[Work]) -> None:
        self.work = work
        self.before = list(before)

    @property
    def completed_ps(self) -> int | None:
        return self.work.completed_ps

    def wait(self, timeout: float | None = None) -> None:
        for earlier in self.before:
            earlier.wait(timeout)
        self.before.clear()
        self.work.wait(timeout)

    def is_completed(self) -> bool:
        for earlier in self.before:
            earlier.is_completed()
        return self.work.is_completed()
