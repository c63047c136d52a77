"""Times of a collective: on a terminal, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.benchmarking.benchmark import BenchRequest, Result, TransportName, spell
from testbed.options import evidence
from testbed.output.folder import document
from testbed.output.table import counted
from testbed.report.times import LEGEND, fastest_table, nccl_table, time_tables

if TYPE_CHECKING:
    from rich.console import Console

    from collectives.catalogue.admission import Evidence


def bench_document(request: BenchRequest, result: Result) -> dict[str, Any]:
    """Return *result* of *request* as ``--json`` prints it."""
    return document(
        method=result.method,
        model="; ".join(result.models),
        topologies={topology.name: topology.digest() for topology in result.topologies},
        transport=request.transport.value,
        transport_model=None if request.assumed is None else request.assumed.software.transport.name,
        assumptions=request.assumptions,
        ranks=request.num_ranks,
        collective=request.collective,
        rows=[row.as_json() for row in result.rows],
        refused=[{"algorithm": own.algorithm, "reason": own.reason} for own in result.refusals],
        **evidence.as_json(_proved(request)),
    )


def print_bench(console: Console, request: BenchRequest, result: Result) -> None:
    """Print *result* of *request*: in the columns of nccl-tests, or algorithms side by side."""
    if len({row.algorithm for row in result.rows}) == 1:
        console.print(nccl_table(result.rows))
    else:
        console.print(title(request, result), style="bold", markup=False)
        for shown in time_tables(result.rows, console.width):
            console.print()
            console.print(shown)
        console.print()
        console.print(fastest_table(result.rows))
        console.print()
        console.print(LEGEND, style="dim", markup=False)
    console.print()
    for refusal in result.refusals:
        console.print(f"Left out: {refusal}.", markup=False)
    for model in result.models:
        console.print(f"{model}.", style="dim", markup=False)
    for one in _proved(request):
        console.print(f"{one}.", style="dim", markup=False)


def _proved(request: BenchRequest) -> list[Evidence]:
    """Return what was proved of the candidates, which know their nodes already."""
    programs = [own.algorithm for own in request.candidates if own.algorithm is not None]
    return evidence.evidence_for(programs, [(request.num_ranks, request.num_ranks)], request.collective)


def title(request: BenchRequest, result: Result) -> str:
    """Return what was timed, where, and how, in a line."""
    where = result.topologies[0].name if request.transport is TransportName.SIM else request.transport.value
    what = spell(request.collective).capitalize()
    ranks = counted(request.num_ranks, "rank")
    return f"{what} on {where}, {ranks}, {result.method[0]}"
