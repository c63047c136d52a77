"""Declarations of options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Jitter: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Mean of a random pause of each rank before each step.")
]
FailLink: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="LINK@TIME", help="A link that fails: 'rank 3 up@1ms'. May be repeated."),
]
Reroute: TypeAlias = Annotated[
    bool, typer.Option("--reroute", help="Messages find a way round links that fail.")
]
DegradeLink: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="LINK@TIME:FACTOR", help="A link that changes: 'rank 3 up@1ms:0.5'."),
]
HtmlFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write it as a page too: one file, to be read or printed."),
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
