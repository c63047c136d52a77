"""Links of a run, the fullest first, and those that are alike in one line."""

from __future__ import annotations

from collections.abc import Sequence

from collectives.timing.links import Links, LinkUse
from sim.units import format_bandwidth
from testbed.output.table import percent, seconds, spell_size
from testbed.plots.network_layout import spell_names
from testbed.result import Grid

TOP = 20
"""Links that are shown unless all are asked for."""

_NAMES = 36
_BAR = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def links_table(links: Links, *, everything: bool, gap: bool = True) -> tuple[Grid, str]:
    """Return the links of a run, the fullest first, and a note on those that are not shown.

    Links that are alike in all figures stand in one line, unless *everything* is wanted.
    """
    busiest, groups = links.busiest, alike_links(links, everything=everything)
    shown = groups[: None if everything else TOP]
    columns = ("link", "", "", "used", "saturated", "bytes", "bandwidth")
    result = Grid(columns, [link_cells(alike) for alike in shown], text_columns=3, gap=gap)
    notes = []
    if left := len(busiest) - sum(map(len, shown)):
        notes.append(f"{left} more links carry something: --all-links")
    if idle := len(links) - len(busiest):
        notes.append(f"nothing crosses {idle} of {len(links)} links")
    if links.saturated_ps is None:
        notes.append("how long links were full is not recorded by makespan, nor of very many messages")
    return result, "; ".join(notes)


def alike_links(links: Links, *, everything: bool = False) -> list[list[LinkUse]]:
    """Return the links that were used, the fullest first, those that are alike in all figures together.

    With *everything* each stands by itself.
    """
    groups: dict[object, list[LinkUse]] = {}
    for link in links.busiest:
        use = links[link]
        alike = use.name if everything else (use.nbytes, use.bandwidth, use.saturated_seconds)
        groups.setdefault(alike, []).append(use)
    return list(groups.values())


def link_cells(alike: Sequence[LinkUse]) -> list[str]:
    """Return the cells of links that are alike: names, number, bar, use, saturation, bytes, bandwidth."""
    use, full = alike[0], alike[0].saturated_seconds
    return [
        _names(alike),
        "" if len(alike) == 1 else f"×{len(alike)}",
        _bar(use.utilisation),
        percent(use.utilisation),
        "–" if full is None else seconds(full),
        spell_size(use.nbytes),
        bandwidth(use.bandwidth),
    ]


def _names(alike: Sequence[LinkUse]) -> str:
    """Return the names of links, runs of numbers drawn together, and not more than fit."""
    named = spell_names([use.name for use in alike]).split(", ")
    shown = named[:1]
    for name in named[1:]:
        if len(", ".join([*shown, name])) > _NAMES:
            return f"{', '.join(shown)}, …"
        shown.append(name)
    return ", ".join(shown)


def _bar(part: float) -> str:
    """Return a bar of *part* of its full length, to an eighth of a character."""
    eighths = round(min(part, 1.0) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return f"{'█' * whole}{_EIGHTHS[rest].strip()}".ljust(_BAR)


def bandwidth(bytes_per_second: float) -> str:
    """Return a bandwidth in words."""
    return format_bandwidth(round(bytes_per_second))
