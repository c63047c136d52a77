"""Time and cost to a number of tokens, at the pace of a row and at the prices of the user's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.planning.answers.figures import HOUR

if TYPE_CHECKING:
    from testbed.planning.row import Row


@dataclass(frozen=True)
class Target:
    """What it takes to train on so many tokens.

    Attributes:
        tokens: how many.
        seconds: that it takes.
        gpu_hours: of all ranks together.
        cost: in the currency of the prices; None where there is no price.
    """

    tokens: float
    seconds: float
    gpu_hours: float
    cost: float | None


def to_target(row: Row, tokens: float) -> Target | None:
    """Return what *row* takes for *tokens*; None where it is not known how many tokens a step has.

    Assumed: every step takes what it takes in the steady state; nothing fails and nothing is saved.
    """
    if not row.tokens_per_second:
        return None
    seconds = tokens / row.tokens_per_second
    gpu_hours = seconds * row.point.ranks / HOUR
    price = row.point.price_per_gpu_hour
    return Target(tokens, seconds, gpu_hours, None if price is None else gpu_hours * price)
