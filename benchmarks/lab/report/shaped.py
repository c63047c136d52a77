"""Validations on shaped networks, on a terminal, as JSON and as a section of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from benchmarks.lab.document import Section
from benchmarks.lab.shaped.rows import Errors, Row, by_family
from benchmarks.lab.shaped.validation import Validation
from testbed.output.folder import document
from testbed.output.table import counted, percent, seconds, table
from testbed.truth.calibration.calibration import Calibration

MODEL = (
    "predicted: events on the links at the rates of the file, TCP's shares and software costs of the "
    "calibration, transport model gloo; measured: median over repetitions of the slowest host, all hosts "
    "beginning at one moment; error: predicted / measured - 1"
)


CAUSES = (
    "Where the model fails, and why:",
    "",
    "- **Gloo's own all-to-all** has no one time. A rank posts each send before the receive that would "
    "release its peer's message, and which message waits for which depends on the order in which processes "
    "begin, which nothing here decides: its repetitions lie up to a half apart. One order stands for all "
    "(`collectives/algorithms/gloo/all_to_all.py`); it was chosen among variants by rows of eight of "
    "the example networks, so these rows do not judge it.",
    "- **64 KiB and below** is software: hosts share the processors of one machine, so what a message costs "
    "grows with the hosts that are awake at once, and the calibration knows one cost.",
    "- **Torch's reduce-scatter of 64 KiB among six and more hosts** takes two to three times what is "
    "predicted, though the all-reduce of which it consists does not; the cause is not known.",
    "- **A step with our programs** goes on when the rank calls; its calls are those of the recorded "
    "profile, and real ones come a little earlier or later.",
)


def as_document(found: Sequence[Validation], calibration: Calibration) -> dict[str, Any]:
    """Return *found* as a result document."""
    rows = _rows(found)
    errors = Errors.of(rows)
    return document(
        method=["simulated", "measured"],
        model=MODEL,
        topologies={one.network: one.topology.digest() for one in found},
        calibration=calibration.as_json(),
        median_error=errors.median_error,
        worst_error=errors.worst_error,
        worst_error_beyond_spread=errors.worst_beyond_spread,
        small_median_error=errors.small_median_error,
        rows=[row.as_json() for row in rows],
        families={name: asdict(own) for name, own in by_family(rows).items()},
        networks=[
            {
                "network": one.network,
                "predictions_sha256": one.predictions,
                "unbuilt": list(one.unbuilt),
                **asdict(Errors.of(one.rows)),
                "cut": {
                    "case": one.cut.case,
                    "predicted": one.cut.predicted,
                    "measured": {str(host): said for host, said in one.cut.measured.items()},
                    "holds": one.cut.holds,
                },
            }
            for one in found
        ],
    )


def print_report(console: Console, found: Sequence[Validation], calibration: Calibration) -> None:
    """Print *found*: the rows of each network, then the errors by family."""
    for one in found:
        console.print(f"{one.network}", style="bold", markup=False)
        console.print(f"predictions: SHA-256 {one.predictions}", style="dim", markup=False, soft_wrap=True)
        heads = ("case", "predicted", "measured", "spread", "error")
        console.print(table(heads, [_cells(row) for row in one.rows]))
        console.print(f"{_spell_cut(one)}", markup=False, soft_wrap=True)
        for note in one.unbuilt:
            console.print(f"Not built: {note}.", markup=False, soft_wrap=True)
        console.print()
    console.print("By family", style="bold")
    columns = ("family", "rows", "median\nfrom 512 KiB", "worst", "beyond\nspread", "median\nbelow")
    rows = _rows(found)
    cells = [(name, *_error_cells(errors)) for name, errors in by_family(rows).items()]
    console.print(table(columns, [*cells, ("all", *_error_cells(Errors.of(rows)))]))
    console.print()
    console.print(f"Calibration: {calibration.name}. {MODEL}.", style="dim", markup=False)


def section(found: Sequence[Validation], calibration: Calibration) -> Section:
    """Return what a document says of *found*."""
    rows = _rows(found)
    lines = [
        "Written by `python -m benchmarks.lab.shaped`. Hosts are network namespaces, links are held to their "
        "rates by token buckets (htb), in which each pair of hosts has a fair part: a switch with one queue "
        "for all is not covered. What is measured "
        f"is torch over Gloo and our programs over it: {counted(len(rows), 'row')} on "
        f"{counted(len(found), 'network')}, to which no constant was fitted. {MODEL[0].upper()}{MODEL[1:]}.",
        "",
        "| network | rows | median error from 512 KiB | worst | worst beyond spread | median below 512 KiB |",
        "|---|--:|--:|--:|--:|--:|",
        *(f"| {one.network} | {' | '.join(_error_cells(Errors.of(one.rows)))} |" for one in found),
        f"| **all** | {' | '.join(_error_cells(Errors.of(rows)))} |",
        "",
        "| what | rows | median error from 512 KiB | worst | worst beyond spread | median below 512 KiB |",
        "|---|--:|--:|--:|--:|--:|",
        *(f"| {name} | {' | '.join(_error_cells(own))} |" for name, own in by_family(rows).items()),
        "",
        "The ten rows that are furthest off:",
        "",
        "| network | case | predicted | measured | spread | error |",
        "|---|---|--:|--:|--:|--:|",
        *(
            f"| {row.prediction.network} | {' | '.join(_cells(row))} |"
            for row in sorted(rows, key=lambda row: -abs(row.error))[:10]
        ),
        "",
        "A link that is lost in the middle of a collective:",
        "",
        *(f"- {one.network}: {_spell_cut(one)}" for one in found),
        "",
        *CAUSES,
        "",
        f"Calibration: {calibration.name}, {calibration.origin.network}, {calibration.origin.measured}. "
        "SHA-256 of the predictions, which were written down before the measurement: "
        + ", ".join(f"{one.network} `{one.predictions[:16]}`" for one in found)
        + ".",
    ]
    return Section.of_lines("shaped", "Shaped networks", lines)


def _rows(found: Sequence[Validation]) -> list[Row]:
    return [row for one in found for row in one.rows]


def _cells(row: Row) -> tuple[str, ...]:
    one = row.prediction
    return (
        one.case,
        seconds(one.predicted_seconds),
        seconds(row.measured_seconds),
        percent(row.spread),
        f"{100 * row.error:+.1f} %",
    )


def _error_cells(errors: Errors) -> tuple[str, ...]:
    figures = (
        errors.median_error,
        errors.worst_error,
        errors.worst_beyond_spread,
        errors.small_median_error,
    )
    return (str(errors.num_rows), *("–" if figure is None else percent(figure) for figure in figures))


def _spell_cut(one: Validation) -> str:
    cut, num_hosts = one.cut, one.topology.num_ranks
    foretold = "messages are lost" if cut.predicted is not None else "nothing is lost"
    failed = f"{len(cut.measured)} of {num_hosts} hosts failed" if cut.measured else "no host failed"
    verdict = "as foretold" if cut.holds else "not as foretold"
    return f"{cut.case}: foretold that {foretold}; {failed}, {verdict}."
