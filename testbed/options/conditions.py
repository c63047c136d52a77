"""Conditions of a cluster, as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from testbed.errors import UsageError
from testbed.options.arguments import is_number

if TYPE_CHECKING:
    from collectives.virtual.faults import DeadRank, MessageDelay
    from sim.scenario.conditions import Condition, LinkChange, LinkFailure, Straggler

_STRAGGLER = re.compile(r"(\d{1,20}):(?=.)(\d{1,20}(?:\.\d{1,20})?)?(?:\+(.+))?", re.ASCII)
_FAILURE = re.compile(r"(.*\S)\s*@([^@]*\S)", re.DOTALL)
_CHANGE = re.compile(r"(.*\S)\s*@([^@:]*[^@:\s])\s*:([^@]*\S)", re.DOTALL)
_DEATH = re.compile(
    r"(\d{1,20})\s*@\s*(?:iteration\s*=\s*(\d{1,20})|(?!iteration\s*=)(.+))", re.ASCII | re.DOTALL
)


@dataclass(frozen=True)
class ConditionOptions:
    """Options for slow ranks, and for links that change or fail.

    Attributes:
        jitter: Mean of a random pause of each rank before each step.
        seed: Seed of jitter and message delays.
        straggler: A slow rank: 3:2, or late: 3:+1ms. May be repeated.
        fail_link: A link that fails: 'rank 3 up@1ms'. May be repeated.
        reroute: Messages find a way round links that fail.
        degrade_link: A link that changes: 'rank 3 up@1ms:0.5'.
    """

    PANEL: ClassVar = "Faults"

    jitter: Annotated[str | None, typer.Option(metavar="TIME")] = None
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**63)] = 0
    straggler: Annotated[list[str] | None, typer.Option(metavar="RANK:FACTOR")] = None
    fail_link: Annotated[list[str] | None, typer.Option(metavar="LINK@TIME")] = None
    reroute: Annotated[bool, typer.Option("--reroute")] = False
    degrade_link: Annotated[list[str] | None, typer.Option(metavar="LINK@TIME:FACTOR")] = None

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked for by name; None where it is not."""
        return {name: value or None for name, value in vars(self).items()}

    def parse(self) -> Iterator[Condition]:
        """Yield the conditions that are asked for.

        Raises:
            UsageError: one cannot be read.
            UnitError, ConditionError: a time that cannot be read, or a factor below 1.
        """
        from sim import Jitter

        if self.reroute and not self.fail_link:
            raise UsageError("--reroute is what messages do when a link fails: add --fail-link LINK@TIME")
        if self.jitter is not None:
            yield Jitter(self.jitter, seed=self.seed)
        yield from map(parse_straggler, self.straggler or ())
        for text in self.fail_link or ():
            yield parse_failure(text, self.reroute)
        yield from map(parse_change, self.degrade_link or ())


@dataclass(frozen=True)
class FaultOptions:
    """Options for ranks that die and messages that are late.

    Attributes:
        kill_rank: A rank that dies: 3@iteration=5, or 3@10ms.
        delay_messages: Mean of a random delay of each message.
    """

    PANEL: ClassVar = "Faults"

    kill_rank: Annotated[list[str] | None, typer.Option(metavar="RANK@WHEN")] = None
    delay_messages: Annotated[str | None, typer.Option(metavar="TIME")] = None

    def parse(self, seed: int) -> Iterator[DeadRank | MessageDelay]:
        """Yield the faults that are asked for.

        Raises:
            UsageError: one cannot be read.
            UnitError, ConditionError: a time or a number of iterations that cannot be read.
        """
        for text in self.kill_rank or ():
            yield parse_death(text)
        if self.delay_messages is not None:
            from collectives.virtual.faults import MessageDelay

            yield MessageDelay(self.delay_messages, seed)


def parse_straggler(text: str) -> Straggler:
    """Return the slow rank of *text*: ``3:2`` (half as fast), ``3:+1ms`` (late) or ``3:2+1ms``.

    Raises:
        UsageError: it cannot be read.
        UnitError, ConditionError: a delay that cannot be read, or a factor below 1.
    """
    from sim import Straggler

    expected = "RANK:FACTOR, RANK:+DELAY or both, such as 3:2, 3:+1ms or 3:2+1ms"
    rank, slower, delay = _parted(_STRAGGLER, text, "--straggler", expected)
    factor = float(slower or 1)
    return Straggler(int(rank), int(factor) if factor.is_integer() else factor, delay or 0)


def parse_failure(text: str, reroute: bool) -> LinkFailure:
    """Return the failure of *text*: ``rank 3 up@1ms``, or ``12@1ms`` by the link's number.

    Raises:
        UsageError: it cannot be read.
        UnitError: a time that cannot be read.
    """
    from sim import LinkFailure

    expected = "LINK@TIME, such as 'rank 3 up@1ms' (--all-links lists the links)"
    link, time = _parted(_FAILURE, text, "--fail-link", expected)
    return LinkFailure(_link(link), time, reroute)


def parse_change(text: str) -> LinkChange:
    """Return the change of *text*: ``rank 3 up@1ms:0.5``, from 1 ms on half the bandwidth.

    Raises:
        UsageError: it cannot be read.
        UnitError, ConditionError: a time that cannot be read, or a factor that is not above 0.
    """
    from sim import LinkChange

    expected = (
        "LINK@TIME:FACTOR, such as 'rank 3 up@1ms:0.5' for half the bandwidth from then on (testbed simulate "
        "--all-links lists the links)"
    )
    link, time, factor = _parted(_CHANGE, text, "--degrade-link", expected)
    try:
        number = float(factor)
    except ValueError:
        raise UsageError(
            f"--degrade-link {text}: factor: expected a number above 0, got {factor!r}"
        ) from None
    return LinkChange(_link(link), time, number)


def parse_death(text: str) -> DeadRank:
    """Return the death of *text*: ``3@iteration=5``, after five iterations, or ``3@10ms``.

    Raises:
        UsageError: it cannot be read.
        UnitError: a time that cannot be read.
    """
    from collectives.virtual.faults import DeadRank

    expected = "RANK@iteration=N or RANK@TIME, such as 3@iteration=5 or 3@10ms"
    rank, iteration, time = _parted(_DEATH, text, "--kill-rank", expected)
    return DeadRank(int(rank), at=time) if time else DeadRank(int(rank), iteration=int(iteration))


def _parted(pattern: re.Pattern[str], text: str, option: str, expected: str) -> tuple[str, ...]:
    """Return the parts of *text*, the value of *option*, without the blanks around them."""
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: expected {expected}")
    return tuple((part or "").strip() for part in found.groups())


def _link(text: str) -> int | str:
    """Return the number of a link, or its name."""
    return int(text) if is_number(text) else text
