"""Options that ask for checks of what a script computes, beside how long it takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import typer

if TYPE_CHECKING:
    from collectives.virtual.parameters.record import ParameterRecord
    from collectives.virtual.parameters.replicas import ReplicaCheck


class CheckName(StrEnum):
    """What can be checked."""

    REPLICAS = "replicas"


@dataclass(frozen=True)
class CheckOptions:
    """Options for checks of values, which need data and a thread for each rank."""

    PANEL: ClassVar = "Checks"

    check: Annotated[
        list[CheckName] | None,
        typer.Option(
            help="replicas: ranks that hold the same parameters hold the same bits after every step; where "
            "they part, the step, the parameter and the ranks are named, and the exit code is 1."
        ),
    ] = None

    orders: Annotated[
        Literal["all"] | None,
        typer.Option(
            help="all: run in every order of events that ranks can tell apart, whatever the speed of ranks "
            "and messages; where it fails in one, or prints or trains something else, both orders are shown, "
            "and the exit code is 1."
        ),
    ] = None
    max_orders: Annotated[int, typer.Option(min=1, max=10_000_000, help="Give up beyond so many orders.")] = (
        10_000
    )

    def record(self) -> ParameterRecord | None:
        """Return what records the parameters of a run, if a check needs them."""
        if not self.check:
            return None
        from collectives.virtual.parameters.record import ParameterRecord

        return ParameterRecord()


def checked(record: ParameterRecord | None) -> ReplicaCheck | None:
    """Return what was found in *record*, if there is one."""
    if record is None:
        return None
    from collectives.virtual.parameters.replicas import check_replicas

    return check_replicas(record)
