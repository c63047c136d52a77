"""Published trainings run from scripts: on a terminal, as JSON, and as a section of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from benchmarks.lab.document import Section
from benchmarks.lab.published.scripted import summaries
from testbed.output.folder import document
from testbed.output.table import table

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.lab.published.scripted import ErrorSummary, ScriptedPrediction

MODEL = (
    "a plain script on virtual ranks without data: kernels that CUDA would launch by the constants of the "
    "device file, collectives of the script on the links of the node, streams and a host that runs ahead"
)
WIDTH = 118
FAMILIES = ("trainings", "rows", "median", "nine in ten", "worst")
CASES = ("model", "device", "precision", "setting", "role", "predicted", "measured", "error")
WORST = 8

_MEANS = """
Samples (tokens, sequences, pictures) per second and GPU, predicted over measured less one, in absolute
values. `examples/mpt.py` is FSDP2 on 8 GPUs of a node (llm-foundry's table of MPT), `examples/bert.py` and
`examples/resnet50.py` are one GPU (NVIDIA's DeepLearningExamples in PyTorch). A device file has three
constants of a family of kernels (sustained products, fused attention, products of float8), which were
fitted to the rows of MPT with the same kernel model outside of this testbed; the part of tfloat32 that
convolutions reach was fitted to one row of ResNet-50, those of the V100 to its rows. Rows that *calibrate*
therefore say that the script, its kernels and its streams take what that model takes, not that it is right
elsewhere. Nothing is fitted to a row by itself. Attention kernels are those of 2023, `fa1_2023`.
"""
_ASSUMES = """
What is assumed: rows in bf16 are of a torch that recomputes all of a checkpointed block (before 2.1), those
in mixed precision of one that stops early; gradients are reduced in each pass; float8 casts are operations
of their own; where a table states no batch of ResNet-50 it is 128. Rows of BERT-large with sequences of 512
are left out: as full sequences they would exceed the peak of a V100.
"""


def print_scripted(console: Console, found: Sequence[ScriptedPrediction]) -> None:
    """Print the errors by family, and the worst rows."""
    title = "Published trainings of one node, from scripts"
    console.print(table(FAMILIES, [_cells(one) for one in summaries(found)], title=title))
    console.print()
    console.print(table(CASES, [_case(one) for one in _worst(found)], text_columns=5, title="The worst"))
    console.print(f"\nSimulated: {MODEL}.", style="dim")


def scripted_document(found: Sequence[ScriptedPrediction]) -> dict[str, Any]:
    """Return the errors as a JSON document: ``rows`` of trainings, ``summaries`` of families."""
    return document(
        method="simulated",
        model=MODEL,
        summaries=[asdict(one) for one in summaries(found)],
        rows=[one.as_json() for one in found],
    )


def scripted_section(found: Sequence[ScriptedPrediction]) -> Section:
    """Return the errors as a section."""
    lines = [
        "Written by `python -m benchmarks.lab.truth --scripts`.",
        *wrap(_MEANS.strip(), WIDTH),
        "",
        *_markdown(FAMILIES, [_cells(one) for one in summaries(found)]),
        "",
        "The worst:",
        "",
        *_markdown(CASES, [_case(one) for one in _worst(found)]),
        "",
        "NVIDIA's rows, all of them:",
        "",
        *_markdown(CASES, [_case(one) for one in found if one.row.script != "mpt.py"]),
        "",
        *wrap(_ASSUMES.strip(), WIDTH),
    ]
    return Section("scripts", "Training of one node, from a script", "\n".join(lines))


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(row)} |" for row in cells]


def _worst(found: Sequence[ScriptedPrediction]) -> list[ScriptedPrediction]:
    return sorted(found, key=lambda one: -abs(one.error))[:WORST]


def _cells(one: ErrorSummary) -> tuple[str, ...]:
    shares = f"{100 * one.median:.1f} %", f"{100 * one.ninth:.1f} %", f"{100 * one.worst:+.1f} %"
    return one.family, str(one.count), *shares


def _case(one: ScriptedPrediction) -> tuple[str, ...]:
    own = one.row
    figures = f"{one.predicted:,.0f}", f"{own.measured:,.0f}", f"{100 * one.error:+.1f} %"
    return own.model, own.device, own.precision, own.setting, own.role, *figures
