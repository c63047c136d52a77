"""A row of a table as it is read: what is said of it, where that is wrong, and who else may say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from collectives.catalogue.measured_times import MAX_RANKS
from collectives.formats.json_document import problems
from collectives.program.contracts import CONTRACTS
from testbed.calibration.tables.rows import MeasuredRow, System, collective_named
from testbed.errors import UsageError

MAX_SECONDS = 1e6
MAX_BYTES = 2**62
MICRO = 1e-6
"""Seconds of what tables call ``us``."""


@dataclass(frozen=True)
class Said:
    """What options say of a table that does not say it itself.

    Attributes:
        collective: what was carried out.
        ranks: how many took part.
        nodes: on how many nodes.
    """

    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def _collective(name: str) -> str:
    if (collective := collective_named(name)) is None:
        raise ValueError(f"expected one of {', '.join(CONTRACTS)}, got {name[:40]!r}")
    return collective


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {number:g}")
    return int(number)


_Whole: TypeAlias = Annotated[float, AfterValidator(_whole)]


class _Fields(BaseModel):
    """What is known of a row, in text or numbers."""

    model_config = ConfigDict(allow_inf_nan=False)

    collective: Annotated[str, AfterValidator(_collective)]
    size_bytes: Annotated[_Whole, Field(ge=0, le=MAX_BYTES)]
    nodes: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    ranks: Annotated[_Whole, Field(ge=1, le=MAX_RANKS)]
    time: Annotated[float, Field(gt=0, le=MAX_SECONDS)]


@dataclass(frozen=True)
class Table:
    """A table that is being read.

    Attributes:
        path: of its file.
        said: what options say of it.
        systems: what a file beside it says of its sets.
        least_ranks: with which a row of it says anything.
    """

    path: Path
    said: Said
    systems: Mapping[str, System] = field(default_factory=dict)
    least_ranks: int = 1

    def where(self, line: int) -> str:
        """Return how errors call a *line*."""
        return f"{self.path}: line {line}"

    def row(self, line: int, unit: float, **found: Any) -> MeasuredRow:
        """Return the row of which *found* is said in *line*; what is not, its system says, else options do.

        Raises:
            UsageError: nothing says it, or it cannot be; names file, line and field.
        """
        where, name = self.where(line), found.get("set") or self.path.stem
        system = self.systems.get(name)
        known = {
            "collective": system.collective if system else self.said.collective,
            "ranks": system.ranks if system else self.said.ranks,
            "nodes": system.num_nodes if system else self.said.nodes,
            **{what: value for what, value in found.items() if value not in (None, "")},
        }
        ranks, per_node = str(known["ranks"]), str(found.get("ranks_per_node"))
        if ranks.isdecimal() and per_node.isdecimal() and not found.get("nodes"):
            known["nodes"] = -(-int(ranks) // max(1, int(per_node)))
        for what in ("collective", "ranks"):
            if known[what] is None:
                raise UsageError(
                    f"{where}: nothing says the {what} of {name}: not the table, no option --{what}, and no "
                    "file of systems beside the table knows it"
                )
        try:
            fields = _Fields.model_validate(
                {**known, "nodes": known["nodes"] or 1, "time": _scaled(found["time"], unit)}
            )
        except ValidationError as error:
            raise UsageError(f"{where}: {problems(error)}") from None
        if fields.ranks % fields.nodes:
            raise UsageError(
                f"{where}: {fields.ranks:g} ranks on {fields.nodes:g} nodes; expected equally many on each: "
                "--nodes"
            )
        if fields.ranks < self.least_ranks:
            raise UsageError(
                f"{where}: one rank alone moved nothing; expected two or more, which nccl-tests has on "
                "several processes if it is built with MPI=1"
            )
        return MeasuredRow(
            name,
            fields.collective,
            int(fields.size_bytes),
            int(fields.nodes),
            int(fields.ranks),
            fields.time,
            found.get("algorithm") or "native",
            line,
        )


def _scaled(time: Any, unit: float) -> Any:
    """Return *time* in seconds, or as it is if it is no number."""
    try:
        return float(time) * unit
    except ValueError:
        return time
