"""Key of a program: by which caches know an algorithm again."""

from __future__ import annotations

from dataclasses import dataclass, field

from collectives.program.program import Algorithm, Program


@dataclass(frozen=True)
class ProgramKey:
    """An algorithm as the key of a cache; two are equal if they run the same program alike."""

    program: Program
    text: str
    collective: str
    algorithm: Algorithm = field(compare=False)

    @classmethod
    def of(cls, algorithm: Algorithm) -> ProgramKey:
        """Return the key of *algorithm*."""
        return cls(algorithm.program, str(algorithm), algorithm.collective, algorithm)
