"""A table of measured times: the fastest algorithm by size, of what ``testbed bench --output`` has written.

A table is data: it names algorithms that ship, with parameters, ``native``, the vendor's own, and schedules
(``FILE.json``, such as ``testbed synthesize`` writes) that lie in its own folder.  One that names any other
file is refused, so that no table makes its reader run code.  The order of its rows does not matter: a time
stands once, and of equally fast ones the one that ships first is taken, the vendor's own before all.

    {"schema": 1, "ranks": 4, "transport": "gloo",
     "rows": [{"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 90.0}]}

Other fields are not looked at, and neither are rows of ``auto``, which is a choice among the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from collectives.algorithms import ALGORITHMS
from collectives.catalogue.resolve import names_a_file, resolve_algorithm
from collectives.catalogue.selectors import DEFAULTS, NATIVE
from collectives.errors import AlgorithmFileError, NotSupportedError, UnknownAlgorithmError
from collectives.formats.json_document import read_json_document, spell
from collectives.program import Algorithm

MAX_RANKS = 1 << 20
MAX_MICROSECONDS = 1e12

_LEAST_MICROSECONDS = 1e-6
_SHIPPED = {NATIVE: -1} | {own.name: number for number, own in reversed([*enumerate(ALGORITHMS)])}
_CHOICES = ("auto", "connect")
"""What a table may hold that chooses between algorithms; these have rows of their own."""

_HOW = "write one by testbed bench --algorithm all --output FILE"


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class MeasuredTime(_Fields):
    """A row: how long a call took.

    Attributes:
        collective: that was carried out.
        algorithm: by which.
        size_bytes: of the buffer, as nccl-tests counts it.
        time_us: of the call, in microseconds.
    """

    collective: str
    algorithm: str
    size_bytes: Annotated[int, Field(ge=0, lt=2**62)]
    time_us: Annotated[float, Field(ge=0, le=MAX_MICROSECONDS)]


class TimesDocument(_Fields):
    """What ``testbed bench --output`` writes, as far as a table needs it.

    Attributes:
        schema_version: of the format (``schema`` in the file).
        ranks: how many took part.
        transport: over which it was measured.
        rows: what was measured.
    """

    schema_version: Literal[1] = Field(default=1, alias="schema")
    ranks: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    transport: Literal["sim", "threads", "shm", "gloo", "nccl"]
    rows: Annotated[tuple[MeasuredTime, ...], Field(min_length=1)]


class Table:
    """The fastest of the algorithms that were measured, by size; `Selector`.

    Between two measured sizes each algorithm's time lies on the line through both, in logarithms of
    size and time; beyond them it is as at the nearest.

    Args:
        path: of a result document of ``testbed bench``.
        world_size: ranks of the group; it must have been measured with as many.
        transport: over which it was measured; None: any.
        bind: completes an algorithm by what its group knows, such as who shares a node.

    Raises:
        AlgorithmFileError: the file cannot be read, is no such document, or names a file that is no schedule
            in its folder.
        NotSupportedError: it was measured with another number of ranks, or over another transport.
    """

    def __init__(
        self,
        path: Path,
        world_size: int,
        *,
        transport: str | None = None,
        bind: Callable[[Algorithm], Algorithm] = lambda algorithm: algorithm,
    ) -> None:
        self.path = path
        self.bind = bind
        document = _read(path)
        if document.ranks != world_size:
            raise NotSupportedError(
                f"{path}: measured with {document.ranks} ranks, and this group has {world_size}; measure it "
                f"with testbed bench --ranks {world_size} --algorithm all --output FILE"
            )
        if transport is not None and document.transport not in (transport, "sim"):
            raise NotSupportedError(
                f"{path}: measured over {document.transport}, and this group is over {transport}"
            )

        self._times = _times_of(document, path)
        self._selected: dict[tuple[str, int], Algorithm | None] = {}

    def without_native(self) -> Table:
        """Return the same table without the vendor's own."""
        ours = copy(self)
        ours._times = {
            collective: {name: times for name, times in named.items() if name != NATIVE}
            for collective, named in self._times.items()
        }
        ours._selected = {}
        return ours

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return what was fastest at *nbytes* bytes; what was not measured runs that of `DEFAULTS`."""
        key = collective, nbytes
        if key not in self._selected:
            measured = self._times.get(collective)
            name = DEFAULTS[collective]
            if measured:
                name = min(measured, key=lambda name: _time_at(measured[name], max(nbytes, 1)))
            self._selected[key] = None if name == NATIVE else self.bind(_named(name, collective, self.path))
        return self._selected[key]


def schedules_of(path: Path) -> list[Algorithm]:
    """Return the schedules that the table at *path* names.

    Raises:
        AlgorithmFileError: as of `Table`.
    """
    times = _times_of(_read(path), path)
    return [
        _named(name, collective, path)
        for collective, named in times.items()
        for name in named
        if _is_schedule(name)
    ]


def _read(path: Path) -> TimesDocument:
    try:
        return read_json_document(
            path, TimesDocument, AlgorithmFileError, f"a table of measured times ({_HOW})"
        )
    except OSError as error:
        raise AlgorithmFileError(f"{path}: cannot read this table: {error.strerror}") from None


def _times_of(document: TimesDocument, path: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the times by collective, algorithm and size; algorithms in the order in which they ship.

    Raises:
        AlgorithmFileError: a row names what does not ship, or a time stands twice.
    """
    times: defaultdict[str, defaultdict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    checked: set[tuple[str, str]] = set()
    for number, row in enumerate(document.rows, start=1):
        where = f"{path}: rows {number}"
        if row.algorithm.partition(":")[0] in _CHOICES:
            continue
        if (row.collective, row.algorithm) not in checked:
            _check_name(row, path, where)
            checked.add((row.collective, row.algorithm))
        by_size = times[row.collective][row.algorithm]
        if row.size_bytes in by_size:
            raise AlgorithmFileError(
                f"{where}: {spell(row.algorithm)} of {row.size_bytes} bytes is there twice; expected one "
                "time for each collective, algorithm and size"
            )
        by_size[row.size_bytes] = max(row.time_us, _LEAST_MICROSECONDS)

    if not times:
        raise AlgorithmFileError(f"{path}: rows: expected algorithms, got choices between them alone; {_HOW}")
    return {
        collective: {name: sorted(named[name].items()) for name in sorted(named, key=_place)}
        for collective, named in times.items()
    }


def _check_name(row: MeasuredTime, path: Path, where: str) -> None:
    """Refuse a row that names neither an algorithm that ships nor a schedule beside the table at *path*."""
    if names_a_file(row.algorithm) and not _is_schedule(row.algorithm):
        raise AlgorithmFileError(
            f"{where}, algorithm: expected one that ships, or a schedule (FILE.json) in the folder of the "
            f"table, got {spell(row.algorithm)}; a table is data and runs no code: give a program of your "
            "own by --algorithm"
        )
    try:
        if row.algorithm != NATIVE or row.collective not in DEFAULTS:
            chosen = _named(row.algorithm, row.collective, path)
            if chosen.collective != row.collective:
                raise AlgorithmFileError(
                    f"{where}: {row.algorithm} is for {chosen.collective}, not for {row.collective}"
                )
    except (NotSupportedError, UnknownAlgorithmError) as error:
        raise AlgorithmFileError(f"{where}: {error}") from None


def _named(name: str, collective: str, path: Path) -> Algorithm:
    """Return the algorithm that a row of the table at *path* means by *name*."""
    return resolve_algorithm(str(path.parent / name) if _is_schedule(name) else name, collective)


def _is_schedule(name: str) -> bool:
    """Return whether *name* is that of a schedule, without a folder and without parameters."""
    return name.endswith(".json") and ".py:" not in name and Path(name).name == name


def _place(name: str) -> tuple[int, str]:
    """Return where the algorithm *name* stands among those that ship, and then by its parameters."""
    return _SHIPPED.get(name.partition(":")[0], len(_SHIPPED)), name


def _time_at(measured: list[tuple[int, float]], nbytes: int) -> float:
    """Return the time at *nbytes*, at least 1, by interpolation in logarithms."""
    if nbytes <= measured[0][0]:
        return measured[0][1]
    for (low, before), (high, after) in pairwise(measured):
        if low <= nbytes <= high:
            share = math.log(nbytes / low) / math.log(high / low) if low else 1.0
            return math.exp((1 - share) * math.log(before) + share * math.log(after))
    return measured[-1][1]
