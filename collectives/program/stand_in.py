"""Stand-ins: programs that run another as it is, for who has to know whose program a program is."""

from __future__ import annotations

from typing import Any

from collectives.program.program import Algorithm, Program

_ATTRIBUTE = "stands_for"


def standing_for(algorithm: Algorithm, program: Program) -> Program:
    """Return *program*, which runs that of *algorithm* and is right if that is."""
    marked: Any = program
    setattr(marked, _ATTRIBUTE, algorithm)
    return program


def original_of(program: Program) -> Algorithm | None:
    """Return the algorithm for which *program* stands; None: it is one of its own."""
    found = getattr(program, _ATTRIBUTE, None)
    return found if isinstance(found, Algorithm) else None
