"""Proofs as a table, a sentence and evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.extras import how_to_install
from testbed.output.table import counted, table
from testbed.studies.proofs import EVERY_SIZE, MODEL, POWERS_OF_TWO, Outcome, solver_is_there

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from collectives import Proof

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


def print_proofs(console: Console, outcomes: Sequence[Outcome], budget: int | None) -> None:
    """Print the table, the evidence against what is wrong, and what was refused or left out."""
    console.print(proof_table(outcomes))

    for outcome in outcomes:
        if outcome.evidence is not None:
            console.print(f"\n{outcome.evidence}", markup=False, soft_wrap=True)

    refusals: dict[tuple[str, int], list[str]] = {}

    for outcome in outcomes:
        if outcome.reason is not None:
            who = f"{outcome.algorithm} ({outcome.collective})"
            refusals.setdefault((outcome.reason, len(outcome.refused)), []).append(who)

    if refusals:
        console.print()

    for (reason, count), names in refusals.items():
        line = f"{', '.join(names)}: refused for {count} world size{'s'[: count > 1]}: {reason}"
        console.print(line, markup=False)

    skipped: dict[tuple[int, ...], list[str]] = {}

    for outcome in outcomes:
        if outcome.left_out:
            skipped.setdefault(outcome.left_out, []).append(f"{outcome.algorithm} ({outcome.collective})")

    if skipped:
        console.print(f"\nLeft out, as a proof would go through more than about {budget} operations:")

    for sizes, names in skipped.items():
        console.print(f"  {', '.join(map(str, sizes))} ranks: {', '.join(names)}", markup=False)

    brief = BRIEF if len(outcomes) > MAX_DETAILED else ""
    console.print(f"\n{LEGEND}{brief}\nProved by {MODEL}.", style="dim")
    if any(outcome.proved_for == EVERY_SIZE for outcome in outcomes):
        console.print(BEYOND, style="dim")
    if any(outcome.proved_for == POWERS_OF_TWO for outcome in outcomes):
        console.print(ONLY_POWERS, style="dim")
    if not solver_is_there():
        console.print(how_to_install("Proofs for every size need z3", "proof"), style="dim")


def proof_table(outcomes: Sequence[Outcome]) -> Table:
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

    return table(
        [columns[column] for column in shown],
        [[row[column] for column in shown] for row in rows],
        text_columns=2 + named,
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
