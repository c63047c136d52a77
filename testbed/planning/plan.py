"""Plan: the rows of a question, from Python.

from testbed.planning import plan

rows = plan("question.toml").to_dataframe()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError
from testbed.output.table import Advance
from testbed.planning.cache import Cache, default_folder
from testbed.planning.points import points_of
from testbed.planning.question import Question, question_of, read_question
from testbed.planning.row import Row
from testbed.planning.sweep import as_they_are, sweep

if TYPE_CHECKING:
    import pandas

_ASSUMED = {
    "step": "every rank computes as its profile says, buckets are launched by the reducer that trains, and a "
    "step loses what is named in losses",
    "collective": "all ranks start a collective together",
    "script": "scripts run without data, on modelled GPUs where they compute on one",
}
_TIMED = {
    "links": "messages wait for latency, then share link bandwidth max-min",
    "measured": "collectives take what was measured of NCCL on such a network",
    "nccl": "collectives take what NCCL itself expects",
}


@dataclass(frozen=True)
class Plan:
    """A question, and a row for each of its points.

    Attributes:
        question: what was asked.
        rows: in the order models, networks, ranks.
    """

    question: Question
    rows: tuple[Row, ...]

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
        try:
            import pandas
        except ImportError:
            raise UsageError("pandas is not installed; it is in the extra plan") from None
        return pandas.DataFrame([row.as_json() for row in self.rows])


def plan(
    question: Question | Mapping[str, Any] | str | PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    cache: str | PathLike[str] | None = None,
    advance: Advance | None = None,
) -> Plan:
    """Return what a question comes to.

    Args:
        question: a `Question`, its fields as in a file, or the path of a file.
        workers: processes of this machine; None: one for each core, if there is enough to do.
        scheduler: address of a Dask scheduler whose workers are taken instead.
        cache: folder of the rows that are known; None: the user's own.
        advance: is told of every row.

    Raises:
        UsageError, NetworkFileError, ProfileError: the question, or a file that it names, is wrong.
        LaunchError: the scheduler cannot be reached, or a worker has died at a task again and again.
    """
    if isinstance(question, Mapping):
        question = question_of(dict(question), "question")
    elif not isinstance(question, Question):
        question = read_question(Path(question))
    items = as_they_are(points_of(question))
    with Cache(default_folder() if cache is None else Path(cache)) as kept:
        rows = sweep(items, cache=kept, advance=advance or _silent, workers=workers, scheduler=scheduler)
    return Plan(question, tuple(rows))


def _silent(description: str, completed: int | None = None) -> None:
    """Nobody watches."""
