"""Result of an algorithm's schedule: what its docstring says, what it costs, the grid of ranks and steps."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from textwrap import fill

from rich.console import Console

from collectives import Algorithm, ProgramError, Proof
from collectives.algorithms.shared.halves import Halves
from collectives.docstrings import docstring_of, entries_of
from collectives.program.render import draw
from testbed.output.table import counted
from testbed.plots.figure import Drawing
from testbed.plots.schedule import ProgramSchedule
from testbed.plots.schedule_svg import schedule_svg
from testbed.result import Facts, Fitted, Part, Plot, Result, Rows, Text, asked, found, quiet
from testbed.studies.proofs import MODEL

_OPENING = re.compile(r"^Yield this rank's steps? of ")
_SECTION = re.compile(r"^(Args|Raises|Yields):$")
_REFERENCE = re.compile(r"^as `(\w+)`")


@dataclass(frozen=True)
class Description:
    """Of one algorithm, in the markup of docstrings (see `plain` and `markdown`).

    Attributes:
        summary: what it is, in one sentence.
        idea: the paragraphs that say how it works and what that costs.
        source: where it comes from, if the author says so; references to another are followed.
        parameters: those that can be bound, with their default, and what the author says of each.
    """

    summary: str
    idea: tuple[str, ...]
    source: str | None
    parameters: tuple[tuple[str, str], ...] = ()


def describe(algorithm: Algorithm) -> Description:
    """Return what the docstring of *algorithm* says."""
    docstring = docstring_of(algorithm.program) or ""
    paragraphs = _paragraphs(docstring)
    idea = tuple(paragraph for paragraph in paragraphs[1:] if not paragraph.startswith("Source:"))
    return Description(
        summary=_summary(paragraphs[0]) if paragraphs else "",
        idea=idea,
        source=_source(paragraphs, algorithm.program.__module__),
        parameters=_parameters(algorithm, docstring),
    )


def module_summary(algorithm: Algorithm) -> str:
    """Return the first sentence of the file that *algorithm* is in: the idea of its family."""
    paragraphs = _paragraphs(docstring_of(sys.modules[algorithm.program.__module__]) or "")
    return paragraphs[0] if paragraphs else ""


def plain(text: str) -> str:
    """Return *text* without the markup of docstrings."""
    return re.sub(r"\*(\w+)\*", r"\1", text.replace("``", "").replace("`", ""))


def markdown(text: str) -> str:
    """Return *text* with the markup of docstrings turned into Markdown's."""
    return re.sub(r"\*(\w+)\*", r"`\1`", text.replace("``", "`"))


def _paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs, one line each, without the sections about arguments and errors."""
    found = [block.splitlines() for block in re.split(r"\n\s*\n", docstring.strip()) if block.strip()]
    return [" ".join(" ".join(lines).split()) for lines in found if not _SECTION.match(lines[0].strip())]


def _parameters(algorithm: Algorithm, docstring: str) -> tuple[tuple[str, str], ...]:
    """Return ``name=default`` of each parameter, and its text in the section ``Args:``."""
    said = {name: " ".join(text.split()) for name, text in entries_of(docstring, "Args").items()}
    signature = inspect.signature(algorithm.program).parameters
    defaults = {name: signature[name].default for name in algorithm.parameter_names()}
    values = {**defaults, **algorithm.parameters}
    return tuple((f"{name}={_spelled(value)}", said.get(name, "")) for name, value in values.items())


def _spelled(value: object) -> str:
    """Return *value* of a parameter as it is written in Python, an algorithm as its name."""
    return repr(str(value) if isinstance(value, Algorithm | Halves) else value)


def _summary(paragraph: str) -> str:
    text = _OPENING.sub("", paragraph)
    return text[:1].upper() + text[1:]


def _source(paragraphs: list[str], module: str) -> str | None:
    """Return the source; ``as `name``` is replaced by the source of that algorithm in *module*."""
    stated = next((text for text in paragraphs if text.startswith("Source:")), None)
    if stated is None:
        return None
    text = stated.removeprefix("Source:").strip()
    reference = _REFERENCE.match(text)
    other = getattr(sys.modules[module], reference[1], None) if reference else None
    if reference is None or other is None:
        return text
    elsewhere = describe(other).source
    return text if elsewhere is None else elsewhere.removesuffix(".") + text[reference.end() :]


LEGEND = (
    "c>r sends chunk c to rank r; c+r reduces into chunk c what r sends; c<r overwrites chunk c by what r "
    "sends; c=s copies chunk s onto chunk c, c+=s reduces it in; 2-5 is a range of "
    "chunks, s0 the first chunk of scratch; · is nothing."
)
COLUMNS = (
    *asked("sent_in_step", "source", "destination", "chunk", "into"),
    *found("received_in_step", "num_chunks", "reduces"),
)
INDENT = 8
"""Columns of a terminal before what is said of cost, source and the like."""


def schedule_result(
    algorithm: Algorithm, proof: Proof, schedule: ProgramSchedule, others: Sequence[str]
) -> Result:
    """Return the schedule of a proved *algorithm*, with a row for each message.

    Args:
        algorithm: what is shown.
        proof: its cost.
        schedule: what happens in a run.
        others: collectives that it is there for, too.
    """
    description, drawn = describe(algorithm), asdict(schedule)
    grid = draw(algorithm, proof.world_size)
    return Result(
        question=_question(algorithm, proof.world_size),
        answer=f"{_cost(proof)[0].upper()}{_cost(proof)[1:]}.",
        method="proved",
        model=MODEL,
        rows=Rows(COLUMNS, drawn["messages"]),
        asked=("algorithm", "collective", "ranks", "description"),
        body={
            "algorithm": proof.algorithm,
            "collective": proof.collective,
            "ranks": proof.world_size,
            "description": asdict(description),
            "cost": asdict(proof),
            "schedule": drawn,
        },
        parts=[
            Fitted(partial(_heading, proof, description, others)),
            Fitted(partial(_grid, grid)),
            Plot(lambda: Drawing(schedule_svg(schedule)), "The schedule"),
            quiet(LEGEND),
        ],
    )


def fault_result(algorithm: Algorithm, ranks: int, error: ProgramError) -> Result:
    """Return the schedule of an algorithm that is wrong, as far as it goes, and what *error* says of it."""
    parts: list[Part] = []
    with suppress(Exception):  # what is wrong with the program may also keep it from being drawn
        parts = [Fitted(partial(_grid, draw(algorithm, ranks)))]
    fault = "\n".join([str(error), *getattr(error, "__notes__", ())])
    return Result(
        question=_question(algorithm, ranks),
        answer=f"It is wrong: {fault.splitlines()[0].rstrip('.')}.",
        method="proved",
        model=MODEL,
        rows=Rows(COLUMNS),
        asked=("algorithm", "collective", "ranks"),
        body={
            "algorithm": str(algorithm),
            "collective": algorithm.collective,
            "ranks": ranks,
            "fault": fault,
        },
        parts=parts,
        failure=fault.replace("\n", "\n  "),
    )


def _question(algorithm: Algorithm, ranks: int) -> str:
    what = f"{algorithm} {algorithm.collective}"
    return f"Who sends which chunk to whom, in which step of {what} on {counted(ranks, 'rank')}?"


def _heading(
    proof: Proof, description: Description, others: Sequence[str], console: Console | None
) -> Sequence[Part]:
    """Return what it is, how it works, what it costs and where it comes from."""
    title = f"{proof.algorithm} {proof.collective}, {counted(proof.world_size, 'rank')}"
    paragraphs = [plain(own) for own in (description.summary, *description.idea) if own]
    facts = {"cost": f"{_cost(proof)} (proved)", "source": plain(description.source or "none given")}
    if description.parameters:
        facts["with"] = f"{', '.join(name for name, _ in description.parameters)} (NAME:parameter=value,…)"
    if others:
        facts["also"] = f"for {', '.join(others)}: --collective NAME"
    if console is None:
        return [Text(paragraphs, title), Facts(facts)]
    filled = [fill(own, console.width) for own in paragraphs]
    lines = [
        fill(f"{name:{INDENT - 2}}  {text}", console.width, subsequent_indent=" " * INDENT)
        for name, text in facts.items()
    ]
    return [Text(filled[:1], title), *(Text([own]) for own in filled[1:]), Text(lines, gap=bool(filled))]


def _cost(proof: Proof) -> str:
    sent, bound = proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction
    compared = f", {sent / bound:.2f} times the lower bound" if bound else ""
    return (
        f"{counted(proof.num_steps, 'step')}, {counted(proof.num_messages, 'message')}; "
        f"the busiest rank sends {sent:.3f} of the buffer{compared}"
    )


def _grid(grid: str, console: Console | None) -> Sequence[Part]:
    shown, note = cut(grid, console.width if console is not None and console.is_terminal else None)
    return [Text([shown]), *([quiet(note)] if note else [])]


def cut(grid: str, width: int | None) -> tuple[str, str]:
    """Return *grid* without the ranks that do not fit into *width*, and a note that says so."""
    lines = grid.split("\n")
    needed = max(map(len, lines))
    if width is None or needed <= width:
        return grid, ""
    starts = [column.start() for column in re.finditer(r"rank \d+", lines[0])]
    ends = [start - 2 for start in starts[1:]]
    fitting = sum(end <= width for end in ends)
    advice = f"the whole grid takes {needed} columns: widen the terminal, or send the output to a file"
    if fitting == 0:
        shown = [line if len(line) <= width else f"{line[: width - 1]}…" for line in lines]
        return "\n".join(shown), f"Cut to the terminal; {advice}."
    shown = [line[: ends[fitting - 1]].rstrip() for line in lines]
    left_out = f"{len(starts) - fitting} of {counted(len(starts), 'rank')}"
    return "\n".join(shown), f"{left_out} not shown; {advice}."
