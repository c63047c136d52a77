"""Result of a comparison: two results beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.output.table import counted, grouped, seconds
from testbed.result import Grid, Part, Result, Rows, Text, asked, found
from testbed.result.comparison import (
    Comparison,
    Difference,
    Pair,
    ResultFile,
    Scalar,
    is_asked,
    is_number,
    relative,
)

MODEL = (
    "rows are matched by the first fields of the question that tell them apart; "
    "a difference is that of B from A, over A"
)
DIFFERENCES = (*asked("table", "row", "field"), *found("first", "second", "relative"))
ONLY = asked("table", "row")

MAX_LINES = 40
"""So many rows of a table are shown; the JSON has all."""


def compared_result(
    files: Sequence[Path],
    results: Sequence[ResultFile],
    comparison: Comparison,
    figure: str | None,
    tolerance: float,
) -> Result:
    """Return what two results, A and B, have in common and what not, with *figure* side by side."""
    answer = answer_sentence(comparison, figure)
    names = [{"file": str(file), "command": own.command} for file, own in zip(files, results, strict=True)]
    return Result(
        question=f"Do {files[0].name} and {files[1].name} agree?",
        answer=answer,
        method=list(dict.fromkeys(method for own in results for method in own.methods)),
        model=MODEL,
        rows=Rows.of(DIFFERENCES, comparison.answer),
        tables={
            "asked_differently": Rows.of(DIFFERENCES, comparison.question),
            "only_in_first": Rows.of(ONLY, comparison.only_first),
            "only_in_second": Rows.of(ONLY, comparison.only_second),
        },
        asked=("first", "second", "tolerance"),
        body={
            "first": names[0],
            "second": names[1],
            "tolerance": tolerance,
            "agree": comparison.agrees,
            "figures_compared": comparison.num_compared,
            "rows_matched": len(comparison.pairs),
        },
        parts=[Text([answer, f"A: {files[0]}", f"B: {files[1]}"]), *_parts(comparison, figure)],
        failure=None
        if comparison.agrees
        else f"{files[0]} and {files[1]} differ by more than --tolerance {tolerance:g}",
    )


def chief_figure(comparison: Comparison) -> str | None:
    """Return the figure to show side by side: a time if there is one, else the first that differs."""
    for field in figures(comparison):
        if comparison.units.get(field) == "s":
            return field
    return next((own.field for own in comparison.answer if own.relative is not None), None)


def figures(comparison: Comparison) -> list[str]:
    """Return the names of the numbers that can be shown side by side."""
    known = ((pair, field) for pair in comparison.pairs for field in pair.first if _both(pair, field))
    found = (field for pair, field in known if not is_asked(field, comparison.asked.get(pair.table, ())))
    return list(dict.fromkeys(found))


def answer_sentence(comparison: Comparison, figure: str | None) -> str:
    """Return in a sentence whether the results agree, and if not, what *figure* of B is of that of A."""
    if comparison.agrees:
        return f"The answers agree: {counted(comparison.num_compared, 'figure')} compared."
    if not comparison.pairs:
        return "The results have no row in common: they answer different questions."
    said = f"{len(comparison.answer)} of {counted(comparison.num_compared, 'figure')} differ"
    ratios = sorted(_ratios(comparison, figure)) if figure else []
    if ratios:
        low, high = f"{ratios[0]:.3g}", f"{ratios[-1]:.3g}"
        said += f"; {figure} of B is {low if low == high else f'{low} to {high}'} × that of A"
    for name, only in (("A", comparison.only_first), ("B", comparison.only_second)):
        if only:
            said += f"; {counted(len(only), 'row')} {'stands' if len(only) == 1 else 'stand'} only in {name}"
    return f"{said}."


def _parts(comparison: Comparison, figure: str | None) -> Iterator[Part]:
    """Yield what was asked differently, what came out differently, and *figure* side by side."""
    if comparison.question:
        rows = [(what, _spell(own.first), _spell(own.second)) for what, own in _asked(comparison.question)]
        yield from _grid(("asked", "A", "B"), rows, 3, "The question")
    else:
        yield Text(["The question is the same in both."])
    if comparison.answer:
        columns = ("figure", "most in", "differs in", "least", "most")
        yield from _grid(columns, list(_by_figure(comparison)), 2, "The answer: B beside A")
    beside = [pair for pair in comparison.pairs if figure and _both(pair, figure)]
    if figure and beside:
        lines = []
        for pair in beside:
            both = pair.first[figure], pair.second[figure]
            spelt = (_spell(value, figure) for value in both)
            lines.append((_where(pair.table, pair.row), *spelt, _change(relative(*both))))
        yield from _grid(("row", "A", "B", "difference"), lines, 1, figure)
    for name, only in (("A", comparison.only_first), ("B", comparison.only_second)):
        lines_of = [f"Only in {name}: {_where(*where)}" for where in only[:MAX_LINES]]
        yield Text([*lines_of, *_left_out(only)])


def _grid(
    columns: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int, title: str
) -> Iterator[Part]:
    yield Grid(columns, rows[:MAX_LINES], text_columns, title)
    yield Text(list(_left_out(rows)), gap=False)


def _left_out(lines: Sequence[object]) -> Iterator[str]:
    more = len(lines) - MAX_LINES
    if more > 0:
        yield f"and {more} more: --json has all"


def _asked(question: tuple[Difference, ...]) -> Iterator[tuple[str, Difference]]:
    """Yield what was asked differently: what is so in many rows, once."""
    for own, *_ in grouped(question, lambda own: (own.field, own.first, own.second)).values():
        yield f"{own.table}: {own.field}" if own.table else own.field, own


def _by_figure(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Yield a line for each field that differs: in how many rows, and by how much."""
    fields = grouped(comparison.answer, lambda own: (own.table, own.field))
    for (name, field), differences in fields.items():
        of = sum(pair.table == name for pair in comparison.pairs)
        numbers = sorted(
            (own for own in differences if own.relative is not None), key=lambda own: abs(own.relative or 0.0)
        )
        what, number = field if name in ("", "rows") else f"{name}: {field}", f"{len(differences)} of {of}"
        if numbers:
            yield what, numbers[-1].row, number, *(_change(numbers[end].relative) for end in (0, -1))
        else:
            own = differences[0]
            yield what, own.row, number, _spell(own.first), _spell(own.second)


def _ratios(comparison: Comparison, figure: str) -> list[float]:
    found = (relative(pair.first.get(figure), pair.second.get(figure)) for pair in comparison.pairs)
    return [1.0 + own for own in found if own is not None]


def _both(pair: Pair, figure: str) -> bool:
    return is_number(pair.first.get(figure)) and is_number(pair.second.get(figure))


def _where(name: str, row: str) -> str:
    return ": ".join(part for part in (name if name != "rows" else "", row) if part) or "the result"


def _change(relative: float | None) -> str:
    if relative is None:
        return ""
    if relative >= 1.0:
        return f"× {1.0 + relative:.3g}"
    return f"{100 * relative:+.3g} %" if relative else "same"


def _spell(value: Scalar, figure: str = "") -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return seconds(value) if "seconds" in figure and value >= 0 else f"{value:.6g}"
    return str(value)
