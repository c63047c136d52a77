"""Programs for ranks that share memory: every rank reads what it needs where it is."""

from __future__ import annotations

from collectives.algorithms.direct import direct
from collectives.algorithms.recursive_doubling import recursive_doubling
from collectives.algorithms.shared.segments import SEGMENTS
from collectives.catalogue.selectors import fixed
from collectives.program import Algorithm

_WHOLE_BYTES = 1 << 20
"""Bytes of a buffer up to which ranks pass all of it on, in few messages."""

_SEGMENT_BYTES = 1 << 22
"""Bytes of a segment: those of a few ranks, and the copies that are on their way, fit in a cache together."""

_OTHERS = fixed({"all_gather": "direct", "reduce_scatter": "direct"})


class OnOneHost:
    """What ranks of one host take where nobody has chosen; a `collectives.catalogue.selectors.Selector`."""

    def select(self, collective: str, nbytes: int) -> Algorithm:
        """Return the algorithm of *collective* for *nbytes* bytes."""
        if collective != "all_reduce":
            return _OTHERS.select(collective, nbytes)
        if nbytes <= _WHOLE_BYTES:
            return recursive_doubling
        if nbytes < 2 * _SEGMENT_BYTES:
            return direct
        return direct.with_parameters(segments=min(nbytes // _SEGMENT_BYTES, SEGMENTS["segments"][-1]))
