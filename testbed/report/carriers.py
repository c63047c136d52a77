"""Carriers of buckets, as a table and as rows, and what would be faster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from testbed.output.table import spell_size
from testbed.result import Grid, Rows, asked, found
from testbed.studies.carriers import Carrier

COLUMNS = (
    *asked("network", "ranks", "collective", "smallest_bytes", "largest_bytes"),
    *found("algorithm", "channels", "cards", "cards_of", "faster", "vendor"),
)

CHANNELS = re.compile(r",?channels=\d+")
"""The parameter that has a column of its own."""

MOST_RANKS = 4
"""World sizes that are listed one by one; of so many, the first and the last."""


def carrier_rows(carriers: Sequence[Carrier]) -> Rows:
    """Return a row for each of *carriers*."""
    return Rows(COLUMNS, [asdict(one) for one in carriers])


def carrier_table(carriers: Sequence[Carrier]) -> Grid | None:
    """Return what carries the buckets, world sizes that are alike in one line; None where nothing is sent."""
    lines: dict[tuple[str, ...], list[Carrier]] = {}
    for one in carriers:
        lines.setdefault((one.network, one.collective, _sizes(one), *_cells(one)), []).append(one)
    if not lines:
        return None
    several = len({one.collective for one in carriers}) > 1
    columns = ["network", "ranks", *(["collective"] if several else []), "buckets", "algorithm"]
    vendors = any(one.vendor for one in carriers)
    columns += ["NCCL's own"] if vendors else []
    rows, shown = [], ""
    for (network, collective, sizes, algorithm, vendor, *figures), own in lines.items():
        ranks = [one.ranks for one in own]
        spelt = ", ".join(map(str, ranks)) if len(ranks) < MOST_RANKS else f"{ranks[0]} to {ranks[-1]}"
        lead = [network if network != shown else "", spelt, *([collective] if several else []), sizes]
        rows.append([*lead, algorithm, *([vendor] if vendors else []), *figures])
        shown = network
    return Grid(
        [*columns, "channels", "cards"], rows, text_columns=len(columns), title="What carries the buckets"
    )


def faster_lines(carriers: Sequence[Carrier]) -> Iterator[str]:
    """Yield what would be faster than what is in use, a line for the world sizes of which that is said."""
    alike: dict[tuple[str, str, str, str], list[Carrier]] = {}
    for one in carriers:
        if one.faster is not None:
            key = one.network, one.collective, one.algorithm, one.faster.algorithm
            alike.setdefault(key, []).append(one)
    for (network, collective, algorithm, faster), own in alike.items():
        gains = sorted(one.faster.seconds_now / one.faster.seconds for one in own if one.faster is not None)
        times = " to ".join(dict.fromkeys(f"{gain:.2g}" for gain in (gains[0], gains[-1])))
        largest = sorted(one.largest_bytes for one in own)
        sizes = " to ".join(dict.fromkeys(map(spell_size, (largest[0], largest[-1]))))
        ranks = ", ".join(map(str, dict.fromkeys(one.ranks for one in own)))
        yield (
            f"Faster on {network}, {ranks} ranks: {faster}, {times} times as fast as {algorithm} for "
            f"{collective} of {sizes} (--algorithm auto takes it)"
        )


def _sizes(carrier: Carrier) -> str:
    least, most = spell_size(carrier.smallest_bytes), spell_size(carrier.largest_bytes)
    if least == most:
        return least
    number, unit = least.split()
    return f"{number if most.endswith(f' {unit}') else least} to {most}"


def _cells(carrier: Carrier) -> tuple[str, str, str, str]:
    """Return the program, what the vendor would run, channels, and cards of a node."""
    name = CHANNELS.sub("", carrier.algorithm).rstrip(":,")
    cards = "–" if carrier.cards is None else f"{carrier.cards} of {carrier.cards_of}"
    return name, carrier.vendor or "–", str(carrier.channels), cards
