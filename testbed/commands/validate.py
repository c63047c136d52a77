"""``testbed validate``: predictions held against measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from testbed.commands import validations
from testbed.errors import UsageError, reporting_errors
from testbed.options.annotations import HtmlFile
from testbed.options.arguments import MAX_RANKS

EXAMPLES = """\b
Examples:
  testbed validate
  testbed validate --table rows.csv --network dgx-h100
  testbed validate --training --document docs/truth.md
  testbed validate --table nccl-tests.log --network mine.toml --json
  testbed calibrate --device --output my_cpu.toml && testbed validate --device my_cpu.toml
  sudo testbed validate --shaped examples/networks/shaped/*.toml
  sudo testbed validate --shaped --incast --document docs/truth.md
"""


@reporting_errors
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Network files, for --shaped.")
    ] = None,
    shaped: Annotated[
        bool,
        typer.Option(
            "--shaped",
            help="Build the network of each FILE on this machine (root, iproute2), and measure what was "
            "predicted for it.",
        ),
    ] = False,
    incast: Annotated[
        bool,
        typer.Option(
            "--incast",
            help="--shaped: instead of FILEs, a switch with one queue before each port, and what flows that "
            "end in one port get of it.",
        ),
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="--shaped: TCP's shares and software costs, as testbed calibrate found them; by default "
            "those of a plain network that is built and measured first.",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="--shaped: where predictions, rows and a picture are left."),
    ] = Path("results/validate"),
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
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="--table: on how many ranks, where it does not say."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_RANKS, help="--table: on how many nodes, where it does not say."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="Predict steps of three models on this device, and measure them here."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, max=1024, help="--device: threads of the processor that the file is of.")
    ] = 1,
    training: Annotated[
        bool,
        typer.Option(
            "--training",
            help="Lost efficiency of published trainings, on one node and several.",
        ),
    ] = False,
    scripts: Annotated[
        bool,
        typer.Option(
            "--scripts",
            help="Published trainings of one node, from plain scripts on virtual GPUs; takes many minutes.",
        ),
    ] = False,
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help="--device: where predictions stand before measuring.")
    ] = Path("predictions.json"),
    into: Annotated[
        Path | None,
        typer.Option("--document", metavar="FILE", help="Renew this command's section in a Markdown file."),
    ] = None,
    html: HtmlFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Hold predictions against measurements: what was predicted, what was measured, and how far apart.

    Alone: the networks that ship, against the published measurements that ship and that no calibration has
    seen, and against themselves; it ends with 1 where one contradicts itself. --table: a network against a
    table of yours. --training: what published trainings lose to scaling. --scripts: the speed of published
    trainings, from scripts that are run without data. --device: training steps on this
    machine's processor against its device file. --shaped: networks that are built here, each host a network
    namespace, each link held to its rate by a token bucket; predictions are written to a file, whose
    SHA-256 is printed, before anything is measured, and nothing is left behind. --shaped --incast: a switch
    whose ports have one queue for all flows, against the fabric ethernet-tcp, in about five minutes.
    """
    from testbed.pages import Delivery

    delivery = Delivery(as_json, html)
    delivery.check()
    if incast and (not shaped or files or calibration is not None):
        raise UsageError("--incast goes with --shaped alone: it builds a switch of its own, of no file")
    if incast:
        validations.of_incast(into, delivery)
        return
    if shaped:
        if not files:
            raise UsageError(
                "--shaped: name at least one network file, such as examples/networks/shaped/*.toml"
            )
        validations.of_shaped(files, calibration, output, into, delivery)
        return
    if files:
        raise UsageError(f"{files[0]}: network files go with --shaped, which builds and measures them")
    if scripts:
        if training or device is not None or table_file is not None or network is not None:
            raise UsageError(
                "--scripts judges trainings that ship; leave out --training, --device, --table, --network"
            )
        validations.of_scripts(into, delivery)
        return
    if training:
        if device is not None or table_file is not None or network is not None:
            raise UsageError("--training judges trainings that ship; leave out --device, --table, --network")
        validations.of_trainings(into, delivery)
        return
    if device is not None:
        if table_file is not None or network is not None:
            raise UsageError("--device judges a device file, and --table a network: name one of them")
        validations.of_device(device, threads, predictions, into, delivery)
        return
    if (table_file is None) != (network is None):
        raise UsageError("--table FILE and --network NAME|FILE go together: what is judged, and by what")
    if table_file is not None and network is not None:
        validations.of_table(table_file, network, collective, ranks, nodes, delivery)
        return
    validations.of_presets(into, delivery)
