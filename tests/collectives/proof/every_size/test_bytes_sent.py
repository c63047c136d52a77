"""Bytes that are declared, proved for every number of ranks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from collectives import Algorithm, Cost, Send, resolve_algorithm

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import bytes_sent, induction, scope_of  # noqa: E402
from collectives.proof.every_size.comparison import OF_POWERS, as_function, compared_root  # noqa: E402
from collectives.proof.every_size.functions import Ratio  # noqa: E402
from collectives.proof.every_size.loops import Loop  # noqa: E402
from collectives.proof.every_size.powers import CORE, NUM_RANKS  # noqa: E402
from collectives.proof.every_size.reading import Reader  # noqa: E402
from collectives.proof.every_size.rows import Row, turns_of  # noqa: E402
from collectives.proof.every_size.sending import FORMULAS, Sent, hints_for  # noqa: E402
from collectives.proof.every_size.sums import bits_set_below  # noqa: E402
from collectives.proof.every_size.symbols import BranchError  # noqa: E402

COSTLY, SLOW = pytest.mark.costly, pytest.mark.slow
COUNTED = [
    ("naive", "all_reduce"),  # one turn, that of the rank's own number
    ("ring", "all_gather"),  # every turn the same
    ("chain", "broadcast"),  # few chunks
    ("bruck", "all_gather"),  # a formula
    pytest.param("double_binary_tree", "broadcast", marks=COSTLY),  # few chunks in two trees
    ("tree", "broadcast"),  # no more than one chunk in a turn
    ("tree", "all_reduce"),
    *(pytest.param("tree", name, marks=COSTLY) for name in ("reduce", "gather", "scatter")),
    ("direct", "gather"),
    ("recursive_doubling", "all_gather"),  # a sum in the declared bytes
    # As many chunks as the power of two of a turn.
    *(pytest.param("halving_doubling", name, marks=COSTLY) for name in ("all_reduce", "reduce_scatter")),
    pytest.param("double_binary_tree", "all_reduce", marks=SLOW),
    pytest.param("bruck", "all_to_all", marks=SLOW),
    *(pytest.param("pat", name, marks=SLOW) for name in ("all_gather", "reduce_scatter")),
]

ROOTED = ("reduce", "gather", "scatter")
CASES = [
    (NUM_RANKS == CORE, [1 << level for level in range(1, 7)]),
    (NUM_RANKS != CORE, [size for size in (*range(3, 20), 31, 33, 47, 63) if size & (size - 1)]),
]
HUNDRED = z3.If(NUM_RANKS == 100, 1, 0)
EQUAL = {
    ("bruck", "all_gather"), ("halving_doubling", "reduce_scatter"), ("pat", "all_gather"),
    ("pat", "reduce_scatter"), ("tree", "reduce"),
}  # fmt: skip
"""Programs whose formulas say how much every rank sends; those of others, how much it sends at most."""


def judged(own: Algorithm, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, dict[int, bool]]:
    """Return for what *own* is proved, and whether its bytes are, where those of 100 ranks are wrong."""
    found = {-1: True, 1: True}

    def judge(world, rows, declared, *hints):
        share = declared.max_bytes_sent_fraction
        for off in found:
            wrong = OffByOne(share.numerator, share.denominator)
            wrong.off = off
            cost = Cost(declared.num_steps, wrong)
            found[off] &= bytes_sent.sends_as_declared(world, rows, cost, *hints)
        return bytes_sent.sends_as_declared(world, rows, declared, *hints)

    monkeypatch.setattr(induction, "sends_as_declared", judge)
    return scope_of(own), found


class OffByOne(Ratio):
    """A fraction that is one chunk more, or less, of 100 ranks."""

    off: int

    def of(self, total) -> tuple[int, Any] | None:
        share = super().of(total)
        return share and (share[0], share[1] + share[0] * self.off * HUNDRED)


@pytest.mark.parametrize(("name", "collective"), COUNTED)
def test_the_bytes_of_the_busiest_rank_are_those_declared(name, collective, monkeypatch):
    scope, wrong = judged(resolve_algorithm(name, collective), monkeypatch)

    assert (scope.sizes, scope.with_bytes) == ("every size", True)
    assert wrong == {-1: False, 1: False}


def too_few_from_72_ranks_on(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(min(world_size - 1, 70)))


def too_many(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(world_size))


@pytest.mark.parametrize("declared", [too_few_from_72_ranks_on, too_many])
def test_bytes_that_are_not_those_declared_are_not_proved(declared):
    scope = scope_of(replace(resolve_algorithm("naive"), declared_cost=declared))

    assert (scope.sizes, scope.with_bytes) == ("every size", False)


@pytest.mark.parametrize(("name", "collective"), FORMULAS)
def test_formulas_say_what_programs_send(name, collective):
    own, is_equal = resolve_algorithm(name, collective), (name, collective) in EQUAL
    formulas = hints_for(name, collective).formulas
    for case, sizes in CASES:
        groups = turns_of(rows_of(own, case))
        loops = [group[0].loop for group in groups if group[0].loop is not None]
        said = [carried(formula, loop) for formula, loop in zip(formulas, loops, strict=True)]
        for world_size in sizes:
            known = {**OF_POWERS, "p": world_size, "k": world_size.bit_length() - 1}
            known["root"] = compared_root(world_size)
            bound = own.with_parameters(root=known["root"]) if collective in ROOTED else own
            for rank in range(0, world_size, 1 + world_size // 8):
                turns = sent_in_turns(groups, bound, rank, known)
                for (before, after), by_turn in zip(said, turns, strict=True):
                    for values, sent in by_turn:
                        more = after(values) - before(values)
                        assert more == sent if is_equal else more >= sent


def carried(formula: Sent, loop: Loop) -> tuple[Callable[[Any], int], ...]:
    """Return what *formula* says before a turn of *loop*, and after it."""
    states = loop.before(loop.variable), loop.after(loop.variable)
    before, after = (as_function(formula(loop.seen(state), z3.Int("r"))) for state in states)
    return before, after


def rows_of(own: Algorithm, case) -> list[Row]:
    """Return the rows of *own*, read in a *case* if it goes one way or the other."""
    try:
        reader = Reader([])
        reader.read(own)
    except BranchError:
        reader = Reader([case])
        reader.read(own)
    return reader.rows


def sent_in_turns(
    groups: list[list[Row]], own: Algorithm, rank: int, known: dict[str, Any]
) -> Iterator[list[tuple[dict[str, Any], int]]]:
    """Yield, for each loop, how many chunks *own* sends in each turn, and the values of symbols there."""
    steps = own.steps(rank, known["p"])
    for group in groups:
        loop = group[0].loop
        if loop is None:
            next(steps)
            continue
        by_turn = []
        for turn in loop.numbers(*(as_function(bound)(known) for bound in loop.bounds)):
            taken = [next(steps) for _ in group]
            sent = sum(send.num_chunks for step in taken for send in step if isinstance(send, Send))
            by_turn.append(({**known, "r": rank, str(loop.variable): turn}, sent))
        yield by_turn


def test_bits_set_below_a_number_are_counted():
    for number in range(40):
        for level in range(6):
            counted = as_function(bits_set_below(z3.IntVal(number), z3.IntVal(level)))(OF_POWERS)
            assert counted == sum(below >> level & 1 for below in range(number))
