"""Options of runs on virtual GPUs: without data, and the memory of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer


@dataclass(frozen=True)
class GpuOptions:
    """Options for ranks that compute on a GPU, which ``--compute`` names."""

    fake: Annotated[
        bool,
        typer.Option(
            "--fake",
            help="Tensors on the GPU have shapes and no values, so models run that fit into no machine here.",
        ),
    ] = False
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|off",
            help="Memory of a GPU, beyond which a script runs out of it; off: it goes on, and the report "
            "says what is missing. By default the device's.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether one of them was."""
        return self.fake or self.memory_limit is not None

    def arguments(self) -> dict[str, Any]:
        """Return them as arguments of `collectives.virtual.run`."""
        return {"fake": self.fake, "memory_limit": self.memory_limit}
