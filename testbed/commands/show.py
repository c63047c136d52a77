"""``testbed show``: an algorithm's schedule, drawn as the grid of ranks and steps."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from collectives.formats.whole_file import write_whole
from testbed.errors import reporting_errors
from testbed.output.folder import check_writable, document
from testbed.output.table import print_json, stdout_console
from testbed.studies.proofs import MODEL, choose, root_of

if TYPE_CHECKING:
    from rich.console import Console

    from collectives import Algorithm, Proof
    from testbed.reference.description import Description

EXAMPLES = """\b
Examples:
  testbed show ring --ranks 4
  testbed show tree --collective broadcast --svg tree.svg
  testbed show my_algorithms.py:my_ring --ranks 4
"""

MAX_RANKS = 256

LEGEND = (
    "c>r sends chunk c to rank r; c+r reduces into chunk c what r sends; c<r overwrites chunk c by what r "
    "sends; c=s copies chunk s onto chunk c, c+=s reduces it in; 2-5 is a range of "
    "chunks, s0 the first chunk of scratch; · is nothing."
)


@reporting_errors
def show(
    algorithm: Annotated[
        str,
        typer.Argument(
            metavar="ALGORITHM|FILE.py:FUNCTION|FILE.xml|FILE.json",
            help="A shipped algorithm, a function in a file of your own, MSCCL XML or a schedule.",
        ),
    ],
    ranks: Annotated[int, typer.Option(min=1, max=MAX_RANKS, help="How many ranks.")] = 8,
    collective: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="By default all_reduce, or else the first it is shipped for."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the schedule as an SVG as well.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Draw who sends which chunk to whom, in which step, with the cost and the source.

    The schedule of a wrong program is drawn, too; the fault follows, with exit code 1.
    """
    from collectives import ProgramError, verify
    from testbed.reference.description import describe
    from testbed.reference.schedule import schedule_of
    from testbed.reference.schedule_svg import schedule_svg

    meant = choose([algorithm], collective)
    chosen = next((own for own in meant if own.collective == "all_reduce"), meant[0])
    root = root_of(chosen, ranks)
    if svg is not None:
        check_writable(svg)
    console = stdout_console(quiet=as_json)
    try:
        proof = verify(chosen, ranks, root=root)
    except ProgramError:
        with suppress(Exception):  # what is wrong with the program may also keep it from being drawn
            _print_grid(console, chosen, ranks)
        raise
    schedule = schedule_of(chosen, ranks)
    if svg is not None:
        write_whole(svg, schedule_svg(schedule))
    description = describe(chosen)
    if as_json:
        print_json(
            document(
                method="proved",
                model=MODEL,
                description=asdict(description),
                cost=asdict(proof),
                schedule=asdict(schedule),
            )
        )
        return
    others = [own.collective for own in meant if own is not chosen]
    _print_heading(console, proof, description, others)
    _print_grid(console, chosen, ranks)
    console.print(f"\n{LEGEND}", style="dim", markup=False)
    if svg is not None:
        console.print(f"\nDrawn in {svg}.", markup=False, soft_wrap=True)


def _print_heading(console: Console, proof: Proof, description: Description, others: list[str]) -> None:
    """Print what it is, how it works, what it costs and where it comes from."""
    from testbed.reference.description import plain

    print_line = partial(console.print, markup=False, soft_wrap=True)
    print_line(f"{proof.algorithm} {proof.collective}, {_count(proof.world_size, 'rank')}", style="bold")
    for paragraph in (description.summary, *description.idea):
        if paragraph:
            print_line(f"{fill(plain(paragraph), console.width)}\n")
    facts = {"cost": _cost(proof), "source": plain(description.source or "none given")}
    if description.parameters:
        facts["with"] = f"{', '.join(name for name, _ in description.parameters)} (NAME:parameter=value,…)"
    if others:
        facts["also"] = f"for {', '.join(others)}: --collective NAME"
    for name, text in facts.items():
        print_line(fill(f"{name:6}  {text}", console.width, subsequent_indent=" " * 8))
    print_line()


def _cost(proof: Proof) -> str:
    sent, bound = proof.max_bytes_sent_fraction, proof.min_bytes_sent_fraction
    compared = f", {sent / bound:.2f} times the lower bound" if bound else ""
    return (
        f"{_count(proof.num_steps, 'step')}, {_count(proof.num_messages, 'message')}; "
        f"the busiest rank sends {sent:.3f} of the buffer{compared} (proved)"
    )


def _print_grid(console: Console, algorithm: Algorithm, ranks: int) -> None:
    from collectives.program.render import draw

    grid, note = cut(draw(algorithm, ranks), console.width if console.is_terminal else None)
    console.print(grid, markup=False, soft_wrap=True)
    if note:
        console.print(f"\n{note}", style="dim", markup=False)


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
    left_out = f"{len(starts) - fitting} of {_count(len(starts), 'rank')}"
    return "\n".join(shown), f"{left_out} not shown; {advice}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
