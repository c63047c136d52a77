"""Options for a table of measured collectives: what it does not say itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from testbed.options.arguments import MAX_RANKS


@dataclass(frozen=True)
class TableOptions:
    """Options for what a table of measured collectives leaves out."""

    collective: Annotated[
        str | None, typer.Option(metavar="NAME", help="What was measured, where the table does not say.")
    ] = None
    ranks: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="On how many ranks, where the table does not say."),
    ] = None
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="On how many nodes, where the table does not say."),
    ] = None
