"""Processes of this machine that measure, one for each rank: what they are told, and what rank 0 tells."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import typer

from testbed.benchmarking.benchmark import BenchRequest, TransportName
from testbed.benchmarking.candidates import Refusal, choose_candidates
from testbed.benchmarking.measure import Row
from testbed.benchmarking.measured_run import measure_processes
from testbed.errors import reporting_errors
from testbed.scripts.launch import RankExitError, launch, own_module

TOLD = (
    "transport", "num_ranks", "collective", "counts", "dtype", "iterations", "warmup", "timeout",
    "registered",
)  # fmt: skip
"""Of a request, what a rank is told; candidates it finds by their names."""
ORDER, TAKEN = "order.json", "taken.json"


def measure_on_ranks(
    request: BenchRequest, algorithm: str | None, port: int | None
) -> tuple[list[Row], list[Refusal]]:
    """Measure by a process for each rank, which are started and end here.

    Args:
        request: what is to be timed.
        algorithm: names of its candidates, as they were written.
        port: where the ranks meet; by default one that is free.

    Raises:
        RankExitError: a rank failed and has not said why.
        typer.Exit: it has said so itself.
    """
    told = {name: getattr(request, name) for name in TOLD}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ORDER).write_text(json.dumps({"algorithm": algorithm, "request": told}), "utf-8")
        try:
            launch([*own_module(__spec__.name), folder], request.num_ranks, port=port)
        except RankExitError as error:
            if not error.said:
                raise
            raise typer.Exit(error.exit_code) from None
        taken = json.loads((Path(folder) / TAKEN).read_text("utf-8"))
    return [Row(**own) for own in taken["rows"]], [Refusal(**own) for own in taken["refusals"]]


def measure_as_rank(request: BenchRequest) -> tuple[list[Row], list[Refusal]] | None:
    """Measure as one of the processes, which meet on the loopback if that is where they were sent.

    On ranks other than 0 it returns None.
    """
    from testbed.scripts.loopback import listen_on_loopback

    listen_on_loopback()
    return measure_processes(request)


@reporting_errors
def main(folder: Path) -> None:
    """Do what the file in *folder* says; rank 0 leaves what was measured beside it."""
    order = json.loads((folder / ORDER).read_text("utf-8"))
    told = order["request"]
    transport = TransportName(told.pop("transport"))
    candidates, _ = choose_candidates(
        order["algorithm"],
        told["collective"],
        told["num_ranks"],
        ranks_per_node=told["num_ranks"],
        native=True,
        transport=transport.value,
    )
    told["counts"] = tuple(told["counts"])
    taken = measure_as_rank(BenchRequest(transport=transport, candidates=tuple(candidates), **told))
    if taken is not None:
        rows, refusals = ([asdict(own) for own in part] for part in taken)
        (folder / TAKEN).write_text(json.dumps({"rows": rows, "refusals": refusals}), "utf-8")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
