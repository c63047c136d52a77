"""Report of simulated collectives: as a document, and as it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from testbed.output.folder import document
from testbed.output.table import spell_size
from testbed.report.simulated import (
    assumptions,
    carried_on,
    comparison,
    facts_of,
    links_table,
    model_of,
    title,
)

if TYPE_CHECKING:
    from rich.console import Console

    from collectives.catalogue.admission import Evidence
    from testbed.studies.simulation import Simulated, SimulationRequest


def simulation_document(
    request: SimulationRequest, results: Sequence[Simulated], *, interrupted: bool = False
) -> dict[str, Any]:
    """Return *results* as a result document."""
    topology, placement = request.topology, request.placement
    return document(
        method="simulated" if request.timed_by == "links" else "closed form",
        model=model_of(request),
        seed=next((one.seed for one in request.conditions if hasattr(one, "seed")), None),
        topologies={topology.name: topology.digest()},
        placement=placement if isinstance(placement, str) else list(placement),
        interrupted=interrupted,
        assumptions=request.assumptions,
        rows=[own.as_json(with_links=request.links) for own in results],
    )


def print_simulation(
    console: Console,
    request: SimulationRequest,
    results: Sequence[Simulated],
    *,
    all_links: bool,
    proved: Sequence[Evidence],
) -> None:
    """Print one run as facts, several as a table; then links, if they are wanted, and what is assumed."""
    console.print(title(request, results), style="bold", markup=False, soft_wrap=True)
    console.print()
    alone = len(request.entries) * len(request.sizes) == 1
    if alone:
        for name, text in facts_of(results[0]).items():
            console.print(f"{name:10}  {text}", markup=False, soft_wrap=True)
    else:
        console.print(comparison(results))
        for line in carried_on(results):
            console.print(line, markup=False, soft_wrap=True)
    for own in results if request.links else ():
        _print_links(console, own, alone=alone, everything=all_links)
    console.print(f"\n{assumptions(request)}", style="dim", markup=False)
    for one in proved:
        console.print(f"{one}.", style="dim", markup=False)


def _print_links(console: Console, own: Simulated, *, alone: bool, everything: bool) -> None:
    heading = "" if alone else f"{own.name}, {spell_size(own.run.nbytes)}"
    console.print()
    if heading:
        console.print(heading, style="bold", markup=False)
    if not own.has_links:
        console.print(f"Links: {own.run.no_links}.", markup=False, soft_wrap=True)
        return
    shown, note = links_table(own, everything=everything)
    console.print(shown)
    if note:
        console.print(f"{note[0].upper()}{note[1:]}.", style="dim", markup=False)
