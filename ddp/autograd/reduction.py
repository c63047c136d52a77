"""A reduction in progress, as those see it who take part in it."""

from __future__ import annotations

from typing import Protocol

from ddp.reduction.events import Event
from ddp.reduction.reducer import Phase


class Reduction(Protocol):
    """A reducer whose commands are carried out: `ddp.autograd.driver.TorchDriver`."""

    @property
    def phase(self) -> Phase:
        """Where the reducer is in a pass."""

    def begin(self) -> None:
        """Begin a pass."""

    def tell(self, event: Event) -> None:
        """Tell the reducer, and carry its commands out."""

    def advance(self, wait: bool = False) -> None:
        """Advance what is in flight, or wait for all of it, and tell the reducer what has completed."""
