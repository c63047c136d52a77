"""The solver, asked whether claims contradict each other.

It is asked twice at most.  The first time costs little, in the context in which all terms are; what was asked
before may matter to it.  Where that decides nothing, it is asked in a context of its own, so that no more
work would help on any machine, whatever was asked before.

z3 has two solvers for sums.  Its older one decides these claims in half the time, but may not come to an end
where something is said of every number: there the newer one is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from collectives.proof.every_size.linear import Linear
from collectives.proof.every_size.terms import once_for_each

MOST_WORK = 100_000_000
"""Resource units of the solver for one obligation, some seconds, but the same on every machine."""

SOME_WORK, LITTLE_WORK = MOST_WORK // 10, MOST_WORK // 100
"""For what may well not be so; for what is only tried, and for each first try."""

OLDER, NEWER = 2, 6
"""What z3 calls its solvers for sums."""


def contradict(claims: list[Any], work: int, *, products: bool) -> bool:
    """Return whether *claims* are known, with so much *work* of the solver, to contradict each other.

    There may be *products* of symbols in them, or quotients.
    """
    linear = Linear() if products else None
    claims = linear.of(claims) if linear else claims
    arithmetic = NEWER if any(map(z3.is_quantifier, claims)) else OLDER
    answer = _ask(_for_sums(z3.SimpleSolver(), arithmetic), claims, LITTLE_WORK, linear)
    if answer == z3.unknown and work > LITTLE_WORK:
        apart = z3.Solver(ctx=z3.Context())
        answer = _ask(_for_sums(apart, arithmetic), claims, work, linear)
    return bool(answer == z3.unsat)


def contradict_as_bits(claims: list[Any]) -> bool:
    """Return whether *claims* on bit vectors are known to contradict each other."""
    return bool(_ask(z3.SolverFor("QF_BV"), claims, MOST_WORK, None) == z3.unsat)


def _for_sums(solver: Any, arithmetic: int) -> Any:
    """Return *solver*, told which of its solvers for sums to use."""
    solver.set("arith.solver", arithmetic)
    return solver


def _ask(solver: Any, claims: list[Any], work: int, linear: Linear | None) -> Any:
    """Return what *solver* says of *claims*; where these are *linear*, of what is so of their products."""
    solver.set("rlimit", work)
    while claims:
        solver.add(_translated(z3.And(*claims), solver.ctx))
        answer = solver.check()
        if answer != z3.sat or linear is None or not linear.products:
            return answer
        claims = list(linear.facts_against(_values(solver.model())))
    return z3.sat


def _values(model: Any) -> Callable[[Any], int]:
    """Return what terms are worth in *model*."""
    return once_for_each(
        lambda term: model.eval(_translated(term, model.ctx), model_completion=True).as_long()
    )


def _translated(term: Any, context: Any) -> Any:
    return term if term.ctx is context else term.translate(context)
