"""`verify`: what is proved and refused, with the evidence, and agrees with a run with numbers on mutants."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest

from collectives import (
    Copy,
    Cost,
    NotSupportedError,
    ProgramError,
    Recv,
    RecvReduce,
    Reduce,
    Send,
    algorithm,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm, Local
from sim import Topology
from tests.collectives.reference import Programs, Setting, fulfils

SHIPPED = [pytest.param(shipped, id=f"{shipped.collective}-{shipped.name}") for shipped in ALGORITHMS]


@pytest.mark.parametrize("shipped", SHIPPED)
@pytest.mark.parametrize("world_size", [*range(1, 18), 31, 32, 33, 64])
def test_every_shipped_algorithm_is_proved_with_the_cost_it_declares(shipped, world_size):
    try:
        proof = verify(shipped, world_size, root=world_size // 2)
    except NotSupportedError:
        return  # a clear refusal of this world size; anything else is a fault

    assert proof.cost_declared
    assert proof.max_bytes_sent_fraction >= proof.min_bytes_sent_fraction


def exchange(rank: int, world_size: int):
    peer = 1 - rank
    mine, other = (0, 1) if rank == 0 else (1, 0)
    yield Send(peer, chunk=mine), RecvReduce(peer, chunk=other)
    yield Send(peer, chunk=other), Recv(peer, chunk=mine)


def steps_of(*steps):
    """Return a program of these steps, each of which says what a rank and its peer of two do."""

    def program(rank, world_size):
        for step in steps:
            yield step(rank, 1 - rank)

    return program


def then_fails(*steps):
    """Return a program of these steps that raises then."""

    def program(rank, world_size):
        yield from steps_of(*steps)(rank, world_size)
        raise IndexError("list index out of range")

    return program


def swapped(chunk: int):
    return lambda rank, peer: (Send(peer, chunk), RecvReduce(peer, chunk))


@algorithm(array_form=True)
def branches(rank: Any, world_size: int) -> Any:
    shift = 1 if isinstance(rank, int) else 2
    yield from resolve_algorithm("ring", "reduce_scatter")(rank, world_size, shift=shift)
    yield from resolve_algorithm("ring", "all_gather")(rank, world_size, shift=shift)


def refused(said: str, *steps, then=steps_of, **declared):
    """Return a program of these steps that is declared so, and what is said of it."""
    return pytest.param(algorithm(name="wrong", **declared)(then(*steps)), said, id=said[:40])


BOTH_RECEIVE_FIRST = (lambda rank, peer: RecvReduce(peer, 0), lambda rank, peer: Send(peer, 0))
THROUGH_SCRATCH = (lambda rank, peer: (Send(peer, 0), Recv(peer, 1)), lambda rank, peer: Reduce(1, 0))
GRID = "        rank 0  rank 1\nstep 0  [0+1]   0+0\nstep 1  0>1     0>0"
UNMARKED_GRID = "        rank 0   rank 1\nstep 0  0>1 0+1  0>0 0+0"
IN_SCRATCH = {"num_chunks": 2, "scratch_chunks": 2}
SHIFTED = "as the last may be shorter than others"
UNDEFINED = "holds something undefined, made of a chunk"
WRONG = [
    refused("rank 1, step 0: RecvReduce(peer=0, chunk=0)", *BOTH_RECEIVE_FIRST),
    refused(GRID, *BOTH_RECEIVE_FIRST),
    refused("rank 0, chunk 1 is never written",
            lambda rank, peer: (Send(0, 0, when=rank == 1), RecvReduce(1, 0, when=rank == 0))),
    refused("more than once (since step 2)", *[swapped(0), swapped(1)] * 2),
    refused("the two sides of a message differ in the chunks",
            lambda rank, peer: (Send(peer, 0), RecvReduce(peer, 1)),
            lambda rank, peer: (Send(peer, 1), RecvReduce(peer, 0))),
    refused(f"chunk 0 may not go to chunk 1, {SHIFTED}\n  Copy(source=0,", lambda rank, peer: Copy(0, 1)),
    refused("chunk 1 is never written", swapped(0)),
    refused(UNMARKED_GRID, swapped(0)),
    refused("chunk 0 is also written by RecvReduce(peer=1, chunk=0)",
            lambda rank, peer: (Send(peer, 0), RecvReduce(peer, 0), Copy(0, 0))),
    refused("there is no rank 2", lambda rank, peer: (Send(2, 0), Recv(2, 0))),
    refused("a rank cannot be its own peer", lambda rank, peer: (Send(rank, 0), Recv(rank, 0))),
    refused("out of range, the buffer has chunks 0 to 1",
            lambda rank, peer: (Send(peer, 1, num_chunks=2), RecvReduce(peer, 1, num_chunks=2))),
    refused("the two sides of a message differ in length",
            lambda rank, peer: (Send(peer, 0, 1 + rank), RecvReduce(peer, 0, 1 + rank))),
    refused("a step is a tuple of Send, Recv, RecvReduce, Copy and Reduce", lambda rank, peer: ["send", 1]),
    refused("rank 0, step 1: the program raised IndexError: list index out of range",
            lambda rank, peer: (), then=then_fails),
    refused("there is no rank 2\n  Send(peer=2, chunk=0)\n", lambda rank, peer: Send(2, 0), then=then_fails),
    refused("rank 0, chunk 0 holds contributions to different chunks",
            lambda rank, peer: (Send(peer, rank), RecvReduce(peer, rank)), collective="reduce_scatter"),
    refused(f"rank 1, chunk 0 {UNDEFINED}",
            lambda rank, peer: (Send(1, 0, when=rank == 0), RecvReduce(0, 0, when=rank == 1)),
            lambda rank, peer: (Send(1, 1, when=rank == 0), Recv(0, 1, when=rank == 1)),
            collective="broadcast"),
    refused("out of range, the buffer has chunks 0 to 0", *THROUGH_SCRATCH, num_chunks=1),
    refused(UNDEFINED, lambda rank, peer: Reduce(1, 0), num_chunks=1, scratch_chunks=1),
    refused("half in the buffer, half in scratch, which begins with chunk 2",
            lambda rank, peer: Reduce(3, 1, num_chunks=2), **IN_SCRATCH),
    refused("out of range, the buffer has chunks 0 to 1, and scratch chunks 2 to 3",
            lambda rank, peer: Copy(4, 0), **IN_SCRATCH),
    refused(f"chunk 2 may not go to chunk 1, {SHIFTED}", lambda rank, peer: Reduce(2, 1), **IN_SCRATCH),
    refused("into 0 chunks; expected at least 1", lambda rank, peer: (), num_chunks=0),
    refused("expected a multiple of 2", lambda rank, peer: (), num_chunks=3, collective="all_gather"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_a_wrong_program_is_refused_with_the_evidence(wrong, said):
    with pytest.raises(ProgramError) as refusal:
        verify(wrong, 2)

    assert f"wrong, {wrong.collective}, world size 2: " in str(refusal.value)
    assert said in str(refusal.value)
    if said in (GRID, UNMARKED_GRID):
        assert str(refusal.value).endswith(said)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            replace(resolve_algorithm("ring"), declared_cost=lambda p: Cost(2 * p, Fraction(1))),
            "num_steps is declared as 8, counted 6",
        ),
        (branches, "the array form differs from the program of rank 0 in step 0"),
    ],
)
def test_a_wrong_declaration_is_refused(program, said):
    with pytest.raises(ProgramError, match=said):
        verify(program, 4)


def test_the_grid_of_an_error_fits_on_a_line_of_100_characters():
    def all_to_all_ranks(rank, world_size):
        for chunk in [*range(world_size)] * 2:
            others = [peer for peer in range(world_size) if peer != rank]
            yield tuple(side(peer, chunk) for peer in others for side in (Send, RecvReduce))

    with pytest.raises(ProgramError, match="more than once") as refusal:
        verify(all_to_all_ranks, 16)

    grid = str(refusal.value).splitlines()[2:]
    assert max(map(len, grid)) <= 100
    assert "[0>1 0+1 0>2 0+2 … 26 more]" in "\n".join(grid)


def test_a_world_size_that_the_program_refuses_is_no_fault_of_the_program():
    def pairs_only(rank, world_size):
        if world_size != 2:
            raise NotSupportedError(f"pairs_only needs 2 ranks, got {world_size}; use ring")
        yield from exchange(rank, world_size)

    assert verify(pairs_only, 2).num_steps == 2
    with pytest.raises(NotSupportedError, match="needs 2 ranks, got 3; use ring"):
        verify(pairs_only, 3)


def test_an_endless_program_is_refused(monkeypatch):
    def endless(rank, world_size):
        while True:
            yield ()

    monkeypatch.setattr("collectives.program.program.MAX_STEPS", 100)
    with pytest.raises(ProgramError, match="does the program end"):
        verify(endless, 2)
    with pytest.raises(ProgramError, match="does the program end"):
        simulate(endless, nbytes=8, topology=Topology.switch(num_ranks=2, bandwidth="1Gbps", latency="1us"))


@pytest.mark.parametrize("world_size", [0, -1])
def test_a_world_of_no_ranks_is_refused(world_size):
    with pytest.raises(ValueError, match="world_size must be at least 1"):
        verify("ring", world_size)


@pytest.mark.parametrize("last", [False, True])
def test_a_local_move_counts_wherever_its_step_lists_it(last):
    def keep(rank, world_size):
        messages = Send(1 - rank, 0), Recv(1 - rank, 2)
        yield (*messages, Copy(0, 1)) if last else (Copy(0, 1), *messages)
        yield Copy(1, 0)  # what was copied there must be the rank's own
        yield Reduce(2, 0)

    shipped = algorithm(num_chunks=1, scratch_chunks=2)(keep)

    assert verify(shipped, 2).num_messages == 2


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
