"""Page of simulated collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from collectives.timing.assumptions import AUTO
from testbed.output.table import percent, seconds, spell_size
from testbed.pages.page import Plot
from testbed.pages.plots.lines import FLOOR, lines
from testbed.pages.plots.load import link_load

if TYPE_CHECKING:
    from testbed.studies.simulation import Simulated, SimulationRequest


def simulation_answer(results: Sequence[Simulated]) -> str:
    """Return in a sentence what *results* come to."""
    best = min(results, key=lambda own: own.run.seconds)
    if len(results) == 1:
        run = best.run
        limit = ""
        if best.has_links and (link := run.links.bottleneck):
            limit = f"; the fullest link, {link.name}, is {percent(link.utilisation)} full"
        above = f", {best.above_floor:.2f} times the floor" if best.above_floor is not None else ""
        return f"It takes {seconds(run.seconds)}{above}{limit}."
    largest = max(own.run.nbytes for own in results)
    own = sorted((own for own in results if own.run.nbytes == largest), key=lambda own: own.run.seconds)
    rest = f"; {own[-1].name}, the slowest, {seconds(own[-1].run.seconds)}" if len(own) > 1 else ""
    best = own[0]
    name = f"auto ({best.run.algorithm})" if best.name == AUTO else best.name
    return f"At {spell_size(largest)} {name} is fastest, with {seconds(best.run.seconds)}{rest}."


def simulation_plots(request: SimulationRequest, results: Sequence[Simulated]) -> list[Plot]:
    """Return time and bandwidth over sizes, or of one size the load of the links."""
    if len({own.run.nbytes for own in results}) > 1:
        return [_over_sizes(results, "time"), _over_sizes(results, "bus bandwidth")]
    own = min(results, key=lambda own: own.run.seconds)
    drawn = link_load(own.run.links, request.topology) if own.has_links else None
    if drawn is None:
        return []
    note = (
        "The half of a line at a vertex is what leaves it. Utilisation: bytes over what the link could have "
        f"carried in {seconds(own.run.seconds)}."
    )
    return [Plot(drawn, f"Load of the links under {own.name}", note)]


def _over_sizes(results: Sequence[Simulated], what: str) -> Plot:
    named: dict[str, list[tuple[float, float]]] = {}
    if is_time := what == "time":
        named[FLOOR] = sorted({(own.run.nbytes, own.run.floor_seconds) for own in results})
    for own in results:
        value = own.run.seconds if is_time else own.run.busbw / 1e9
        named.setdefault(own.name, []).append((own.run.nbytes, value))
    drawn = lines(
        named,
        x="size of the buffer",
        y="time" if is_time else "bus bandwidth (GB/s)",
        log_y=is_time,
        spell_x=lambda size: spell_size(int(size)),
        spell_y=seconds if is_time else "{:.4g} GB/s".format,
    )
    return Plot(drawn, what.capitalize())
