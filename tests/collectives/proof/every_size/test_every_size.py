"""Proofs for every number of ranks: what is proved, and that nothing wrong is."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from collectives import NotSupportedError, ProgramError, Recv, Send, algorithm, resolve_algorithm, verify
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm, Cost
from collectives.program.contracts import CONTRACTS, Part, Place
from tests.collectives.proof.every_size.mutants import mutants

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, prove_every_size  # noqa: E402
from collectives.proof.every_size.demands import AFTER, BEFORE, EQUAL_PARTS, Held, in_parts  # noqa: E402
from collectives.proof.every_size.powers import ROOT  # noqa: E402

PROVED = {"bruck", "chain", "direct", "double_binary_tree", "naive", "one_shot", "ring"}
SHIPPED = [own for own in ALGORITHMS if own.name in PROVED]
FEW = 3
"""Mutants of each program that are tried where all of them would take too long."""


def names(shipped: Algorithm) -> str:
    return f"{shipped.collective}-{shipped.name}"


def is_wrong(mutant: Algorithm) -> bool:
    """Return whether *mutant* is wrong, or refuses, for some number of ranks up to 16."""
    for world_size in range(2, 17):
        try:
            verify(mutant, world_size)
        except (ProgramError, NotSupportedError):
            return True
    return False


def is_proved(mutant: Algorithm) -> bool:
    try:
        prove_every_size(mutant)
    except NotProvedError:
        return False
    return True


def judge(tried: list[tuple[str, Algorithm]]) -> None:
    for what, mutant in tried:
        if is_wrong(mutant):
            assert not is_proved(mutant), f"proved, but wrong: {what}"


@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_no_program_with_a_slip_is_proved(shipped: Algorithm) -> None:
    found = list(mutants(shipped))
    judge(random.Random(names(shipped)).sample(found, min(FEW, len(found))))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_no_program_with_any_slip_is_proved(shipped: Algorithm) -> None:
    judge(list(mutants(shipped)))


def test_the_invariant_of_another_program_proves_nothing() -> None:
    naive, ring = resolve_algorithm("naive"), resolve_algorithm("ring")
    with pytest.raises(NotProvedError, match="not proved: row 0: the invariant holds at first"):
        prove_every_size(replace(naive, name="ring", chunks_for=ring.chunks_for))


@algorithm(collective="all_gather")
def right_up_to_seventy(rank: int, world_size: int) -> Any:
    step = []
    for peer in range(world_size):
        wanted = (peer != rank) & ((world_size <= 70) | (peer != 3))
        step.append(Send(peer, rank, when=wanted))
        step.append(Recv(peer, peer, when=wanted))
    yield tuple(step)


def test_a_program_that_goes_wrong_with_many_ranks_is_refuted() -> None:
    verify(right_up_to_seventy, 64)
    with pytest.raises(NotProvedError, match="right_up_to_seventy, all_gather, every size: not proved: "):
        prove_every_size(right_up_to_seventy)


@algorithm(collective="gather")
def always_to_rank_0(rank: int, world_size: int, *, root: int = 0) -> Any:
    sources = range(1, world_size)
    yield Send(0, rank, when=rank != 0), *(Recv(source, source, when=rank == 0) for source in sources)


def test_a_program_that_serves_one_root_only_is_refuted() -> None:
    verify(always_to_rank_0, 8)
    with pytest.raises(NotProvedError, match="the end: everything is filled"):
        prove_every_size(always_to_rank_0)


@pytest.mark.parametrize("collective", BEFORE)
def test_what_is_demanded_is_the_contract(collective: str) -> None:
    for world_size, number, last in product((2, 3), (1, 2), (False, True)):
        root = last * (world_size - 1)
        parts = collective in EQUAL_PARTS
        num_chunks = number * world_size if parts else number
        for rank, chunk in product(range(world_size), range(num_chunks)):
            place = Place(rank, chunk, world_size, num_chunks, root)
            contract = CONTRACTS[collective]
            for demand, held in ((contract.before, BEFORE), (contract.after, AFTER)):
                demanded = in_parts(held[collective], number) if parts else held[collective]
                assert part_of(demanded, place) == demand(place)


def part_of(held: Held, place: Place) -> Part | None:
    def so(claim: Any) -> bool:
        return z3.is_true(z3.simplify(z3.substitute(claim, (ROOT, z3.IntVal(place.root)))))

    numbers = z3.IntVal(place.rank), z3.IntVal(place.chunk)
    if not so(held.filled(*numbers)):
        return None
    contributions = [
        (q, j)
        for q, j in product(range(place.world_size), range(place.num_chunks))
        if so(held.holds(*numbers, z3.IntVal(q), z3.IntVal(j)))
    ]
    (chunk,) = {j for _, j in contributions}
    return Part(sum(1 << q for q, _ in contributions), chunk)


def carrying(rank: int, world_size: int) -> Any:
    turns = 0
    for _ in range(world_size - 1):
        for _ in range(2):
            turns = turns + 1
        yield (Send((rank + 1) % world_size, turns),)


def carrying_in_a_branch(rank: int, world_size: int) -> Any:
    chunk = 0
    for step in range(world_size - 1):
        if rank:
            chunk = step
        yield (Send((rank + 1) % world_size, chunk),)


@pytest.mark.parametrize("program", [carrying, carrying_in_a_branch])
def test_a_loop_that_carries_something_on_is_not_read(program: Any) -> None:
    with pytest.raises(NotProvedError, match=r"a loop carries (turns|chunk) on"):
        prove_every_size(replace(resolve_algorithm("ring"), program=program))


def steps_one_by_one(world_size: int) -> Cost:
    total = 0
    for _ in range(world_size - 1):
        total = total + 1
    return Cost(total, Fraction(1))


def test_a_declared_cost_whose_loop_carries_something_on_is_not_read() -> None:
    with pytest.raises(NotProvedError, match="a loop carries total on"):
        prove_every_size(replace(resolve_algorithm("ring", "all_gather"), declared_cost=steps_one_by_one))
