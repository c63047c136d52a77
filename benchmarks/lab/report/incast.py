"""Measurements of incast, on a terminal, as JSON and as a section of a document."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console

from benchmarks.lab.document import Section
from benchmarks.lab.shaped.incast import FABRIC, RATE_MBPS, REPETITIONS, IncastRow
from benchmarks.lab.shaped.plan import LARGEST
from benchmarks.lab.shaped.shaping import COMMON
from testbed.output.folder import document
from testbed.output.table import seconds, spell_size, table

MODEL = (
    f"predicted: links at their rates less headers, ports of the fabric {FABRIC}; collectives by events, "
    f"transport model gloo; measured: median of {REPETITIONS} repetitions, all hosts beginning at one "
    "moment; error: predicted / measured - 1"
)
HEADS = (
    *("what", "flows", "bytes", "got", "timeouts"),
    *("predicted", "measured", "error", "links\nalone"),
)
MARKS = {"calibrates": " *", "judges": "", "elsewhere": " °"}

CAUSES = (
    "Where the model fails, and why:",
    "",
    "- **Many to one.** Where senders have nobody else to send to, nothing is lost at these rates: the port "
    "is kept full by those that do not wait for a time-out. The table counts flows and does not know what "
    "else their senders do. On faster links a time-out takes as long and costs more, as the last rows show; "
    "at 1 Gbit/s up to 90 % is lost (Vasudevan et al., SIGCOMM 2009).",
    "- **Trains.** Hosts that send frame by frame lose nothing of an exchange, even where ports queue less: "
    "trains of up to 64 KiB, which Linux sends, are what fills them. Here a train reaches a port at once, "
    "where a link would spread it over its time on the wire.",
    "- **One flow to a port.** Rings and halving-doubling over Gloo take longer than predicted, by up to a "
    "third at 1 MiB, and no time-out is among them: 16 hosts share two processors, which no model here has.",
    "- **Rates.** Time-outs of 200 ms and more do not shrink with faster links, so flows that run into them "
    "lose more there than the table says. Nothing was measured at the rates of real cards.",
)


def incast_document(rows: Sequence[IncastRow]) -> dict[str, Any]:
    """Return *rows* as a result document."""
    return document(
        method=["simulated", "measured"],
        model=MODEL,
        fabric=FABRIC,
        port_queue=COMMON.port_queue,
        median_error=median_error(rows),
        links_median_error=_median(abs(row.links_error) for row in _judging(rows)),
        rows=[row.as_json() for row in rows],
    )


def median_error(rows: Sequence[IncastRow]) -> float | None:
    """Return the median of the absolute errors of rows that judge; None: there are none."""
    return _median(abs(row.error) for row in _judging(rows))


def print_incast(console: Console, rows: Sequence[IncastRow]) -> None:
    """Print *rows*."""
    console.print(table(HEADS, [_cells(row) for row in rows]))
    console.print(
        f"* calibrates the table; ° is not as the table assumes.  {MODEL}.", style="dim", markup=False
    )


def incast_section(rows: Sequence[IncastRow]) -> Section:
    """Return what a document says of *rows*."""
    alone = _median(abs(row.links_error) for row in _judging(rows)) or 0.0
    judged = 100 * (median_error(rows) or 0.0)
    lines = [
        f"Written by `python -m benchmarks.lab.shaped --incast`. A switch of {LARGEST} hosts at "
        f"{RATE_MBPS} Mbit/s has one queue of {spell_size(COMMON.port_queue or 0)} before each port, "
        "for all flows that leave by it; hosts are as Linux makes them. In an *exchange* k + 1 hosts "
        "all send to each other at once, over plain sockets. "
        "Flows: that end in a port; bytes: that end in one, of collectives (over Gloo) "
        "the buffer; got: the part of what links alone give. Rows with * are of what the fabric's table was "
        "fitted to, in earlier runs; rows with ° are of other queues, or of hosts that send frame by frame, "
        "and show what it depends on; all others judge it: median error "
        f"{judged:.1f} %, of links alone {100 * alone:.1f} %. {MODEL[0].upper()}{MODEL[1:]}.",
        "",
        f"| {' | '.join(' '.join(head.split()) for head in HEADS)} |",
        f"|---|{'--:|' * (len(HEADS) - 1)}",
        *(f"| {' | '.join(_cells(row))} |" for row in rows),
        "",
        *CAUSES,
    ]
    return Section.of_lines("incast", "Flows that end in one port", lines)


def _judging(rows: Sequence[IncastRow]) -> list[IncastRow]:
    return [row for row in rows if row.case.role == "judges"]


def _median(values: Any) -> float | None:
    held = list(values)
    return median(held) if held else None


def _cells(row: IncastRow) -> tuple[str, ...]:
    case = row.case
    return (
        f"{case.name}{MARKS[case.role]}",
        str(case.flows),
        spell_size(case.nbytes),
        f"{row.part:.2f}",
        f"{row.times.timeouts:.1f}",
        seconds(row.predicted_seconds),
        seconds(row.measured_seconds),
        f"{100 * row.error:+.1f} %",
        f"{100 * row.links_error:+.1f} %",
    )
