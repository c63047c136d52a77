"""How the conditions of a cluster are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from testbed.errors import UsageError

if TYPE_CHECKING:
    from sim.conditions import Condition, LinkFailure, Straggler

_STRAGGLER = re.compile(r"(\d+):(\d+(?:\.\d+)?)?(?:\+(.+))?", re.ASCII)


def parse_conditions(
    jitter: str | None, seed: int, stragglers: Sequence[str], fail_links: Sequence[str], reroute: bool
) -> Iterator[Condition]:
    """Yield the conditions that the options of those names ask for.

    Raises:
        UsageError: one cannot be read.
        UnitError, ConditionError: a time that cannot be read, or a factor below 1.
    """
    from sim import Jitter

    if reroute and not fail_links:
        raise UsageError("--reroute is what messages do when a link fails: add --fail-link LINK@TIME")
    if jitter is not None:
        yield Jitter(jitter, seed=seed)
    for text in stragglers:
        yield parse_straggler(text)
    for text in fail_links:
        yield parse_failure(text, reroute)


def parse_straggler(text: str) -> Straggler:
    """Return the slow rank of *text*: ``3:2`` (half as fast), ``3:+1ms`` (late) or ``3:2+1ms``.

    Raises:
        UsageError: it cannot be read.
        UnitError, ConditionError: a delay that cannot be read, or a factor below 1.
    """
    from sim import Straggler

    match = _STRAGGLER.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        raise UsageError(
            f"--straggler {text}: expected RANK:FACTOR, RANK:+DELAY or both, such as 3:2, 3:+1ms or 3:2+1ms"
        )
    factor = float(match[2] or 1)
    return Straggler(int(match[1]), int(factor) if factor.is_integer() else factor, match[3] or 0)


def parse_failure(text: str, reroute: bool) -> LinkFailure:
    """Return the failure of *text*: ``rank 3 up@1ms``, or ``12@1ms`` by the link's number.

    Raises:
        UsageError: it cannot be read.
        UnitError: a time that cannot be read.
    """
    from sim import LinkFailure

    link, at, time = (part.strip() for part in text.rpartition("@"))
    if not (link and at and time):
        raise UsageError(
            f"--fail-link {text}: expected LINK@TIME, such as 'rank 3 up@1ms' (--all-links lists the links)"
        )
    return LinkFailure(int(link) if link.isdecimal() else link, time, reroute)
