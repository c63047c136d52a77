"""`verify` against a run with numbers, on every shipped program broken in every small way."""

import random
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from collectives import NotSupportedError, ProgramError, Recv, RecvReduce, Send, verify
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm, Copy, Local, Reduce
from tests.collectives.reference import Programs, Setting, fulfils

SHIPPED = [pytest.param(shipped, id=f"{shipped.collective}-{shipped.name}") for shipped in ALGORITHMS]
MAX_MUTANTS = 1000
"""Of one program at one world size; of more, a seeded choice is tried."""

OTHER_KIND = {Recv: RecvReduce, RecvReduce: Recv, Copy: Reduce, Reduce: Copy}


def programs_of(shipped: Algorithm, world_size: int) -> Programs:
    return [list(shipped.steps(rank, world_size)) for rank in range(world_size)]


def mutants(programs: Programs, num_chunks: int) -> Iterator[tuple[str, Programs]]:
    """Yield the programs broken in one place: what was done to them, and what they then are."""
    for rank, steps in enumerate(programs):
        for number, step in enumerate(steps):
            where = f"rank {rank}, step {number}"

            def broken(*new, rank=rank, number=number, length=1):
                changed = [*programs]
                changed[rank] = [*programs[rank][:number], *new, *programs[rank][number + length :]]
                return changed

            yield f"{where} dropped", broken()
            if number + 1 < len(steps):
                yield f"{where} and the next swapped", broken(steps[number + 1], step, length=2)
            for position, operation in enumerate(step):
                for what, changed in small_changes(operation, len(programs), num_chunks):
                    yield (
                        f"{where}, operation {position}: {what}",
                        broken((*step[:position], changed, *step[position + 1 :])),
                    )


def small_changes(operation, world_size: int, num_chunks: int) -> Iterator[tuple[str, Any]]:
    for change in (-1, 1):
        yield f"chunk {change:+}", replace(operation, chunk=operation.chunk + change)
        if isinstance(operation, Local):
            yield f"source {change:+}", replace(operation, source=operation.source + change)
        else:
            yield f"peer {change:+}", replace(operation, peer=(operation.peer + change) % world_size)
    if not isinstance(operation, Send):
        first = operation.source if isinstance(operation, Local) else operation.peer
        kind = OTHER_KIND[type(operation)]
        yield f"as {kind.__name__}", kind(first, operation.chunk, operation.num_chunks)


def is_proved(shipped: Algorithm, programs: Programs, setting: Setting) -> bool:
    mutant = replace(
        shipped,
        name="mutant",
        program=lambda rank, world_size: iter(programs[rank]),
        chunks_for=lambda world_size: setting.num_chunks,
        scratch_for=lambda world_size: setting.num_scratch,
        declared_cost=None,
        array_form=False,
        parameters=MappingProxyType({}),
    )
    try:
        verify(mutant, setting.world_size, root=setting.root)
    except ProgramError:
        return False
    return True


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("world_size", [2, 3, 4, 5, 8])
def test_verify_and_a_run_with_numbers_agree_on_every_small_mutant(shipped, world_size):
    root = world_size // 2
    if "root" in shipped.parameter_names():
        shipped = shipped.with_parameters(root=root)
    try:
        programs = programs_of(shipped, world_size)
    except NotSupportedError:
        return
    num_chunks, num_scratch = shipped.num_chunks(world_size), shipped.num_scratch_chunks(world_size)
    setting = Setting(shipped.collective, world_size, num_chunks, num_scratch, root)
    assert fulfils(programs, setting)
    every = list(mutants(programs, num_chunks))
    if len(every) > MAX_MUTANTS:
        every = random.Random(0).sample(every, MAX_MUTANTS)

    for what, mutant in every:
        right = fulfils(mutant, setting)
        assert is_proved(shipped, mutant, setting) == right, f"{shipped}, {world_size} ranks, {what}"
