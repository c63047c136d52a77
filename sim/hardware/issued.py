"""Work that is issued to a GPU, as its host counts it, and what that takes of the host's time."""

from __future__ import annotations

from typing import NamedTuple

from sim.hardware.device import Device


class Issued(NamedTuple):
    """How much a host issues, or how long it takes for each kind.

    Attributes:
        operations: that launch kernels, calls of collectives among them.
        boundaries: in Python (`collectives.virtual.computation.boundaries`).
        collectives: and messages.
    """

    operations: int = 0
    boundaries: int = 0
    collectives: int = 0

    def since(self, before: Issued) -> Issued:
        """Return what was issued after *before* was."""
        return Issued(*(now - then for now, then in zip(self, before, strict=True)))

    def taken_ps(self, device: Device) -> Issued:
        """Return what each kind takes of the time of *device*'s host, in picoseconds."""
        return Issued(
            self.operations * device.host_overhead_ps,
            self.boundaries * device.host_boundary_ps,
            self.collectives * device.host_enqueue_ps,
        )


NOTHING = Issued()
