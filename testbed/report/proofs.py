"""Proofs as a table, a sentence and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from collectives import Proof
from testbed.errors import how_to_install
from testbed.output.table import counted
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet
from testbed.studies.proofs import EVERY_SIZE, MODEL, POWERS_OF_TWO, Outcome, rows_of, solver_is_there

COLUMNS = (
    *asked("algorithm", "collective", "world_size"),
    *found("proved", "evidence", "proved_for", "bytes_proved_for", "num_steps", "num_messages"),
    *found("max_bytes_sent_fraction", "min_bytes_sent_fraction", "num_chunks", "array_form", "cost_declared"),
)
OF_SIZES = (*asked("algorithm", "collective"), *found("world_sizes", "reason"))

LEGEND = (
    "sent: bytes that the busiest rank sends, over those of the buffer; bound: what no algorithm goes below; "
    "steps: longest chain of dependent messages."
)

BEYOND = "Proved for every size: any number of ranks, by induction over the program's own loops (z3)."
ONLY_POWERS = "Proved for 2^k: any power of two, in the same way."

MAX_DETAILED = 8
"""Algorithms up to which figures for several world sizes are shown of each."""

BRIEF = " Figures are those of the largest world size; name an algorithm, or use --json, for the others."


def answer(outcomes: Sequence[Outcome]) -> str:
    """Return in a sentence what was proved."""
    wrong = [outcome for outcome in outcomes if outcome.failed_at]
    proofs = counted(sum(len(outcome.proofs) for outcome in outcomes), "proof")
    if not wrong:
        return f"All are right, wherever they do not refuse the number of ranks: {proofs}."
    first = f"{wrong[0].algorithm} ({wrong[0].collective}) with {wrong[0].failed_at} ranks"
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"Wrong: {first}{more}."


def proofs_result(question: str, outcomes: Sequence[Outcome], budget: int | None) -> Result:
    """Return what was proved, the evidence against what is wrong, and what was refused or left out."""
    refused = [{**_world_sizes(own, own.refused), "reason": own.reason} for own in outcomes if own.refused]
    left_out = [_world_sizes(own, own.left_out) for own in outcomes if own.left_out]
    return Result(
        question=question,
        answer=answer(outcomes),
        method="proved",
        model=MODEL,
        rows=Rows(COLUMNS, rows_of(outcomes)),
        tables={"refused": Rows(OF_SIZES, refused), "left_out": Rows(OF_SIZES, left_out)},
        parts=list(_parts(outcomes, budget)),
        failure="" if any(own.failed_at for own in outcomes) else None,
    )


def _parts(outcomes: Sequence[Outcome], budget: int | None) -> Iterator[Part]:
    yield proof_table(outcomes)
    for outcome in outcomes:
        if outcome.evidence is not None:
            yield Text([outcome.evidence])

    refusals: dict[tuple[str, int], list[str]] = {}
    skipped: dict[tuple[int, ...], list[str]] = {}
    for outcome in outcomes:
        who = f"{outcome.algorithm} ({outcome.collective})"
        if outcome.reason is not None:
            refusals.setdefault((outcome.reason, len(outcome.refused)), []).append(who)
        if outcome.left_out:
            skipped.setdefault(outcome.left_out, []).append(who)
    yield Text(
        [
            f"{', '.join(names)}: refused for {counted(count, 'world size')}: {reason}"
            for (reason, count), names in refusals.items()
        ]
    )
    lines = [f"  {', '.join(map(str, sizes))} ranks: {', '.join(names)}" for sizes, names in skipped.items()]
    heading = f"Left out, as a proof would go through more than about {budget} operations:"
    yield Text([heading, *lines] if lines else [])
    brief = BRIEF if len(outcomes) > MAX_DETAILED else ""
    scopes = {outcome.proved_for for outcome in outcomes}
    yield quiet(
        f"{LEGEND}{brief}",
        f"Proved by {MODEL}.",
        *([BEYOND] if EVERY_SIZE in scopes else []),
        *([ONLY_POWERS] if POWERS_OF_TWO in scopes else []),
        *([] if solver_is_there() else [how_to_install("Proofs for every size need z3", "proof")]),
    )


def _world_sizes(outcome: Outcome, sizes: Sequence[int]) -> dict[str, Any]:
    return {"algorithm": outcome.algorithm, "collective": outcome.collective, "world_sizes": list(sizes)}


def proof_table(outcomes: Sequence[Outcome]) -> Grid:
    """Return the table; where not all is all-reduce, with the collective in place of the messages.

    Of a long range, the powers of two and both ends are shown; of many algorithms, the last only.
    """
    named = any(outcome.collective != "all_reduce" for outcome in outcomes)
    brief = len(outcomes) > MAX_DETAILED
    figures = ("ranks", "steps", "messages", "sent", "bound", "sent / bound")
    rows: list[tuple[str, ...]] = []
    above = ""

    for outcome in outcomes:
        scope = _scope(outcome)
        cells = [_figures(proof) for proof in _shown(outcome.proofs, brief=brief)]
        if outcome.failed_at is not None:
            cells.append((str(outcome.failed_at), "WRONG", *("",) * 4))
        lead = ("" if outcome.collective == above else outcome.collective, outcome.algorithm, scope)
        for row in cells or [("",) * len(figures)]:
            rows.append((*lead, *row))
            lead = ("", "", "")
        above = outcome.collective

    shown = [0, 1, 2, 3, 4, 6, 7, 8] if named else [1, 2, 3, 4, 5, 6, 7, 8]
    columns = ("collective", "algorithm", "proved for", *figures)

    return Grid(
        [columns[column] for column in shown], [[row[column] for column in shown] for row in rows], 2 + named
    )


def _scope(outcome: Outcome) -> str:
    """Return for which world sizes *outcome* is a proof; where some were not tried, how many were."""
    if outcome.proved_for == POWERS_OF_TWO or (
        outcome.proved_for and not (outcome.refused or outcome.left_out)
    ):
        return outcome.proved_for
    scope = f"{len(outcome.proofs)} of {outcome.wanted}"
    if not (outcome.refused or outcome.left_out):
        return f"{scope} world sizes"
    scope += f", {len(outcome.refused)} refused" if outcome.refused else ""
    return scope + (f", {len(outcome.left_out)} left out" if outcome.left_out else "")


def _figures(proof: Proof) -> tuple[str, ...]:
    sent, bound = proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction
    return (
        str(proof.world_size),
        str(proof.num_steps),
        str(proof.num_messages),
        f"{sent:.3f}",
        f"{bound:.3f}",
        f"{sent / bound:.2f}" if bound else "–",
    )


def _shown(proofs: Sequence[Proof], *, brief: bool) -> list[Proof]:
    if brief:
        return list(proofs[-1:])
    if len(proofs) <= 8:
        return list(proofs)
    return [
        proof
        for number, proof in enumerate(proofs)
        if number in (0, len(proofs) - 1) or proof.world_size & (proof.world_size - 1) == 0
    ]
