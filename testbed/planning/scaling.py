"""Scaling: points that differ in the world size, with strategies side by side, each a point of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from collectives.errors import NotSupportedError
from collectives.timing import Assumptions
from testbed.output.table import progress
from testbed.planning.cache import Cache
from testbed.planning.evaluation import AUTO, algorithm_of, assumed_at, topology_at
from testbed.planning.points import Point, description_of
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row
from testbed.planning.sweep import Item, as_they_are, sweep
from testbed.studies.carriers import Carrier, carriers_of
from testbed.tasks.bounds import Stop, bounded


def points_of_scaling(
    profiles: Iterable[str],
    networks: Iterable[str],
    strategies: Iterable[str],
    ranks: Sequence[int],
    *,
    bucket_cap_mb: float,
    algorithm: str | None = None,
    asked: Mapping[str, Any],
    strong: bool = False,
) -> list[Point]:
    """Return a point of each profile on each network, by each strategy and number of ranks, in this order.

    Args:
        profiles: what a rank computes, by name or file.
        networks: what it runs on, by name or file.
        strategies: when buckets are launched.
        ranks: world sizes.
        bucket_cap_mb: size of a bucket, in MiB.
        algorithm: of the all-reduce; None: that which goes by default on each network.
        asked: what is to be counted, by the names of `testbed.options.assumptions`; None is left as it is in
            a real run, or with ``ideal`` as on links alone.
        strong: whether the global batch is that of the fewest ranks, so that more of them compute less each;
            otherwise every rank computes what the profile says.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    ideal = bool(given.pop("ideal", False))
    timing, transport, device = (given.pop(name, None) for name in ("model", "transport_model", "device"))
    inefficiencies = given.pop("inefficiencies", () if ideal else ("all",))
    points = []
    for profile, network, strategy, num_ranks in product(profiles, networks, strategies, ranks):
        description = description_of(network)
        usual = "links" if ideal or description.fields.hardware is None else "library"
        points.append(
            Point(
                "step",
                profile,
                network,
                description.name,
                num_ranks,
                fewest=min(ranks) if strong else 0,
                strategy=strategy,
                bucket_cap_mb=bucket_cap_mb,
                algorithm=algorithm or DEFAULT,
                timing=timing or usual,
                transport=transport or ("ideal" if ideal else AUTO),
                inefficiencies=tuple(inefficiencies),
                software=tuple(given.items()),
                ideal=ideal,
                finds_link=False,
                device=device,
            )
        )
    return points


def scaled(
    points: Sequence[Point],
    *,
    time_limit: float | None = None,
) -> tuple[list[Row], Stop]:
    """Return the row of each of *points*, or of a part where something ends it, and what that was.

    Args:
        points: in the order of the rows.
        time_limit: seconds after which what is there is returned; None: no limit.

    Raises:
        NotSupportedError: a point is not possible.
        CheckError: nothing was found within the time limit.
        KeyboardInterrupt: Ctrl-C or SIGTERM has come before there was a row.
    """
    items, found = as_they_are(points), dict[Item, Row]()
    with bounded(time_limit) as stop, progress(len(items)) as advance:
        sweep(items, cache=Cache(None), advance=advance, workers=1, found=found)
    rows = [found[item] for item in items if item in found]
    for row in rows:
        if row.problem:
            raise NotSupportedError(row.problem)
    stop.check(rows, len(items), "point")
    return rows, stop


def assumed_on(points: Iterable[Point]) -> dict[str, Assumptions]:
    """Return what is assumed, by the label of a network."""
    return {point.label: assumed_at(point, topology_at(point)) for point in points}


def carriers_in(rows: Iterable[Row]) -> list[Carrier]:
    """Return what carries the buckets of all *rows*, by network and number of ranks."""
    alike: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row.point.ranks > 1:
            alike.setdefault((row.point.network, row.point.ranks), []).append(row)
    found: list[Carrier] = []
    for own in alike.values():
        point, topology = own[-1].point, topology_at(own[-1].point)
        assumed = assumed_at(point, topology).with_(model=own[-1].timed_by)
        sizes = {(collective, nbytes) for row in own for collective, nbytes in row.buckets if nbytes}
        found += carriers_of(point.label, topology, algorithm_of(point, topology), assumed, sizes)
    return found


def algorithm_in(row: Row) -> str:
    """Return the algorithm of all-reduce that was asked for in *row*, or goes by default there."""
    return algorithm_of(row.point, topology_at(row.point))


def in_words(rows: Sequence[Row]) -> str:
    """Return what the figures of *rows* assume, in a sentence."""
    fewest, cap = rows[0].point.fewest, rows[0].point.bucket_cap_mb
    names = " or ".join(dict.fromkeys(map(algorithm_in, rows)))
    scaled = (
        f"strong scaling of the batch that {fewest} of the profile's ranks have" if fewest else "weak scaling"
    )
    computes = f"every rank computes {'its share of what' if fewest else 'as'} the profile says"
    return (
        f"{scaled}; {names} all-reduce of {cap:g} MiB buckets, launched by the reducer that trains; "
        f"{computes}; messages wait for latency, then share link bandwidth max-min"
    )
