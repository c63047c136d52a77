"""Options of runs on virtual GPUs: without data, equal ranks folded, and the memory of the device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from testbed.errors import UsageError

if TYPE_CHECKING:
    from collectives.virtual.gpu.routing import RoutingRecord


@dataclass(frozen=True)
class GpuOptions:
    """Options for ranks that compute on a GPU, which ``--compute`` names."""

    PANEL: ClassVar = "GPU"

    fake: Annotated[
        bool,
        typer.Option(
            "--fake",
            help="Tensors on the GPU have shapes and no values, so models run that fit into no machine here.",
        ),
    ] = False
    routing: Annotated[
        str | None,
        typer.Option(
            metavar="balanced|power-law:A|FILE",
            help="With --fake: which experts tokens go to, where routers (topk) choose by scores without "
            "values; by default balanced.",
        ),
    ] = None
    record_routing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Count with data what --routing FILE takes without."),
    ] = None
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="An operation whose cost has no formula, and which its bytes do not bound, is an error; "
            "else the report names it.",
        ),
    ] = False
    fold: Annotated[
        Literal["auto", "on", "off"],
        typer.Option(
            help="Ranks that are found to do the same run as one; auto: with --fake, in all but small runs."
        ),
    ] = "auto"
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|off",
            help="Memory of a GPU, beyond which a script runs out of it; off: it goes on, and the report "
            "says what is missing. By default the device's.",
        ),
    ] = None

    @property
    def given(self) -> dict[str, bool]:
        """Which of them were given, by their names."""
        return {
            "--fake": self.fake,
            "--fold": self.fold != "auto",
            "--memory-limit": self.memory_limit is not None,
            "--strict": self.strict,
            "--routing": self.routing is not None,
            "--record-routing": self.record_routing is not None,
        }

    @property
    def folds(self) -> bool:
        """Whether ranks that do the same run as one."""
        return self.fold == "on" or (self.fake and self.fold == "auto")

    def record(self) -> RoutingRecord | None:
        """Return what records the routing of a run, if that is asked for.

        Raises:
            UsageError: routing is stated, or there is no data to record.
        """
        if self.routing is not None and not self.fake:
            raise UsageError("--routing stands for scores that data would give: add --fake, or leave it out")
        if self.record_routing is None:
            return None
        if self.fake:
            raise UsageError("--record-routing counts what routers choose by data: leave --fake out")
        from collectives.virtual.gpu.routing import RoutingRecord

        return RoutingRecord()

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of `collectives.virtual.run`."""
        fold = {"auto": None, "on": True, "off": False}[self.fold]
        return {
            "fake": self.fake,
            "fold": fold,
            "memory_limit": self.memory_limit,
            "routing": self.routing,
            "strict": self.strict,
        }
