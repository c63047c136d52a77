"""A program inside a larger one: on some of the ranks, and on some of the chunks.

A program speaks of ranks ``0 … p-1`` and of chunks ``0 … k-1``.  A `Group` says which ranks of a
larger world those are; `embed` turns what the program yields into steps of that world.  Algorithms
that are made of others, such as hierarchical and bucket, are then sequences of embedded programs.
It is all plain arithmetic, so what is embedded in array form is in array form again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation, Step, as_step


@dataclass(frozen=True, slots=True)
class Group:
    """The *size* ranks ``first, first + stride, …``, as the one at *index* among them sees it.

    In array form *index* and *first* are arrays: each rank of the world sees the group that it is in.
    """

    index: int
    size: int
    first: int
    stride: int = 1

    def reversed(self) -> Group:
        """Return the same ranks, counted from the other end."""
        last = self.first + (self.size - 1) * self.stride
        return Group(self.size - 1 - self.index, self.size, last, -self.stride)


def embed(program: Algorithm, group: Group, *, first_chunk: int, num_chunks: int) -> Iterator[Step]:
    """Yield the steps of *program* among *group* on the *num_chunks* chunks from *first_chunk*.

    Args:
        program: one whose messages arrive in the chunks that they left.
        group: the ranks that run it.
        first_chunk: of the larger world, where the program's chunk 0 begins.
        num_chunks: of the larger world, a multiple of the number of chunks of the program.

    Raises:
        NotSupportedError: *program* moves chunks about or needs scratch; among equal parts it may
            move them, but the chunks of a larger world may be of different lengths.
    """
    if program.num_scratch_chunks(group.size):
        raise NotSupportedError(f"{program} for {program.collective} needs scratch; embed direct instead")
    width = num_chunks // program.num_chunks(group.size)
    for step in program(group.index, group.size):
        yield tuple(_embed(program, operation, group, first_chunk, width) for operation in as_step(step))


def side_by_side(*programs: Iterable[Step]) -> Iterator[Step]:
    """Yield steps in which *programs* of equally many steps all take their next one at once."""
    for steps in zip(*programs, strict=True):
        yield tuple(operation for step in steps for operation in step)


def _embed(program: Algorithm, operation: Operation, group: Group, first_chunk: int, width: int) -> Operation:
    if isinstance(operation, Local):
        raise NotSupportedError(f"{program} for {program.collective} moves chunks about; embed ring instead")
    return replace(
        operation,
        peer=group.first + operation.peer * group.stride,
        chunk=first_chunk + operation.chunk * width,
        num_chunks=operation.num_chunks * width,
    )
