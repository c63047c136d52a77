"""Overlap strategies: when a bucket whose gradients are all ready starts its journey.

A strategy is asked whenever a bucket became complete and once when the backward pass has ended.
It sees the buckets that wait to be launched and answers which of them go now.  Because every
rank must launch the same collectives in the same order, and readiness differs from rank to
rank, buckets are launched in index order, which is the same everywhere; the reducer checks it.

To add a strategy: write a class with a name and a `choose`, and add it to `STRATEGIES`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from types import MappingProxyType
from typing import Protocol

from ddp.errors import UnknownStrategyError


@dataclass(frozen=True, slots=True)
class WaitingBucket:
    """A bucket that has not been launched yet."""

    index: int
    complete: bool


class Strategy(Protocol):
    """Decides when complete buckets are launched."""

    @property
    def name(self) -> str:
        """As users write it."""

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        """Return the buckets to launch now, in the order of launch.

        *waiting* lists all buckets not yet launched, by index.  What is returned must be complete
        and in index order without gaps; after the backward pass nothing may be left behind.
        """


class AfterBackward:
    """No overlap: all buckets are launched when the backward pass has ended.  The baseline."""

    name = "after_backward"

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        """Launch everything at the end, and nothing before."""
        return [bucket.index for bucket in waiting] if backward_ended else []


class WaitFree:
    """Every bucket is launched as soon as it, and all buckets before it, are complete.

    Source: Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep
    Learning on GPU Clusters", USENIX ATC 2017, section 3.1 (wait-free backpropagation).
    """

    name = "wait_free"

    def choose(self, waiting: Sequence[WaitingBucket], backward_ended: bool) -> Sequence[int]:
        """Launch the complete buckets up to the first that is not."""
        return [bucket.index for bucket in takewhile(lambda bucket: bucket.complete, waiting)]


STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {strategy.name: strategy for strategy in (AfterBackward(), WaitFree())}
)


def resolve_strategy(strategy: str | Strategy) -> Strategy:
    """Return *strategy* itself, or the shipped one of that name.

    Raises:
        UnknownStrategyError: no strategy has that name; the message has the nearest.
    """
    if not isinstance(strategy, str):
        return strategy
    if strategy not in STRATEGIES:
        nearest = difflib.get_close_matches(strategy, STRATEGIES, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        known = ", ".join(STRATEGIES)
        raise UnknownStrategyError(f"unknown overlap strategy {strategy!r}; {hint}known are: {known}")
    return STRATEGIES[strategy]
