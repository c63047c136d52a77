"""Layouts of a script: the best, and those that were run in full beside what was composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from testbed.errors import CheckError
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.planning.layouts.script import FEW, FEW_STAGES, MORE, MORE_STAGES, ONE, TWO, Step
from testbed.planning.layouts.script_layout import ScriptLayout
from testbed.plots.figure import Axis, Shares
from testbed.report.layouts import BEST, Cells
from testbed.result import Grid, Part, Plot, Result, Rows, Text, asked, found, quiet, warning

AXES = ("dp", "tp", "pp", "ep", "schedule", "recompute", "batch", "routing")
COLUMNS = (
    *asked(*AXES, "arguments"),
    *found(
        "seconds", "tokens_per_second_per_gpu", "mfu", "peak_bytes", "fits", "limit", "lost_to",
        "confirmed_seconds", "error",
    ),
)  # fmt: skip


def _in_words(row: Mapping[str, Any]) -> str:
    """Return the axes of a layout that divide something, its schedule, and whether it computes again."""
    sizes = " × ".join(f"{axis} {row[axis]}" for axis in ("dp", "tp", "pp", "ep") if row[axis] > 1)
    again = "recompute" if row["recompute"] != "none" else ""
    return ", ".join(filter(None, (sizes or "one rank", row["schedule"], again, row["routing"])))


FIGURES: Cells = {
    "layout": _in_words,
    "step": lambda row: seconds(row["seconds"]),
    "bubble": lambda row: percent(row["lost_to"]["bubble"] / row["seconds"]),
    "tokens/s/GPU": lambda row: f"{row['tokens_per_second_per_gpu']:,.0f}",
    "MFU": lambda row: percent(row["mfu"]),
    "memory": lambda row: spell_size(row["peak_bytes"]),
    "fits": lambda row: "yes" if row["fits"] else "no",
    "limited by": lambda row: row["limit"],
    "in full": lambda row: "" if row["confirmed_seconds"] is None else seconds(row["confirmed_seconds"]),
}
_LIMITS = {"bubble": "bubble", "waiting": "communication and waiting", "computation": "computation"}
MODEL = (
    f"a layout is run without data with {FEW} and {MORE} layers of each list, a stage by 1F1B with {ONE} and "
    f"{TWO}; of pipelines, where stages fill nodes, {FEW_STAGES} ranks, by 1F1B, whose order is replayed, "
    f"else {MORE_STAGES}, too, and few micro-batches; what one more takes, all others take, too; recorded "
    "with the least data parallelism, to which is added what more of it changes of a step by 1F1B; bubble: "
    "what the first rank waits for messages that other stages have not sent yet"
)


def script_layouts_result(
    script: str,
    network: str,
    tokens: int,
    memory: int | None,
    steps: Mapping[ScriptLayout, Step | str],
    full: Mapping[ScriptLayout, Step | str],
) -> Result:
    """Return the best layouts of a script.

    Args:
        script: its path.
        network: on which it would run.
        tokens: of a step, of all ranks.
        memory: of a GPU, in bytes; None: nobody says.
        steps: of layouts, composed; or why there is none.
        full: steps of those that were run in full.

    Raises:
        CheckError: no layout runs.
    """
    known = {layout: step for layout, step in steps.items() if isinstance(step, Step)}
    failed = {layout: said for layout, said in steps.items() if isinstance(said, str)}
    if not known:
        raise CheckError(f"{script}: no layout runs; {next(iter(failed))}: {next(iter(failed.values()))}")
    rows = [_row(layout, step, full.get(layout), tokens, memory) for layout, step in known.items()]
    rows.sort(key=lambda row: (not row["fits"], row["confirmed_seconds"] or row["seconds"], row["arguments"]))
    best = rows[0]
    ranks = next(iter(known)).dp * next(iter(known)).tp * next(iter(known)).pp
    answer = (
        f"{best['arguments']}: {seconds(best['seconds'])} a step, "
        f"{best['tokens_per_second_per_gpu']:,.0f} tokens/s/GPU, MFU {percent(best['mfu'])}; limited by "
        f"{best['limit']}."
    )
    if memory is not None and not best["fits"]:
        least = min(rows, key=lambda row: row["peak_bytes"])
        answer = (
            f"No layout fits {spell_size(memory)}: {least['arguments']} needs least, "
            f"{spell_size(least['peak_bytes'])}."
        )
    parts: list[Part] = [
        Text([answer], wrap=True),
        Plot(
            partial(_of_best, rows[:BEST]),
            "Where a step goes",
            "The best layouts, in the order of the table; times of the first rank.",
        ),
        Grid.of(rows[:BEST], FIGURES, title=f"Best of {counted(len(rows), 'layout')}"),
        *(warning(f"{layout}: {said}") for layout, said in failed.items()),
        quiet(f"Figures: {MODEL}."),
    ]
    return Result(
        question=f"Which layout trains {script} fastest on {ranks} ranks of {network}?",
        answer=answer,
        method="simulated",
        model=MODEL,
        rows=Rows(COLUMNS, rows),
        body={"network": network, "ranks": ranks, "failed": {str(own): said for own, said in failed.items()}},
        parts=parts,
    )


def _of_best(rows: Sequence[Mapping[str, Any]]) -> Shares:
    """Return what the steps of *rows* consist of, as their first rank has it."""
    cases = [f"{number}: {_in_words(row)}" for number, row in enumerate(rows, 1)]
    parts = [(said, [row["lost_to"][cause] for row in rows]) for cause, said in reversed(_LIMITS.items())]
    return Shares(Axis("step (s)", spell=seconds), cases, parts)


def _row(
    layout: ScriptLayout, step: Step, full: Step | str | None, tokens: int, memory: int | None
) -> dict[str, Any]:
    lost = {
        "bubble": step.bubble_seconds,
        "waiting": step.seconds - step.compute_seconds - step.bubble_seconds,
        "computation": step.compute_seconds,
    }
    confirmed = full.seconds if isinstance(full, Step) else None
    axes = asdict(layout)
    return {
        **{name: axes[name] for name in AXES},
        "arguments": str(layout),
        "seconds": step.seconds,
        "tokens_per_second_per_gpu": tokens / (layout.dp * layout.tp * layout.pp) / step.seconds,
        "mfu": step.sequence_seconds * layout.batch / layout.pp / step.seconds,
        "peak_bytes": round(step.peak_bytes),
        "fits": step.fits(memory),
        "limit": _LIMITS[max(lost, key=lambda cause: lost[cause])],
        "lost_to": lost,
        "confirmed_seconds": confirmed,
        "error": None if confirmed is None else step.seconds / confirmed - 1,
    }
