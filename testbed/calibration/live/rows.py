"""Rows of a live calibration: what was measured of a network, in words that the simulator understands."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

NATIVE = "native"
"""The vendor's own collective."""

_OURS = {"broadcast": "tree", "gather": "direct", "scatter": "direct", "all_to_all": "direct"}


@dataclass(frozen=True)
class Pattern:
    """Traffic: a collective of some ranks, or of several groups of ranks at once.

    Attributes:
        collective: its name.
        algorithm: `NATIVE`, or the name of a program of ours.
        nbytes: of the buffer of each group, as nccl-tests counts it.
        groups: the ranks of each; groups have no rank in common.
    """

    collective: str
    algorithm: str
    nbytes: int
    groups: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        who = " and ".join("-".join(map(str, members)) for members in self.groups)
        return f"{self.collective} {self.algorithm} of {self.nbytes} B among {who}"

    @property
    def is_native(self) -> bool:
        """Whether it is carried out by the vendor's own collectives."""
        return self.algorithm == NATIVE


@dataclass(frozen=True)
class Row:
    """What was measured of a pattern: seconds of each repetition, until the last rank was done."""

    pattern: Pattern
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Half of the repetitions took no longer."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half the range of the middle half of the repetitions, over the median."""
        ordered = sorted(self.seconds)
        quarter = len(ordered) // 4
        middle = ordered[quarter : len(ordered) - quarter]
        return (middle[-1] - middle[0]) / 2 / self.median


def pattern_of(collective: str, native: bool, nbytes: int, *groups: tuple[int, ...]) -> Pattern:
    """Return *collective* among *groups* of equally many ranks, of about *nbytes* bytes of `ITEM_SIZE`."""
    from testbed.benchmarking.payload import num_parts

    unit = ITEM_SIZE * num_parts(collective, len(groups[0]))
    algorithm = NATIVE if native else _OURS.get(collective, "ring")
    return Pattern(collective, algorithm, max(1, round(nbytes / unit)) * unit, groups)


def received_by_a_rank(pattern: Pattern) -> float:
    """Return the bytes that the busiest rank sends or receives by the best algorithm there is, at least 1."""
    ranks = len(pattern.groups[0])
    passes = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}
    return max(1.0, pattern.nbytes * passes.get(pattern.collective, (ranks - 1) / ranks))


ITEM_SIZE = 4
"""Bytes of an element: float32."""
