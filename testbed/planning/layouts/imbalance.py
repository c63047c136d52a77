"""Imbalance of experts: how much more the busiest rank has than the mean, of those that divide them.

A step waits for the busiest: its experts' products, the messages to and from it, and the activations of its
experts grow by that factor; its own experts have equal parts.  Assumed: the same in every layer and step.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectives.virtual.computation.cuda.experts import rows_of_experts
from testbed.errors import UsageError

_POWER_LAW, _MOST = "power-law:", 10.0


@dataclass(frozen=True)
class Imbalance:
    """What is stated of it.

    Attributes:
        factor: of the busiest rank to the mean; at most all tokens' experts lie on it.
        exponent: of the power law from which shares of experts are drawn, as `rows_of_experts` does; 0: the
            factor counts.
    """

    factor: float = 1.0
    exponent: float = 0.0

    def __str__(self) -> str:
        return f"{_POWER_LAW}{self.exponent:g}" if self.exponent else f"{self.factor:g}"

    @classmethod
    def parse(cls, text: str) -> Imbalance:
        """Return what *text* states: ``1.5``, or ``power-law:1.2``.

        Raises:
            UsageError: it is neither.
        """
        is_law = text.startswith(_POWER_LAW)
        try:
            value = float(text.removeprefix(_POWER_LAW))
        except ValueError:
            value = float("nan")
        if is_law and 0 < value <= _MOST:
            return cls(exponent=value)
        if not is_law and 1 <= value < float("inf"):
            return cls(factor=value)
        raise UsageError(
            f"--imbalance {text}: expected the busiest rank's tokens over the mean, from 1, such as 1.5, or "
            f"power-law:A with A above 0, up to {_MOST:g}, such as power-law:1.2"
        )

    def among(self, ranks: int, tokens: int, experts: int, chosen: int) -> float:
        """Return the factor among so many *ranks*.

        Args:
            ranks: that divide the experts.
            tokens: of one rank.
            experts: of all of them.
            chosen: experts of a token.
        """
        if ranks == 1:
            return 1.0
        factor = self.factor
        if self.exponent:
            busiest = rows_of_experts(tokens * ranks, experts, chosen, ranks, self.exponent)
            factor = sum(busiest) / (tokens * chosen)
        return min(factor, float(ranks))


EVEN = Imbalance()
"""All ranks have equally many."""
