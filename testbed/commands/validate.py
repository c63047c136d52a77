"""``testbed validate``: predictions held against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.output.folder import check_writable, document
from testbed.output.table import print_json, progress, stdout_console

EXAMPLES = """\b
Examples:
  testbed validate
  testbed validate --table rows.csv --network dgx-h100
  testbed validate --table nccl-tests.log --network mine.toml --json
  testbed calibrate --device --output my_cpu.toml && testbed validate --device my_cpu.toml
"""


@reporting_errors
def validate(
    table_file: Annotated[
        Path | None,
        typer.Option(
            "--table",
            metavar="FILE",
            help="Measured collectives: a log of nccl-tests, bench --json, or CSV; see --network.",
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="--table: the network that predicts them.")
    ] = None,
    collective: Annotated[
        str | None, typer.Option(metavar="NAME", help="--table: what was measured, where it does not say.")
    ] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="--table: on how many ranks, where it does not say.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="--table: on how many nodes, where it does not say.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="Predict steps of three models on this device, and measure them here."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="--device: threads of the processor that the file is of.")
    ] = 1,
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help="--device: where predictions stand before measuring.")
    ] = Path("predictions.json"),
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew this command's section in a Markdown file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Hold predictions against measurements: what was predicted, what was measured, and how far apart.

    Alone: the networks that ship, against the published measurements that ship and that no calibration has
    seen, and against themselves; it ends with 1 where one contradicts itself. --table: a network against a
    table of yours. --device: training steps on this machine's processor against its device file.
    """
    if device is not None:
        if table_file is not None or network is not None:
            raise UsageError("--device judges a device file, and --table a network: name one of them")
        _validate_device(device, threads, predictions, into, as_json=as_json)
        return
    if (table_file is None) != (network is None):
        raise UsageError("--table FILE and --network NAME|FILE go together: what is judged, and by what")
    if table_file is not None and network is not None:
        _validate_table(table_file, network, collective, ranks, nodes, as_json=as_json)
        return
    _validate_presets(into, as_json=as_json)


def _validate_table(
    path: Path, name: str, collective: str | None, ranks: int | None, nodes: int | None, *, as_json: bool
) -> None:
    from sim import load_network
    from testbed.report.published import print_table, table_document
    from testbed.truth.published.judging import judge
    from testbed.truth.published.tables import Said, read_table

    rows = read_table(path, Said(collective, ranks, nodes))
    network = load_network(name)
    with progress(len(rows)) as advance:
        judged, refused = judge(rows, network, advance)
    if not judged:
        raise UsageError(f"{name} predicts none of the {len(rows)} rows of {path}: {refused[0].reason}")
    if as_json:
        print_json(table_document(judged, refused, network.name, str(path)))
        return
    print_table(stdout_console(), judged, refused)


def _validate_device(name: str, threads: int, predictions: Path, into: Path | None, *, as_json: bool) -> None:
    from sim import load_device
    from testbed.report.device import print_validated, validated_document, validated_section
    from testbed.truth.computation.validation import number_of_tasks, validate_device
    from testbed.truth.document import renew

    described = load_device(name)
    for path in (predictions, into):
        if path is not None:
            check_writable(path)
    with progress(number_of_tasks()) as advance:
        found = validate_device(described, threads, predictions, advance)
    if into is not None:
        renew(into, validated_section(found))
    if as_json:
        print_json(validated_document(found, predictions))
        return
    print_validated(found, predictions)


def _validate_presets(into: Path | None, *, as_json: bool) -> None:
    from testbed.report.published import MODEL, presets_document, presets_section, print_presets
    from testbed.truth.document import renew
    from testbed.truth.published.presets import judge_presets

    if into is not None:
        check_writable(into)
    with progress() as advance:
        found = judge_presets(advance)
    if into is not None:
        renew(into, presets_section(found))
    if as_json:
        print_json(document(method=["closed form", "simulated"], model=MODEL, **presets_document(found)))
    else:
        print_presets(stdout_console(), found)
    if any(own.contradictions for own in found):
        raise typer.Exit(1)
