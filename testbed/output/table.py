"""Results on a terminal: tables with right-aligned figures, and progress where someone watches.

Results go to stdout; progress and errors go to stderr, so that a pipe receives the result and nothing else.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.errors import visible

T = TypeVar("T")
K = TypeVar("K")

_LITERAL: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
"""What is printed is shown as it is: names in files and of files may hold brackets and colons."""

EACH_SECONDS = 10.0
"""After which a line says how far it is, where nobody watches a terminal."""

MIN_WIDTH = 100
"""Columns when nobody says how wide the output is, so that a pasted table is not folded."""


class Advance(Protocol):
    """Tells whoever watches what is being done."""

    def __call__(self, description: str, completed: int | None = None) -> None:
        """Show *description*, and that *completed* units are done (None: one more)."""


def stdout_console() -> Console:
    """Return a console on stdout, plain and wide enough when stdout is no terminal."""
    return _console()


def stderr_console() -> Console:
    """Return a console on stderr, for what goes beside the output of somebody else's script."""
    return _console(stderr=True)


def _console(**options: Any) -> Console:
    console = _Console(**options, **_LITERAL)
    wide: dict[str, Any] = {} if console.is_terminal else {"width": max(console.width, MIN_WIDTH)}
    return _Console(**options, **_LITERAL, **wide)


class _Console(Console):
    """A console that leaves a closed pipe to the command, as `print` does, and spells control characters.

    Long lines are left as they are in what is piped (``soft_wrap``); a terminal gets them between words.
    """

    def on_broken_pipe(self) -> None:
        raise

    def print(self, *objects: Any, **options: Any) -> None:
        options["soft_wrap"] = bool(options.get("soft_wrap")) and not self.is_terminal
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **options)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    text_columns: int = 1,
    title: str | None = None,
) -> Table:
    """Return a table of *rows*; the first *text_columns* are text, the others are figures."""
    result = Table(
        box=SIMPLE_HEAD,
        header_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        title=title,
        title_style="bold",
        title_justify="left",
    )
    for number, column in enumerate(columns):
        text = number < text_columns
        result.add_column(
            Text(column),
            justify="left" if text else "right",
            no_wrap=not text,
            overflow="fold" if text else "ellipsis",
        )

    for row in rows:
        result.add_row(*(Text(visible(cell)) if isinstance(cell, str) else cell for cell in row))

    return result


def print_json(document: dict[str, Any]) -> None:
    """Print *document* to stdout as JSON and nothing else."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


@contextmanager
def progress(total: int | None = None, *, show: bool = True) -> Iterator[Advance]:
    """Show progress on stderr while the body runs: on a terminal, and leave nothing behind there.

    Elsewhere a line each `EACH_SECONDS` says how far it is.
    """
    if not show:
        yield silent
        return
    if not sys.stderr.isatty():
        with _now_and_then(total) as say:
            yield say
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shares = () if total is None else (BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *shares,
        TimeElapsedColumn(),
        console=Console(stderr=True, **_LITERAL),
        transient=True,
    )
    task = bar.add_task("", total=total)

    def advance(description: str, completed: int | None = None) -> None:
        if completed is None:
            bar.update(task, description=description, advance=1)
        else:
            bar.update(task, description=description, completed=completed)

    with bar:
        yield advance


@contextmanager
def _now_and_then(total: int | None) -> Iterator[Advance]:
    """Print how far it is on stderr, a line each `EACH_SECONDS`, from a thread beside the body."""
    began, done, doing = time.monotonic(), 0, ""
    over, stream = threading.Event(), sys.stderr  # a script's output may be taken there meanwhile

    def advance(description: str, completed: int | None = None) -> None:
        nonlocal done, doing
        done, doing = done + 1 if completed is None else completed, description

    def say() -> None:
        while not over.wait(EACH_SECONDS):
            share = "" if total is None else f", {done} of {total}"
            last = f": {visible(doing)}" if doing else ""
            print(f"testbed: {time.monotonic() - began:.0f} s{share}{last}", file=stream, flush=True)

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield advance
    finally:
        over.set()
        speaker.join()


def silent(description: str, completed: int | None = None) -> None:
    """Advance nothing that is shown: nobody watches."""


def seconds(value: float) -> str:
    """Return a time to three digits, in the unit that keeps them readable: ``83.1 ms``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0"


def spell_size(nbytes: int) -> str:
    """Return *nbytes* to three digits, in powers of 1024: parts of whole elements make odd sizes."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= 0.9995 * scale:
            return f"{nbytes / scale:{'.3g' if nbytes < 999.5 * scale else '.0f'}} {unit}"
    return f"{nbytes} B"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return *number* and its noun: ``1 rank``, ``2 ranks``; *plural* where it takes more than an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return *items* by their *key*, in the order in which keys come first."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def spans(numbers: Iterable[int]) -> list[str]:
    """Return *numbers*, in ascending order, in words, those that follow each other as one: ``0–3``."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return [str(first) if first == last else f"{first}–{last}" for first, last in found]


def percent(fraction: float) -> str:
    """Return *fraction* as a percentage with one decimal."""
    return f"{100 * fraction:.1f} %"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
