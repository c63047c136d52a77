"""A result: question, answer in a sentence, rows for programs, parts for people, and how it was got.

As CSV its rows are what a spreadsheet takes for nothing else than they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from testbed.errors import UsageError, how_to_install
from testbed.output.folder import SCHEMA, Method, command_line, versions
from testbed.output.table import stdout_console
from testbed.result.page import fragment, rendered
from testbed.result.parts import Grid, Part, Plot, as_text, fitted, show_parts

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.console import Console


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""With these begins a text of which a spreadsheet makes a formula; numbers are none."""

Role = Literal["asked", "found", "how"]
UNITS = {
    "s": ("seconds", "low", "high"), "µs": ("_us",), "MiB": ("_mb",), "B": ("bytes",),
    "GB/s": ("busbw_gbs", "algbw_gbs"), "B/s": ("algbw", "busbw", "bandwidth"),
    "1": ("fraction", "efficiency", "gain", "error", "above_floor"),
}  # fmt: skip
"""Units, by which a field's name ends; ``1`` is a fraction."""


def csv_text(rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()) -> str:
    """Return *rows* as CSV: a line for each, with a column for each field; without rows the head of *names*.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    lines = [{name: _cell(value) for name, value in flat(row).items()} for row in rows]
    columns = list(dict.fromkeys(name for line in lines for name in line) or names)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writerow({name: _no_formula(name) for name in columns})
    writer.writerows(lines)
    return text.getvalue()


def data_frame(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return *rows* as a DataFrame: a column for each field.

    Raises:
        UsageError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError(how_to_install("a table needs pandas", "plan")) from None

    return pandas.DataFrame([flat(row) for row in rows])


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return *row* without tables in it: their entries stand beside the others."""
    fields: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            fields |= {own if own not in row else f"{name}_{own}": one for own, one in value.items()}
        else:
            fields[name] = value
    return fields


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else _no_formula(value)


def _no_formula(value: Any) -> Any:
    """Return *value*; a text of which a spreadsheet would make a formula, after an apostrophe."""
    if not isinstance(value, str):
        return value
    one_line = value.replace("\r", " ")  # which ends a line for whoever reads it
    return f"'{one_line}" if value.startswith(_FORMULA) else one_line


@dataclass(frozen=True)
class Column:
    """A field of rows.

    Attributes:
        name: of the field; one that holds fields of its own names all of them.
        unit: of numbers: ``s``, ``B``, ``B/s``, ``1`` (a fraction); empty for words, counts and switches.
        role: whether it was *asked*, and so tells rows apart, was *found*, or says *how* that was found.
        head: above it in a table for people; empty: they do not see it.
        spell: returns a value in words, for them.
        none: what they see where there is no value; empty: a column without any is left out.
        of: returns the field of an item; or where in the item that is which has the field, such as
            ``row.pattern``; empty: in itself.
    """

    name: str
    unit: str = ""
    role: Role = "found"
    head: str = ""
    spell: Callable[[Any], str] = str
    none: str = ""
    of: Callable[[Any], Any] | str = ""

    def cell(self, row: Mapping[str, Any]) -> str:
        """Return what a table for people says of it in *row*."""
        value = row.get(self.name)
        return self.none if value is None else self.spell(value)

    def value(self, item: Any) -> Any:
        """Return the field of *item*: of a mapping by its key, of anything else by its attribute."""
        if not isinstance(self.of, str):
            return self.of(item)
        inside = attrgetter(self.of)(item) if self.of else item
        return inside[self.name] if isinstance(inside, Mapping) else getattr(inside, self.name)


def asked(*names: str, **look: Any) -> tuple[Column, ...]:
    """Return columns that belong to the question; *look*: ``head``, ``spell``, ``none``, ``of``."""
    return tuple(Column(name, unit_of(name), "asked", **look) for name in names)


def found(*names: str, **look: Any) -> tuple[Column, ...]:
    """Return columns that belong to the answer."""
    return tuple(Column(name, unit_of(name), **look) for name in names)


def found_by(*names: str, **look: Any) -> tuple[Column, ...]:
    """Return columns that say how the answer was found, such as an engine: neither question nor answer."""
    return tuple(Column(name, unit_of(name), "how", **look) for name in names)


def unit_of(name: str) -> str:
    """Return the unit of a field, which its name says."""
    return next((unit for unit, ends in UNITS.items() if name.endswith(ends)), "")


@dataclass(frozen=True)
class Rows:
    """Rows for programs, with the columns that they have.

    Attributes:
        columns: of all rows; a row may leave some out.
        rows: as JSON types.
    """

    columns: Sequence[Column] = ()
    rows: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, columns: Sequence[Column], items: Iterable[Any]) -> Rows:
        """Return a row for each of *items*: a tuple has its fields in the order of *columns*."""
        names = [column.name for column in columns]
        rows = [
            dict(zip(names, item, strict=True))
            if isinstance(item, tuple)
            else {column.name: column.value(item) for column in columns}
            for item in items
        ]
        return cls(columns, rows)

    def grid(self, **look: Any) -> Grid:
        """Return them as a table for people, with the columns that have a head; *look* as of `Grid`."""
        shown = {own.head: own.cell for own in self.columns if own.head}
        empty = [own.head for own in self.columns if not (own.none or any(map(own.cell, self.rows)))]
        return Grid.of(self.rows, {head: shown[head] for head in shown if head not in empty}, **look)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Result:
    """What a command found.

    Attributes:
        question: in words.
        answer: in one sentence.
        method: how its figures were got.
        model: what they assume, in one sentence.
        rows: its chief rows.
        parts: what is shown, in their order.
        assumptions: network, software, algorithm and device, as any command accepts them again.
        tables: further rows, by name.
        body: further fields, as JSON types.
        asked: fields of *body* that belong to the question.
        seed: of every random choice; None where nothing is random.
        topologies: digest of each topology that was simulated, by name.
        files: what else was written, by what it is.
        command: what repeats it, where that is not the command line of this process.
        failure: what does not hold, so that the command ends with *exit_code*; None: all does.
        exit_code: of the command where something does not hold.
    """

    question: str
    answer: str
    method: Method | Sequence[Method]
    model: str
    rows: Rows = Rows()
    parts: Sequence[Part] = ()
    assumptions: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Rows] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    asked: Sequence[str] = ()
    seed: int | None = None
    topologies: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    command: str = ""
    failure: str | None = None
    exit_code: int = 1

    @property
    def holds(self) -> bool:
        """Whether what was checked holds."""
        return self.failure is None

    def document(self) -> dict[str, Any]:
        """Return it as JSON types: how it was got comes first."""
        tables = {"rows": self.rows, **self.tables}
        columns = [column for table in tables.values() for column in table.columns]
        asked, how = (
            {name: [own.name for own in table.columns if own.role == role] for name, table in tables.items()}
            for role in ("asked", "how")
        )
        return {
            "schema": SCHEMA,
            "command": self.command or command_line(),
            "versions": versions(),
            "method": self.method,
            "model": self.model,
            "seed": self.seed,
            "topologies": dict(self.topologies),
            "question": self.question,
            "answer": self.answer,
            "asked": {"": list(self.asked), **asked},
            "how": {name: own for name, own in how.items() if own},
            "units": {own.name: own.unit for own in columns if own.unit},
            "assumptions": dict(self.assumptions),
            **{name: [dict(row) for row in table] for name, table in tables.items()},
            **self.body,
        }

    def to_csv(self) -> str:
        """Return its rows as CSV."""
        return csv_text(self.rows, [column.name for column in self.rows.columns])

    def to_dataframe(self) -> DataFrame:
        """Return its rows as a DataFrame of pandas: a column for each field.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(self.rows)

    def to_html(self) -> str:
        """Return it as a page: one file of HTML, with plots, which needs no network."""
        return rendered(self.question, self.answer, self.parts, self.document())

    def draw(self, path: Path) -> None:
        """Draw its figure, of several the first, to *path*, in the format that its suffix names.

        Raises:
            UsageError: it has no figure, or one that nobody could read, or matplotlib is not installed or
                cannot write this format.
            OSError: *path* cannot be written.
        """
        from testbed.plots.figure import NoFigure
        from testbed.plots.picture import draw

        plot = next((part for part in fitted(self.parts, None) if isinstance(part, Plot)), None)
        try:
            if plot is None:
                raise NoFigure("this result has no figure")
            methods = [self.method] if isinstance(self.method, str) else self.method
            how = f"{', '.join(methods).capitalize()}: {self.model.removesuffix('.')}."
            title = plot.alone or plot.title or self.question
            draw(plot.describe(), path, title=title, note=f"{plot.note} {plot.assumed or how}".strip())
        except NoFigure as error:
            raise UsageError(f"--plot {path}: {error}") from None

    def show(self, console: Console | None = None) -> None:
        """Print it on *console*, by default on stdout."""
        show_parts(console or stdout_console(), self.parts, self.files)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: answer and parts, without plots."""
        return fragment(self.question, self.answer, self.parts)

    def __str__(self) -> str:
        return as_text(self.parts, self.files)

    def __repr__(self) -> str:
        return f"Result({self.answer!r}, {len(self.rows)} rows)"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or SIGTERM, where a part of the result is there already.

    Attributes:
        result: what is there.
    """

    def __init__(self, result: Result, by: KeyboardInterrupt) -> None:
        super().__init__()
        self.result = result
        self.by = by
