"""Lost efficiency of published trainings on a terminal, as JSON, and as a section of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from benchmarks.lab.document import Section
from benchmarks.lab.published.training import Summary, summaries
from testbed.output.folder import document
from testbed.output.table import table

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.lab.published.training import LostEfficiency

MODEL = (
    "a step by simulate_step with inefficiencies=all over the bundled profile of the model, whose times are "
    "scaled to the published throughput of one GPU; links of vendors' rates; NCCL's own expectation of each "
    "bucket"
)
WIDTH = 118
COLUMNS = ("trainings", "rows", "measured", "ideal", "expected", "error", "ideal error", "worst", "within 3")
WORST = 8

_MEANS = """
Lost efficiency is 1 - throughput of a GPU / throughput of one GPU alone; errors are in points, expected
less measured, medians of absolute values. *Ideal* counts nothing but the network, as `simulate_step` does
by default. The constants of the inefficiencies are in `sim/files/inefficiencies.toml`, each with its
source, and none was fitted to a training; the split is in
`benchmarks/lab/published/data/training_split.toml`, written down before any row was predicted. Of the only
cluster with several nodes nobody states what a ring reaches between cards without NVLink: {rate:.2f}
GB/s, the median of the four rows that calibrate.
"""
_FAILS = """
Where it fails, and what the likely causes are: *Transformer-big* and *Transformer-XL* in PyTorch lose 8
to 20 % from two GPUs in a node on, nearly as much at two as at eight, which no term explains: batches of
sentences of unequal length keep ranks waiting, and hooks written in Python keep short steps busy on the
host; nobody states either. *BERT-large* in TensorFlow compares runs that accumulate unequally often.
*ResNet-50* in PyTorch with AMP is bound by its input pipeline on 8 GPUs, which `--inefficiencies
input:time=...` counts only where its time is given. *BERT-base* with a bucket a parameter waits for
Horovod's negotiation of each. No cluster here has more than 8 nodes. The FSDP table has no row of one
GPU, so it tells no loss of efficiency.
"""


def print_trainings(console: Console, found: Sequence[LostEfficiency]) -> None:
    """Print the errors by family, and the worst cases."""
    own = _shown(found)
    title = "Lost efficiency of published trainings, in % and points"
    console.print(table(COLUMNS, [_cells(one) for one in own], title=title))
    console.print()
    names = ("set", "model", "variant", "GPUs", "measured", "expected", "error")
    rows = [_case(one) for one in _worst(found)]
    console.print(table(names, rows, text_columns=3, title="Worst of those that judge"))
    console.print(f"\nSimulated and closed form: {MODEL}.", style="dim")


def trainings_document(found: Sequence[LostEfficiency]) -> dict[str, Any]:
    """Return the errors as a JSON document: ``rows`` of trainings, ``summaries`` of families."""
    return document(
        method=["simulated", "closed form"],
        model=MODEL,
        summaries=[asdict(one) for one in summaries(found)],
        rows=[one.row() for one in found],
    )


def trainings_section(found: Sequence[LostEfficiency], rate: float) -> Section:
    """Return the errors as a section; *rate* is what a ring reaches, in bytes/s, where nobody states it."""
    names = ("set", "model", "variant", "GPUs", "measured", "expected", "error")
    lines = [
        "Written by `python -m benchmarks.lab.truth --training`.",
        *wrap(_MEANS.format(rate=rate / 1e9).strip(), WIDTH),
        "",
        *_markdown(COLUMNS, [_cells(one) for one in _shown(found)]),
        "",
        "The worst of those that judge:",
        "",
        *_markdown(names, [_case(one) for one in _worst(found)]),
        "",
        *wrap(_FAILS.strip(), WIDTH),
    ]
    return Section("training", "Lost efficiency of trainings", "\n".join(lines))


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def _shown(found: Sequence[LostEfficiency]) -> list[Summary]:
    """Return the summaries but for those of single sets, which are in the JSON document."""
    return [one for one in summaries(found) if not one.family.startswith("ddp_")]


def _cells(one: Summary) -> tuple[str, ...]:
    shares = (one.measured, one.ideal, one.expected)
    return (
        one.family,
        str(one.count),
        *(f"{100 * share:.1f} %" for share in shares),
        f"{100 * one.median_error:.1f}",
        f"{100 * one.ideal_error:.1f}",
        f"{100 * one.worst_error:+.1f}",
        f"{100 * one.within:.0f} %",
    )


def _worst(found: Sequence[LostEfficiency]) -> list[LostEfficiency]:
    judged = [one for one in found if one.training.role == "judge"]
    return sorted(judged, key=lambda one: -abs(one.error))[:WORST]


def _case(one: LostEfficiency) -> tuple[str, ...]:
    own = one.training
    figures = f"{100 * one.measured:.1f} %", f"{100 * one.expected:.1f} %", f"{100 * one.error:+.1f}"
    return own.set, own.model, f"{own.variant} {own.precision}".strip(), str(own.gpus), *figures
