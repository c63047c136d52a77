"""Plan: the rows of a question and the answers, from Python; and rows of points that differ in ranks.

from testbed.planning import plan

found = plan("question.toml")
print(found.sentences)
table = found.to_dataframe()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.errors import NotSupportedError
from collectives.timing import Assumptions
from testbed.output.table import Advance, grouped, progress
from testbed.planning.alteration import link_groups
from testbed.planning.answers.answer import Answer, answers, more_cases, sentences
from testbed.planning.answers.causes import Case
from testbed.planning.cache import Cache, default_folder
from testbed.planning.evaluation import AUTO, algorithm_of, assumed_at, topology_at
from testbed.planning.opened import content_digest
from testbed.planning.points import (
    Point,
    Settings,
    description_of,
    inefficiencies_counted,
    model_counted,
    points_of,
)
from testbed.planning.question import DEFAULT, Question, question_of, read_question
from testbed.planning.row import Row
from testbed.planning.sweep import Item, as_they_are, sweep
from testbed.result.result import data_frame
from testbed.studies.carriers import Carrier, carriers_of
from testbed.tasks.bounds import Stop, bounded

if TYPE_CHECKING:
    import pandas

_ASSUMED = {
    "step": "every rank computes as its profile says, buckets are launched by the reducer that trains, and a "
    "step loses what is named in inefficiencies",
    "collective": "all ranks start a collective together",
    "script": "scripts run without data, on modelled GPUs where they compute on one; a step of every layout "
    "is taken to do the same work for each rank",
}
_TIMED = {
    "links": "messages wait for latency, then share link bandwidth max-min",
    "library": "collectives take what was measured of NCCL on such a network, or what its model makes likely",
    "measured": "collectives take what was measured of NCCL on such a network",
    "nccl": "collectives take what NCCL itself expects",
}


@dataclass(frozen=True, repr=False)
class Plan:
    """A question, and a row for each of its points.

    Attributes:
        question: what was asked.
        rows: in the order models, networks, ranks.
        answers: what they say of each piece of work, see `testbed.planning.answers`.
        stop: what has ended it; of a part some rows or reasons are missing.
    """

    question: Question
    rows: tuple[Row, ...]
    answers: tuple[Answer, ...]
    stop: Stop = field(default_factory=Stop)

    def __repr__(self) -> str:
        return f"Plan({self.question.in_words()!r}, {len(self.rows)} rows)"

    @property
    def sentences(self) -> list[str]:
        """The answers, in a few sentences for each piece of work."""
        return [" ".join(sentences(own)) for own in self.answers]

    @property
    def model(self) -> str:
        """What the figures assume, in a sentence."""
        kinds = {row.point.kind: None for row in self.rows}
        said = [_ASSUMED[kind] for kind in kinds]
        models = {row.timed_by for row in self.rows if not row.problem}
        return "; ".join([*said, *(_TIMED[name] for name in _TIMED if name in models)])

    @property
    def topologies(self) -> dict[str, str]:
        """Digest of each network, by its label and ranks."""
        return {f"{row.point.label} x {row.point.ranks}": row.topology for row in self.rows}

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the rows as a table of pandas, a column for each input and figure.

        Raises:
            UsageError: pandas is not installed.
        """
        return data_frame(row.as_json() for row in self.rows)


def plan(
    question: Question | Mapping[str, Any] | str | PathLike[str],
    *,
    explain: bool | None = None,
    workers: int | None = 1,
    scheduler: str | None = None,
    cache: str | PathLike[str] | None = None,
    time_limit: float | None = None,
    watch: Callable[[int], AbstractContextManager[Advance]] | None = None,
) -> Plan:
    """Return what a question comes to, or after Ctrl-C, SIGTERM or the time limit a part of it.

    Args:
        question: a `Question`, its fields as in a file, or the path of a file.
        explain: whether to look into what designs lose to what, and what would help, which takes further
            predictions; None: of all but scripts.
        workers: processes of this machine; 1 is this process; None: one for each core, if there is enough to
            do.
        scheduler: address of a Dask scheduler whose workers are taken instead.
        cache: folder of the rows that are known; None: the user's own; ``"none"``: none.
        time_limit: seconds after which what is there is returned; None: no limit.
        watch: of a number of rows, returns a context that is told of each.

    Raises:
        UsageError, NetworkFileError, ProfileError: the question, or a file that it names, is wrong.
        CheckError: nothing was found within the time limit.
        KeyboardInterrupt: Ctrl-C or SIGTERM has come before there was a row.
        LaunchError: the scheduler cannot be reached, or a worker has died at a task again and again.
    """
    if isinstance(question, Mapping):
        question = question_of(dict(question), "question")
    elif not isinstance(question, Question):
        question = read_question(Path(question))
    folder = default_folder() if cache is None else None if cache == "none" else Path(cache)
    kept = Cache(folder, is_asked_for=cache is not None)

    def look(items: Sequence[Case], found: dict[Case, Row]) -> None:
        with (watch or partial(progress, show=False))(len(items)) as advance:
            sweep(items, cache=kept, advance=advance, workers=workers, scheduler=scheduler, found=found)

    points, found, more = as_they_are(points_of(question)), dict[Case, Row](), dict[Case, Row]()
    with bounded(time_limit) as stop:
        look(points, found)
        rows = [found[point] for point in points]
        if explain is not False:
            look(more_cases(rows, _groups, scripts=bool(explain)), more)
    rows = [found[point] for point in points if point in found]
    stop.check(rows, len(points), "point")
    given = answers(rows, more, _groups, question.train_tokens)
    return Plan(question, tuple(rows), tuple(given), stop)


def _groups(point: Point) -> tuple[str, ...]:
    """Return the groups of links of the network of *point*."""
    return _groups_of(point.network, point.overrides, point.ranks, content_digest(point.network))


@lru_cache(maxsize=256)
def _groups_of(network: str, overrides: Settings, ranks: int, file: str) -> tuple[str, ...]:
    """Return the groups; *file* is a digest of the network's file, which may change meanwhile."""
    return tuple(link_groups(description_of(network, overrides).topology(ranks)))


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
    inefficiencies = inefficiencies_counted(given.pop("inefficiencies", None), ideal)
    points = []
    for profile, network, strategy, num_ranks in product(profiles, networks, strategies, ranks):
        description = description_of(network)
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
                timing=timing or model_counted(description.fields.hardware, transport, ideal),
                transport=transport or AUTO,
                inefficiencies=inefficiencies,
                software=tuple(given.items()),
                ideal=ideal,
                finds_link=False,
                device=device,
            )
        )
    return points


def scaled(points: Sequence[Point], *, time_limit: float | None = None) -> tuple[list[Row], Stop]:
    """Return the row of each of *points*, or of a part where something ends it, and what that was.

    A point that is not possible, such as so many ranks on that network, has a row that says why.

    Args:
        points: in the order of the rows.
        time_limit: seconds after which what is there is returned; None: no limit.

    Raises:
        NotSupportedError: no point is possible.
        CheckError: nothing was found within the time limit.
        KeyboardInterrupt: Ctrl-C or SIGTERM has come before there was a row.
    """
    items, found = as_they_are(points), dict[Item, Row]()
    with bounded(time_limit) as stop, progress(len(items)) as advance:
        sweep(items, cache=Cache(None), advance=advance, workers=1, found=found)
    rows = [found[item] for item in items if item in found]
    if rows and all(row.problem for row in rows):
        raise NotSupportedError(rows[0].problem)
    stop.check(rows, len(items), "point")
    return rows, stop


def assumed_on(points: Iterable[Point]) -> dict[str, Assumptions]:
    """Return what is assumed, by the label of a network."""
    return {point.label: assumed_at(point, topology_at(point)) for point in points}


def carriers_in(rows: Iterable[Row]) -> list[Carrier]:
    """Return what carries the buckets of all *rows*, by network and number of ranks."""
    several = (row for row in rows if row.point.ranks > 1)
    alike = grouped(several, lambda row: (row.point.network, row.point.ranks))
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
