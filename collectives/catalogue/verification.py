"""Proof of an algorithm that is given by name, file or program."""

from __future__ import annotations

from collectives.catalogue.resolve import resolve_algorithm
from collectives.program import Algorithm, Program
from collectives.proof import Proof, prove


def verify(
    algorithm: str | Program | Algorithm,
    world_size: int,
    *,
    collective: str = "all_reduce",
    root: int = 0,
) -> Proof:
    """Prove *algorithm* for *world_size* ranks, or raise with the evidence.

    Args:
        algorithm: a name, ``FILE.py:FUNCTION``, a program or an `Algorithm`.
        world_size: number of ranks, at least 1.
        collective: the contract to prove, for programs that do not declare theirs.
        root: the root of a rooted collective.

    Raises:
        ProgramError: the program is wrong; the message shows where.
        NotSupportedError: the program refuses this world size.
        UnknownAlgorithmError: there is no such algorithm.
        ValueError: *world_size* or *root* is out of range.
    """
    return prove(resolve_algorithm(algorithm, collective), world_size, root)
