"""Options of goodput: what fails, how training goes on, and how its state is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

import typer

from testbed.errors import UsageError
from testbed.goodput.parts import PUBLISHED
from testbed.goodput.policy import DETECTION_SECONDS, REPAIR_SECONDS, RESTARTS, Degraded

_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class RecoveryName(StrEnum):
    """How training goes on after a failure."""

    RESTART = "restart"
    SPARES = "spares"
    IN_PROCESS = "in-process"
    SHRINK = "shrink"


class CheckpointName(StrEnum):
    """Whether training waits for a checkpoint."""

    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True)
class GoodputOptions:
    """Options for the goodput of a long training."""

    PANEL: ClassVar = "Goodput"

    goodput: Annotated[
        bool,
        typer.Option("--goodput", help="How much of a long training's time counts, with SCRIPT as its step."),
    ] = False
    days: Annotated[float, typer.Option(min=0.01, max=3650, metavar="N", help="Length of the training.")] = (
        30.0
    )
    mtbf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART=TIME,…",
            help=f"Time between failures of one part, as in gpu=80000h: {', '.join(PUBLISHED)} (by default "
            "as in Llama 3's training), rack; or of the whole: cluster=3h.",
        ),
    ] = None
    recovery: Annotated[
        RecoveryName,
        typer.Option(
            help="After a failure: a new job; nodes that stand by; the same processes; or fewer nodes."
        ),
    ] = RecoveryName.RESTART
    restart_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Until processes train again, without detection and loading; by default "
            + ", ".join(f"{name} {seconds:g}s" for name, seconds in RESTARTS.items())
            + ".",
        ),
    ] = None
    detection_time: Annotated[
        str, typer.Option(metavar="TIME", help="Until all ranks know of a failure.")
    ] = f"{DETECTION_SECONDS:g}s"
    spares: Annotated[
        int | None,
        typer.Option(
            min=0, max=100_000, metavar="N", help="Nodes that stand by; by default there is always one."
        ),
    ] = None
    repair_time: Annotated[str, typer.Option(metavar="TIME", help="Until a failed node is back.")] = (
        f"{REPAIR_SECONDS / 3600:g}h"
    )
    degraded: Annotated[
        str | None,
        typer.Option(
            metavar="MTBF:TIME:FACTOR",
            help="Nodes that are slow for a while: each one every MTBF, for TIME, steps FACTOR as long.",
        ),
    ] = None
    checkpoint: Annotated[
        CheckpointName, typer.Option(help="Whether training waits for storage, or for the hosts' memory.")
    ] = CheckpointName.SYNC
    checkpoint_interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of training between checkpoints; by default the best.")
    ] = None
    checkpoint_bytes: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of the whole state; by default that of the script's optimizer."),
    ] = None
    storage_bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="Into storage, of all nodes together; by default 0.98 GB/s for each node."
        ),
    ] = None

    def mtbf_hours(self) -> dict[str, float]:
        """Return the hours between failures that are given, by part.

        Raises:
            UsageError: one cannot be read.
        """
        found = {}
        for text in (own for given in self.mtbf or () for own in given.split(",")):
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"--mtbf {text}: expected PART=TIME, such as gpu=80000h")
            found[name.strip()] = parse_time(value, "--mtbf") / 3600
        return found

    def degraded_nodes(self) -> Degraded | None:
        """Return what makes nodes slow; None: nothing.

        Raises:
            UsageError: it cannot be read.
        """
        if self.degraded is None:
            return None
        words = self.degraded.split(":")
        try:
            if len(words) != 3 or not 1 < float(words[2]) <= 1000:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--degraded {self.degraded}: expected MTBF:TIME:FACTOR with a factor above 1, such as "
                "5000h:2h:1.2"
            ) from None
        mtbf, seconds = (parse_time(word, "--degraded") for word in words[:2])
        return Degraded(mtbf / 3600, seconds, float(words[2]))


def parse_time(text: str, option: str) -> float:
    """Return seconds: a number with s, min, h or d behind it, above 0; ``inf`` is for ever.

    Raises:
        UsageError: it is none.
    """
    plain = text.strip()
    unit = next((name for name in sorted(_UNITS, key=len, reverse=True) if plain.endswith(name)), "")
    try:
        if plain == "inf":
            return float("inf")
        seconds = float(plain.removesuffix(unit)) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = -1.0
    if not 0 < seconds < 1e15:
        raise UsageError(
            f"{option} {text}: expected a time above 0 with its unit: {', '.join(_UNITS)}, such as 10min"
        )
    return seconds
