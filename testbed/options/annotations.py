"""Declarations of options that several commands have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from testbed.options.arguments import MAX_COUNT, MAX_RANKS

Script: TypeAlias = Annotated[str, typer.Argument(metavar="SCRIPT", help="An ordinary torchrun script.")]
ScriptArguments: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="[ARGS]…", help="What the script is given.")
]
IsModule: TypeAlias = Annotated[
    bool, typer.Option("--module", "-m", help="SCRIPT is the name of a module, as for python -m.")
]
Network: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME|FILE", help="A preset (testbed network) or a network file.")
]
CollectiveOf: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="By default all_reduce, or else the first it is shipped for."),
]
SizeFactor: TypeAlias = Annotated[
    int, typer.Option(metavar="N", max=MAX_COUNT, help="Step of a range of sizes.")
]
Port: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Where ranks that are processes meet; by default one that is free."),
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="A Dask scheduler whose workers do it, such as tcp://10.0.0.1:8786."
    ),
]
TraceFile: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write what happened when, for https://ui.perfetto.dev.")
]
DeviceThreads: TypeAlias = Annotated[
    int, typer.Option(min=1, max=1024, help="--device: threads of the processor that the file is of.")
]
PredictionsFile: TypeAlias = Annotated[
    Path, typer.Option(metavar="FILE", help="--device: where predictions stand before measuring.")
]
TimeLimit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--time-limit", metavar="TIME", help="Give what is there after so many seconds: 60, 60s or 500ms."
    ),
]
WORLD_SIZES = "World sizes: 8, 2,4,8, 2-64 (every one), 1-1024x2 (doubling)."
"""What `testbed.options.arguments.parse_ranks` reads."""


@dataclass(frozen=True)
class TableOptions:
    """Options for what a table of measured collectives leaves out.

    Attributes:
        collective: What was measured, where the table does not say.
        ranks: On how many ranks, where the table does not say.
        nodes: On how many nodes, where the table does not say.
    """

    collective: Annotated[str | None, typer.Option(metavar="NAME")] = None
    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None
    nodes: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None
