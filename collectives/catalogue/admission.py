"""Admission of algorithms: what is not shipped is proved before anybody says how long it takes.

The shipped algorithms are proved by the tests, at every world size of a range.  Any other, a program in a
file, MSCCL XML, a function, or a shipped one that is made of such, is proved for the world size that is
timed, once in a process.  A proof of more than about `BUDGET` operations is not affordable; then the world
size is halved until one is, and what was proved says so: `Evidence`.

What was proved at other world sizes only may still go wrong at this one, and a program may be another when it
is called again, so the operations of an admitted program are checked one by one as they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS
from collectives.docstrings import docstring_of
from collectives.errors import NotSupportedError, ProgramError
from collectives.program import Algorithm, Local, Operation, Program, Step
from collectives.program.program import as_step
from collectives.program.program_key import ProgramKey, parts_of
from collectives.program.rank_array import RankArray
from collectives.program.render import spell_operation
from collectives.program.stand_in import original_of, standing_for
from collectives.proof import estimate_work, prove

BUDGET = 250_000
"""Operations up to which a proof is affordable: about a second or two."""


def _essence(algorithm: Algorithm) -> tuple[Any, ...]:
    """Return what a proof depends on, besides parameters."""
    return algorithm.program, algorithm.collective, algorithm.chunks_for, algorithm.scratch_for


_SHIPPED = frozenset(map(_essence, (*ALGORITHMS, *NATIVE_ALGORITHMS)))


@dataclass(frozen=True)
class Evidence:
    """For which world sizes an algorithm that is not shipped was proved before it was timed.

    Attributes:
        algorithm: its name.
        collective: the contract it fulfils.
        world_size: that it is timed for.
        proved_for: the world sizes of the proofs, in ascending order.
    """

    algorithm: str
    collective: str
    world_size: int
    proved_for: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(map(str, self.proved_for))
        ranks = f"{sizes} rank{'' if self.proved_for == (1,) else 's'}"
        if self.world_size in self.proved_for:
            return f"{self.algorithm} was proved for {ranks}"
        return (
            f"{self.algorithm} was proved for {ranks} only: a proof for {self.world_size} would go through "
            f"more than {BUDGET} operations"
        )


def is_shipped(algorithm: Algorithm) -> bool:
    """Return whether *algorithm* is one of ours, made of nothing else."""
    if algorithm.parameters.get("shift"):  # halves that are of use to others: no collective by themselves
        return False
    original = original_of(algorithm.program)
    if original is not None and not is_shipped(original):
        return False
    if original is None and not _is_shipped_itself(algorithm):
        return False
    return all(is_shipped(part) for value in algorithm.parameters.values() for part in parts_of(value))


def evidence_of(algorithm: Algorithm, world_size: int) -> Evidence | None:
    """Return for which world sizes *algorithm* is proved, having proved it; None: it is shipped.

    Raises:
        ProgramError: it is wrong; the message shows where.
        NotSupportedError: it refuses this world size.
    """
    if is_shipped(algorithm):
        return None
    return _evidence(ProgramKey.of(_unchecked(algorithm)), world_size)


def admitted(algorithm: Algorithm, world_size: int) -> Algorithm:
    """Return *algorithm* for *world_size* ranks, proved unless it is shipped, and checked as it goes.

    Raises:
        ProgramError, NotSupportedError: as `evidence_of`.
    """
    evidence_of(algorithm, world_size)
    return checked(algorithm)


def checked(algorithm: Algorithm) -> Algorithm:
    """Return *algorithm*, whose operations raise `ProgramError` where one cannot be, unless it is shipped."""
    if is_shipped(algorithm) or isinstance(algorithm.program, _Checked):
        return algorithm
    return replace(algorithm, program=_checked(ProgramKey.of(algorithm)))


def _is_shipped_itself(algorithm: Algorithm) -> bool:
    try:
        return _essence(algorithm) in _SHIPPED
    except TypeError:  # something callable that cannot be hashed
        return False


def _unchecked(algorithm: Algorithm) -> Algorithm:
    program = algorithm.program
    if not isinstance(program, _Checked):
        return algorithm
    return replace(algorithm, program=program.algorithm.program)


@lru_cache(maxsize=1024)
def _evidence(program: ProgramKey, world_size: int) -> Evidence:
    algorithm, collective = str(program.algorithm), program.collective
    if _prove(program.algorithm, world_size, within=BUDGET):
        return Evidence(algorithm, collective, world_size, (world_size,))

    proved: list[int] = []
    size = world_size // 2
    while size > 1:
        try:
            if _prove(program.algorithm, size, within=BUDGET):
                proved.append(size)
        except NotSupportedError:
            pass
        size //= 2
    if not proved:
        _prove(program.algorithm, world_size, within=None)
        proved = [world_size]
    return Evidence(algorithm, collective, world_size, tuple(sorted(proved)))


def _prove(algorithm: Algorithm, world_size: int, within: int | None) -> bool:
    """Prove *algorithm*, for some roots if it has one; return whether that was *within* the operations."""
    if within is not None and estimate_work(algorithm, world_size) > within:
        return False
    given = algorithm.parameters.get("root")
    if given is None:
        roots = {0, world_size - 1} if "root" in algorithm.parameter_names() else {0}
    else:
        roots = {given}
    for root in sorted(roots):
        if not isinstance(root, int) or not 0 <= root < world_size:
            raise NotSupportedError(
                f"{algorithm}: root must be a rank from 0 to {world_size - 1}, got {root!r}"
            )
        prove(algorithm, world_size, root)
    return True


class _Checked:
    """A program whose operations are checked as they are made.

    Args:
        algorithm: whose program it is.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.__wrapped__: Callable[..., Any] = algorithm.program  # for its signature
        self.__name__ = algorithm.name
        self.__doc__ = docstring_of(algorithm.program)
        self.__module__ = algorithm.program.__module__

    def __call__(self, rank: Any, world_size: int, **parameters: Any) -> Iterator[Step]:
        """Yield the steps, or raise `ProgramError` at the first operation that cannot be.

        A root that a call chooses is one that nobody has proved yet.
        """
        bound = self.algorithm.with_parameters(**parameters)
        if "root" in parameters:
            evidence_of(bound, world_size)
        num_chunks = bound.num_chunks(world_size) + bound.num_scratch_chunks(world_size)
        for number, step in enumerate(self.algorithm.program(rank, world_size, **parameters)):
            for operation in as_step(step):
                problem = _problem_of(operation, rank, world_size, num_chunks)
                if problem:
                    raise ProgramError(
                        f"{bound}, {bound.collective}, world size {world_size}: {_who(rank)}, step {number}: "
                        f"{problem}\n  {spell_operation(operation)}"
                    )
            yield step


@lru_cache(maxsize=1024)
def _checked(program: ProgramKey) -> Program:
    return standing_for(program.algorithm, _Checked(program.algorithm))


def _problem_of(operation: Operation, rank: Any, world_size: int, num_chunks: int) -> str:
    """Return what is wrong with *operation* by itself, of one rank or, as arrays, of all that take part."""
    alone = not isinstance(rank, RankArray)
    if alone and not operation.when:
        return ""

    def holds(condition: Any) -> bool:
        return bool(condition) if alone else bool(np.all(condition | ~np.asarray(operation.when)))

    places: list[Any] = [operation.chunk]
    length: Any = operation.num_chunks
    if isinstance(operation, Local):
        places.append(operation.source)
    for first in places if alone else map(np.asarray, places):
        if not (holds(first >= 0) and holds(length >= 1) and holds(first + length <= num_chunks)):
            return f"out of range, there are chunks 0 to {num_chunks - 1}, those of scratch included"
    if isinstance(operation, Local):
        return ""

    peer: Any = operation.peer if alone else np.asarray(operation.peer)
    if not (holds(peer >= 0) and holds(peer < world_size)):
        return f"there are ranks 0 to {world_size - 1} alone"
    if not holds(peer != (rank if alone else np.asarray(rank))):
        return "a rank cannot be its own peer; use Copy or Reduce"
    return ""


def _who(rank: Any) -> str:
    return "all ranks at once" if isinstance(rank, RankArray) else f"rank {rank}"
