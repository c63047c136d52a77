"""Layouts of a training: the best, what each family costs, and what to measure first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from functools import partial
from typing import Any, TypeAlias

from testbed.calibration.confidence import Interval, as_fields
from testbed.output.table import counted, percent, seconds
from testbed.planning.layouts.belief import Belief, Measured, worth_measuring
from testbed.planning.layouts.layout import Layout
from testbed.planning.layouts.search import AXES, Found, Search
from testbed.planning.layouts.step import (
    BUBBLE,
    CAUSES,
    COMPUTATION,
    CONTEXT,
    DATA,
    EXPERT,
    HOST,
    OPTIMIZER,
    RECOMPUTE,
    TENSOR,
    TRANSFERS,
    UNEQUAL,
)
from testbed.plots.figure import Axis, Shares
from testbed.result import Facts, Fitted, Grid, Part, Plot, Result, Rows, Text, asked, found, quiet

Cells: TypeAlias = "dict[str, Callable[[Mapping[str, Any]], str]]"
"""What a table says of a row, by the head of each column."""

_FOUND = (
    "family", "seconds", "low", "high", "interval_from", "error", "tokens_per_second_per_gpu", "mfu",
    "peak_bytes", "limit", "lost_to", "measured_seconds",
)  # fmt: skip
COLUMNS = (*asked(*AXES), *found(*_FOUND))
OF_FAMILIES = (*asked("family"), *found(*AXES, "seconds", "times_the_best"))
OF_MEASURING = (*asked(*AXES), *found("seconds", "error", "expected_gain_seconds"))
BEST = 10
"""Layouts that are shown."""

MODEL = (
    "a step is composed of a layer's kernels and messages, the pipeline's schedule, the host's time, "
    "gradients and the optimizer; no script is run"
)


def layouts_result(
    search: Search, excluded: Mapping[str, int], layouts: Sequence[Found], belief: Belief, measured: Measured
) -> Result:
    """Return the best of *layouts*, by what is believed of their steps.

    Args:
        search: what was asked.
        excluded: layouts that were left out, by what is against them.
        layouts: those that divide and fit, with their steps.
        belief: how sure these are, after what was measured.
        measured: steps that were.
    """

    def took(one: Found) -> float:
        return measured.get(one.layout, belief.seconds(one))

    ordered = sorted(layouts, key=lambda one: (took(one), astuple(one.layout)))
    rows = [_row(search, one, belief, measured) for one in ordered]
    best: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        uneven = f", imbalance {row['imbalance']}" if len(search.imbalances) > 1 else ""
        best.setdefault(f"{row['family']}{uneven}", row)
    same = ordered[0].layout.imbalance
    unknown = [one for one in ordered if one.layout not in measured and one.layout.imbalance == same]
    first = worth_measuring(unknown[:1000], belief) if unknown else []
    to_measure = [
        {
            **asdict(one.layout),
            "seconds": took(one),
            "error": belief.error(one),
            "expected_gain_seconds": belief.gain(one, ordered[0]),
        }
        for one in first
    ]
    of_families = [
        {
            **{name: row[name] for name in (*AXES, "seconds")},
            "family": family,
            "times_the_best": row["seconds"] / rows[0]["seconds"],
        }
        for family, row in best.items()
    ]
    answer = _answer(ordered[0], rows[0], of_families)
    return Result(
        question=f"Which layout trains {search.name} fastest on {search.ranks} ranks of {search.network}?",
        answer=answer,
        method="simulated",
        model=MODEL,
        assumptions={
            "framework": search.framework,
            "device": search.device_name,
            "memory_bytes": search.limit_bytes,
            "seq": search.seq,
            "sequences": search.sequences,
            **({"imbalance": ", ".join(search.imbalances)} if search.model.experts else {}),
        },
        rows=Rows(COLUMNS, rows),
        tables={"families": Rows(OF_FAMILIES, of_families), "measure": Rows(OF_MEASURING, to_measure)},
        body={
            "model_name": search.name,
            "network": search.network,
            "ranks": search.ranks,
            "params": search.model.params,
            "layouts": len(layouts),
            "excluded": dict(excluded),
            "best": [asdict(one.layout) for one in ordered[:BEST]],
        },
        topologies={f"{search.network} x {search.ranks}": search.topology.digest()},
        parts=list(_parts(search, excluded, answer, rows, best, of_families, to_measure)),
    )


def _row(search: Search, one: Found, belief: Belief, measured: Measured) -> dict[str, Any]:
    """Return the row of a layout; what it is lost to is corrected as its time is."""
    took = measured.get(one.layout, belief.seconds(one))
    factor = took / one.seconds
    rate = search.seq * search.sequences / took / search.ranks
    is_measured = one.layout in measured
    nodes = search.topology.num_ranks // search.topology.ranks_per_node or 1
    return {
        **asdict(one.layout),
        "family": one.family,
        "seconds": took,
        **as_fields(Interval(took, took, "measured") if is_measured else belief.interval(one, nodes)),
        "error": 0.0 if is_measured else belief.error(one),
        "tokens_per_second_per_gpu": rate,
        "mfu": rate * search.model.flops_per_token(search.seq) / search.peak_flops,
        "peak_bytes": round(one.peak_bytes),
        "limit": max(one.lost, key=lambda cause: one.lost[cause]),
        "lost_to": {cause: factor * own for cause, own in one.lost.items()},
        "measured_seconds": measured.get(one.layout),
    }


def _answer(best: Found, row: Mapping[str, Any], families: Sequence[Mapping[str, Any]]) -> str:
    """Return the best layout, and why it is."""
    lost = {cause: own for cause, own in row["lost_to"].items() if cause != COMPUTATION}
    most = max(lost, key=lambda cause: lost[cause])
    took, rate = row["seconds"], row["tokens_per_second_per_gpu"]
    said = (
        f"{best.layout}: {seconds(took)} a step, {rate:,.0f} tokens/s/GPU, MFU {percent(row['mfu'])}; most "
        f"is lost to {_words(most)}, {percent(lost[most] / took)} of the step."
    )
    alike = [own for own in families if own["imbalance"] == row["imbalance"]]
    if len(alike) > 1:
        family, times = alike[1]["family"], alike[1]["times_the_best"]
        said += f" The best of another family, {family}, takes {times:.2f} times as long."
    others = {own["imbalance"]: own for own in reversed(families) if own["imbalance"] != row["imbalance"]}
    for own in sorted(others.values(), key=lambda one: one["times_the_best"]):
        said += f" {_layout(own)}: {seconds(own['seconds'])}."
    return said


_HEADS = {
    BUBBLE: "bubble", UNEQUAL: "unequal", HOST: "host", TENSOR: "tensor", CONTEXT: "context",
    EXPERT: "expert", TRANSFERS: "transfers", DATA: "data", OPTIMIZER: "optimizer", RECOMPUTE: "recompute",
}  # fmt: skip


def _layout(row: Mapping[str, Any]) -> Layout:
    return Layout(**{axis: row[axis] for axis in AXES})


def _words(cause: str) -> str:
    return cause.replace("_", " ")


def _parts(
    search: Search,
    excluded: Mapping[str, int],
    answer: str,
    rows: Sequence[Mapping[str, Any]],
    best: Mapping[str, Mapping[str, Any]],
    families: Sequence[Mapping[str, Any]],
    to_measure: Sequence[Mapping[str, Any]],
) -> Iterator[Part]:
    yield Text([answer], wrap=True)
    note = "The best layout of each family. Thin lines: within these nine of ten measurements are expected."
    yield Plot(partial(_of_families, best), "Where a step goes", note)
    figures: Cells = {
        "layout": lambda row: str(_layout(row)),
        "step": lambda row: seconds(row["seconds"]),
        "tokens/s/GPU": lambda row: f"{row['tokens_per_second_per_gpu']:,.0f}",
        "MFU": lambda row: percent(row["mfu"]),
        "memory": lambda row: f"{row['peak_bytes'] / 2**30:.0f} GiB",
        "limited by": lambda row: _words(row["limit"]),
    }
    yield Grid.of(rows[:BEST], figures, title=f"Best of {counted(len(rows), 'layout')}")
    yield Fitted(lambda console: [_losses(rows[:BEST], is_page=console is None)])
    layout, step = figures["layout"], figures["step"]
    of_families: Cells = {
        "best of each family": lambda row: row["family"],
        "layout": layout,
        "step": step,
        "times the best": lambda row: f"{row['times_the_best']:.2f}",
    }
    yield Grid.of(families, of_families, text_columns=2)
    unsure: Cells = {
        "measure first": layout,
        "step": step,
        "unsure by": lambda row: f"±{percent(row['error'])}",
        "may save": lambda row: seconds(row["expected_gain_seconds"]),
    }
    if to_measure:
        yield Grid.of(to_measure, unsure)
    if excluded:
        yield Facts(
            {reason: f"{count:,}" for reason, count in excluded.items()}, title="Left out for", width=30
        )
    uneven = f"experts' imbalance {', '.join(search.imbalances)}, " if search.model.experts else ""
    yield quiet(
        f"Figures: {MODEL}. Software: {search.framework}, {search.device_name} in bfloat16, {uneven}layers "
        "cut at equal cost; MFU counts products and attention to all tokens, without recomputing. Not "
        "modelled: selective recomputing, float8, offloading, sequences of unequal lengths."
    )


def _losses(rows: Sequence[Mapping[str, Any]], *, is_page: bool) -> Grid:
    """Return what *rows* are lost to; a terminal has no room for their layouts, in order above."""
    causes = _causes(rows)
    cells = [[f"{100 * row['lost_to'][cause] / row['seconds']:.1f}" for cause in causes] for row in rows]
    heads = [_HEADS[cause] for cause in causes]
    if is_page:
        heads, cells = (
            ["layout", *heads],
            [[str(_layout(row)), *own] for row, own in zip(rows, cells, strict=True)],
        )
    title = "Lost, percent of the step; the rest is computation"
    return Grid(heads, cells, text_columns=int(is_page), title=title)


def _causes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what more than a two-thousandth of some step is lost to."""
    return [own for own in CAUSES if any(row["lost_to"][own] > 5e-4 * row["seconds"] for row in rows)]


def _of_families(best: Mapping[str, Mapping[str, Any]]) -> Shares:
    """Return what the step of the *best* layout of each family consists of, with the interval of the step."""
    causes = [COMPUTATION, *_causes(list(best.values()))]
    parts = [(_words(cause), [row["lost_to"][cause] for row in best.values()]) for cause in causes]
    within = [(row["low"], row["high"]) for row in best.values()]
    return Shares(Axis("step (s)", spell=seconds), list(best), parts, within)
