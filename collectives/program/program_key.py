"""Key of a program: by which caches know an algorithm again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collectives.program.program import Algorithm, Program


@dataclass(frozen=True)
class ProgramKey:
    """An algorithm as the key of a cache; two are equal if they run the same program alike."""

    program: Program
    text: str
    collective: str
    parts: tuple[ProgramKey, ...]
    algorithm: Algorithm = field(compare=False)

    @classmethod
    def of(cls, algorithm: Algorithm) -> ProgramKey:
        """Return the key of *algorithm*."""
        values = algorithm.parameters.values()
        parts = tuple([cls.of(part) for value in values for part in parts_of(value)])
        return cls(algorithm.program, str(algorithm), algorithm.collective, parts, algorithm)


def parts_of(value: Any) -> tuple[Algorithm, ...]:
    """Return the algorithms that *value*, a parameter of an algorithm, is or is made of."""
    parts: tuple[Algorithm, ...] = (value,) if isinstance(value, Algorithm) else getattr(value, "parts", ())
    return parts
