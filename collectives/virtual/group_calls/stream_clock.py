"""Clock of a rank with streams: the time of its host."""

from __future__ import annotations

from collectives.virtual.streams.gpu import Gpu


class StreamClock:
    """The host's time of a rank; a `collectives.execution.clock.Clock`.

    Args:
        gpu: of the rank.
    """

    must_be_charged = True

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def now_ps(self) -> int:
        """Return the host's time; the thread waits until it is known, which takes no virtual time."""
        return self._gpu.now_ps()

    def charge(self, work: str) -> None:
        """Launch a kernel that takes the time given for *work*; none if there is none."""
        duration_ps = self._gpu.rank_thread.charges.get(work, 0)
        if duration_ps:
            self._gpu.launch(work, duration_ps)
