"""Proofs for every number of ranks: what is proved, and that nothing wrong is."""

from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from itertools import product
from typing import Any

import pytest

from collectives import Cost, Recv, Send, algorithm, resolve_algorithm, verify
from collectives.program.contracts import CONTRACTS, Part, Place

HIERARCHICAL = import_module("collectives.algorithms.hierarchical")
z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, scope_of  # noqa: E402
from collectives.proof.every_size.demands import AFTER, BEFORE, EQUAL_PARTS, Held, in_parts  # noqa: E402
from collectives.proof.every_size.linear import Linear  # noqa: E402
from collectives.proof.every_size.powers import ROOT  # noqa: E402
from collectives.proof.every_size.symbols import Assumptions, minimum  # noqa: E402


@algorithm(collective="all_gather")
def right_up_to_seventy(rank: int, world_size: int) -> Any:
    step = []
    for peer in range(world_size):
        wanted = (peer != rank) & ((world_size <= 70) | (peer != 3))
        step.append(Send(peer, rank, when=wanted))
        step.append(Recv(peer, peer, when=wanted))
    yield tuple(step)


@algorithm(collective="gather")
def always_to_rank_0(rank: int, world_size: int, *, root: int = 0) -> Any:
    sources = range(1, world_size)
    yield Send(0, rank, when=rank != 0), *(Recv(source, source, when=rank == 0) for source in sources)


def carrying(rank: int, world_size: int):
    turns = 0
    for _ in range(world_size - 1):
        for _ in range(2):
            turns = turns + 1
        yield (Send((rank + 1) % world_size, turns),)


def carrying_in_a_branch(rank: int, world_size: int):
    chunk = 0
    for step in range(world_size - 1):
        if rank:
            chunk = step
        yield (Send((rank + 1) % world_size, chunk),)


def steps_one_by_one(world_size: int) -> Cost:
    total = 0
    for _ in range(world_size - 1):
        total = total + 1
    return Cost(total, Fraction(1))


@pytest.mark.parametrize(
    ("program", "right_for", "said"),
    [
        (
            replace(resolve_algorithm("naive"), name="ring", chunks_for=resolve_algorithm("ring").chunks_for),
            None,
            "not proved: row 0: the invariant holds at first",
        ),
        (right_up_to_seventy, 64, "right_up_to_seventy, all_gather, every size: not proved: "),
        (always_to_rank_0, 8, "the end: every rank holds what it must"),
        (replace(resolve_algorithm("ring"), program=carrying), None, "a loop carries turns on"),
        (replace(resolve_algorithm("ring"), program=carrying_in_a_branch), None, "a loop carries chunk on"),
        (
            replace(resolve_algorithm("ring", "all_gather"), declared_cost=steps_one_by_one),
            None,
            "a loop carries total on",
        ),
    ],
)
def test_what_is_wrong_or_cannot_be_read_is_not_proved(program, right_for, said):
    if right_for is not None:
        verify(program, right_for)
    with pytest.raises(NotProvedError, match=said):
        scope_of(program)


def part_of(held: Held, place: Place) -> Part | None:
    def so(claim):
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


@pytest.mark.parametrize("collective", BEFORE)
def test_what_is_demanded_is_the_contract(collective):
    for (world_size, number), last in product([(2, 2), (3, 1)], (False, True)):
        root = last * (world_size - 1)
        parts = collective in EQUAL_PARTS
        num_chunks = number * world_size if parts else number
        for rank, chunk in product(range(world_size), range(num_chunks)):
            place = Place(rank, chunk, world_size, num_chunks, root)
            contract = CONTRACTS[collective]
            for demand, held in ((contract.before, BEFORE), (contract.after, AFTER)):
                demanded = in_parts(held[collective], number) if parts else held[collective]
                assert part_of(demanded, place) == demand(place)


def test_a_part_that_is_given_the_wrong_chunks_is_refuted(monkeypatch):
    embed = HIERARCHICAL.embed

    def from_the_first_chunk(*part, first_chunk, **named):
        return embed(*part, first_chunk=0, **named)

    monkeypatch.setattr(HIERARCHICAL, "embed", from_the_first_chunk)
    with pytest.raises(NotProvedError, match="hierarchical, all_reduce, every size: "):
        scope_of(resolve_algorithm("hierarchical"))


def test_steps_that_are_too_many_from_nine_ranks_on_are_refuted(monkeypatch):
    num_steps = HIERARCHICAL._num_steps

    def more_from_nine_on(part, world_size):
        return num_steps(part, world_size) + minimum(world_size, 9) - minimum(world_size, 8)

    monkeypatch.setattr(HIERARCHICAL, "_num_steps", more_from_nine_on)
    verify(resolve_algorithm("hierarchical:ranks_per_node=4"), 16)
    with pytest.raises(NotProvedError, match="not proved: its declared number of steps is that of its parts"):
        scope_of(resolve_algorithm("hierarchical"))


def test_products_are_told_to_the_solver_as_they_are():
    place, size, share, chunk = z3.Ints("place size share chunk")
    bounds = [place >= 0, place < size, share >= 1, chunk >= place * share]
    facts = Assumptions(*bounds, products=True)
    inside = z3.Implies(chunk < (place + 1) * share, chunk < size * share)
    assert facts.imply(inside)
    assert not facts.imply(chunk < size * share)
    assert Linear().of([place < size]) == [place < size]


@pytest.mark.costly
def test_a_hierarchy_is_proved_for_every_number_of_ranks():
    assert scope_of(resolve_algorithm("hierarchical")).sizes == "every size"
