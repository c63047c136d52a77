"""A script, run once for each rank thread as if each were a process started with ``python script.py``."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from collectives.virtual import per_rank


class Script:
    """A script, compiled once, with a ``__main__`` for each rank.

    Args:
        path: of the script.
        argv: its arguments, without its name.
        num_ranks: number of ranks.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: it is no Python.
    """

    def __init__(self, path: Path, argv: Sequence[str], num_ranks: int) -> None:
        self.path = path
        self.argv = [str(path), *argv]
        self.code = compile(path.read_bytes(), str(path), "exec")
        self.mains = [ModuleType("__main__") for _ in range(num_ranks)]

    def contexts(self) -> list[per_rank.PerRank]:
        """Return what makes each rank's ``__main__`` and ``sys.argv`` its own."""
        search_path = [str(self.path.resolve().parent), *sys.path]
        num_ranks = len(self.mains)
        return [
            per_rank.item(num_ranks, sys.modules, "__main__", lambda rank: self.mains[rank]),
            per_rank.attribute(num_ranks, sys, "argv", lambda rank: list(self.argv)),
            per_rank.attribute(num_ranks, sys, "path", lambda rank: list(search_path)),
        ]

    def run(self, rank: int) -> dict[str, Any]:
        """Run the script as *rank* and return the globals that it leaves."""
        variables = self.mains[rank].__dict__
        variables.update(__file__=str(self.path), __builtins__=builtins)
        try:
            exec(self.code, variables)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
        return variables
