"""Validations on shaped networks: rows, errors by network and by family, and links that were lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.lab.shaped.rows import Row, by_family, figures
from benchmarks.lab.shaped.validation import Validation
from testbed.calibration.confidence import Errors, far_off, signed, worst
from testbed.calibration.live.calibration import Calibration
from testbed.output.table import counted, percent, seconds
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

MODEL = (
    "predicted: events on the links at the rates of the file, TCP's shares and software costs of the "
    "calibration, transport model gloo; measured: median over repetitions of the slowest host, all hosts "
    "beginning at one moment; error: predicted / measured - 1"
)
WORST = 10
HEADS = ("case", "predicted", "measured", "spread", "error")
ERROR_HEADS = ("rows", "median\nfrom 512 KiB", "worst", "beyond\nspread", "median\nbelow")
COLUMNS = (
    *asked("network", "family", "case", "collective", "algorithm", "nbytes", "ranks"),
    *found("predicted_seconds", "measured_seconds", "spread", "error", "seconds"),
)
NETWORKS = (
    *asked("network"),
    *found("predictions_sha256", "unbuilt", "num_rows", "median_error", "worst_error", "worst_beyond_spread"),
    *found("small_median_error", "cut"),
)


def shaped_result(validations: Sequence[Validation], calibration: Calibration) -> Result:
    """Return what was predicted of networks with *calibration*, and what came of them."""
    rows = _rows(validations)
    named = {"worst_beyond_spread": "worst_error_beyond_spread"}
    names = ", ".join(one.network for one in validations)
    return Result(
        question=f"How far are predictions from networks that were built here ({names})?",
        answer=far_off(Errors.of(rows)),
        method=["simulated", "measured"],
        model=MODEL,
        topologies={one.network: one.topology.digest() for one in validations},
        assumptions={"calibration": calibration.name},
        rows=Rows(COLUMNS, [row.as_json() for row in rows]),
        tables={"networks": Rows(NETWORKS, [_network(one) for one in validations])},
        asked=("calibration",),
        body={
            "calibration": calibration.as_json(),
            **{named.get(name, name): value for name, value in figures(rows).items() if name != "num_rows"},
            "families": {name: figures(own) for name, own in by_family(rows).items()},
        },
        parts=list(_parts(validations, calibration)),
    )


def _network(one: Validation) -> Mapping[str, object]:
    return {
        "network": one.network,
        "predictions_sha256": one.predictions,
        "unbuilt": list(one.unbuilt),
        **figures(one.rows),
        "cut": {
            "case": one.cut.case,
            "predicted": one.cut.predicted,
            "measured": {str(host): said for host, said in one.cut.measured.items()},
            "holds": one.cut.holds,
        },
    }


def _parts(validations: Sequence[Validation], calibration: Calibration) -> Iterator[Part]:
    for one in validations:
        yield Text(title=one.network)
        yield quiet(f"predictions: SHA-256 {one.predictions}", gap=False)
        yield Grid(HEADS, [_cells(row) for row in one.rows], gap=False)
        yield Text([_spell_cut(one), *(f"Not built: {note}." for note in one.unbuilt)], gap=False)
    yield Text(title="By family")
    yield _errors("family", {**by_family(_rows(validations)), "all": _rows(validations)})
    yield quiet(f"Calibration: {calibration.name}. {MODEL}.")


def shaped_section(validations: Sequence[Validation], calibration: Calibration) -> Iterator[Part]:
    """Yield what a document says of *validations*."""
    rows = _rows(validations)
    yield Text([f"{counted(len(rows), 'row')} on {counted(len(validations), 'network')}."])
    yield _errors("network", {**{one.network: one.rows for one in validations}, "**all**": rows})
    yield _errors("what", by_family(rows))
    cells = [(row.prediction.network, *_cells(row)) for row in worst(rows, WORST)]
    yield Grid(("network", *HEADS), cells, text_columns=2, title=f"The {WORST} rows that are furthest off")
    yield Text(["A link that is lost in the middle of a collective:"])
    yield Text([f"- {one.network}: {_spell_cut(one)}" for one in validations])
    digests = ", ".join(f"{one.network} `{one.predictions[:16]}`" for one in validations)
    yield Text(
        [
            f"Calibration: {calibration.name}, {calibration.origin.network}, {calibration.origin.measured}. "
            f"SHA-256 of the predictions, which were written down before the measurement: {digests}."
        ]
    )


def _rows(validations: Sequence[Validation]) -> list[Row]:
    return [row for one in validations for row in one.rows]


def _errors(what: str, groups: Mapping[str, Sequence[Row]]) -> Grid:
    """Return the errors of *groups* of rows, each of which is a *what*."""
    shown = ("median_error", "worst_error", "worst_beyond_spread", "small_median_error")
    cells = []
    for name, rows in groups.items():
        own = figures(rows)
        errors = ("–" if own[key] is None else percent(own[key]) for key in shown)
        cells.append((name, str(len(rows)), *errors))
    return Grid((what, *ERROR_HEADS), cells, gap=False)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.prediction.case,
        seconds(row.predicted),
        seconds(row.measured),
        percent(row.spread),
        signed(row.error),
    )


def _spell_cut(one: Validation) -> str:
    cut, num_hosts = one.cut, one.topology.num_ranks
    foretold = "messages are lost" if cut.predicted is not None else "nothing is lost"
    failed = f"{len(cut.measured)} of {num_hosts} hosts failed" if cut.measured else "no host failed"
    verdict = "as foretold" if cut.holds else "not as foretold"
    return f"{cut.case}: foretold that {foretold}; {failed}, {verdict}."
