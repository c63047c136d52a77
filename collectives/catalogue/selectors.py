"""Selectors of the algorithm of a call: one that is given, or ``auto``, which depends on the size.

"ring"                          of all-reduce; the other collectives run those of `DEFAULTS`
{"all_gather": "bruck"}         of the collectives named
"nccl"                          what NCCL would choose, on a network that names its hardware; see
                                `collectives.models.nccl.choice`
"auto"                          the cheapest on the network simulated, see `collectives.models.cost`
"auto:reduction_bandwidth=50GB/s"  the same, where reducing takes time
"auto:table=FILE"               the fastest in a table of measurements: what
                                ``testbed bench --algorithm all --save FILE`` has written
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from collectives.catalogue.resolve import resolve_algorithm
from collectives.errors import AlgorithmFileError, NotSupportedError, UnknownAlgorithmError
from collectives.program import Algorithm, Program

Choice: TypeAlias = str | Program | Algorithm | Mapping[str, str | Program | Algorithm]
"""The algorithm of all-reduce, or of each collective that the mapping names; or ``auto``."""

DEFAULTS: Mapping[str, str] = {
    "all_gather": "ring",
    "all_reduce": "ring",
    "all_to_all": "direct",
    "broadcast": "tree",
    "gather": "tree",
    "reduce": "tree",
    "reduce_scatter": "ring",
    "scatter": "tree",
}
"""The algorithm of each collective that nobody has chosen one for."""

NATIVE = "native"
"""The vendor's own collective, where there is one."""

NCCL = "nccl"
"""NCCL's choice of algorithm and channels, as programs of ours that are timed on the links."""


@runtime_checkable
class Selector(Protocol):
    """Decides which algorithm carries out a call; the same on every rank."""

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return the algorithm for *nbytes* bytes, as nccl-tests counts them; None means native."""


@dataclass(frozen=True)
class Fixed:
    """The same algorithm for all sizes; `Selector`."""

    algorithms: Mapping[str, Algorithm]

    def select(self, collective: str, nbytes: int) -> Algorithm:
        """Return the algorithm of *collective*."""
        return self.algorithms[collective]

    def bound(self, bind: Callable[[Algorithm], Algorithm]) -> Fixed:
        """Return the same, with every algorithm completed by *bind*."""
        return Fixed({collective: bind(algorithm) for collective, algorithm in self.algorithms.items()})


def fixed(choice: Choice) -> Fixed:
    """Return what *choice*, which is not ``auto``, names for each collective, or that of `DEFAULTS`.

    Raises:
        UnknownAlgorithmError: there is no such collective, or no such algorithm for it.
        AlgorithmFileError: a file or the function in it cannot be loaded.
    """
    chosen = choice if isinstance(choice, Mapping) else {"all_reduce": choice}
    resolved = {name: resolve_algorithm(own, name) for name, own in {**DEFAULTS, **chosen}.items()}
    for name, own in resolved.items():
        if own.collective != name:
            raise UnknownAlgorithmError(
                f"{own} is an algorithm for {own.collective}, not for {name}; "
                f"choose it by algorithm={{{own.collective!r}: …}}"
            )
    return Fixed(resolved)


@dataclass(frozen=True)
class Auto:
    """What ``auto`` and its parameters mean.

    Attributes:
        table: a file of measurements; None: by cost on the network.
        reduction_bandwidth: as text, such as ``50GB/s``; None: reducing costs no time.
    """

    table: Path | None = None
    reduction_bandwidth: str | None = None


def parse_auto(choice: object) -> Auto | None:
    """Return what *choice* means if it is ``auto``, else None.

    Raises:
        UnknownAlgorithmError: ``auto`` has no such parameter.
    """
    if not isinstance(choice, str) or choice.partition(":")[0] != "auto":
        return None
    given = dict(item.partition("=")[::2] for item in choice.partition(":")[2].split(",") if item)
    for name, value in given.items():
        if name not in ("table", "reduction_bandwidth") or not value:
            raise UnknownAlgorithmError(
                f"{choice!r}: expected auto, auto:table=FILE or auto:reduction_bandwidth=50GB/s, got {name!r}"
            )
    table = given.get("table")
    return Auto(Path(table) if table else None, given.get("reduction_bandwidth"))


def check_choice(choice: Choice) -> None:
    """Refuse what no group could do with *choice*.

    Raises:
        UnknownAlgorithmError: there is no such algorithm, collective or parameter.
        AlgorithmFileError: a file, or the function in it, cannot be loaded.
    """
    if choice != NCCL and parse_auto(choice) is None:
        fixed(choice)


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
        AlgorithmFileError: the file cannot be read, or is no such document.
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
        try:
            ranks, measured_over = int(document["ranks"]), str(document["transport"])
            times: defaultdict[str, defaultdict[str, dict[int, float]]] = defaultdict(
                lambda: defaultdict(dict)
            )
            for row in document["rows"]:
                times[row["collective"]][row["algorithm"]][int(row["size_bytes"])] = max(
                    float(row["time_us"]), 1e-6
                )
            if not times:
                raise ValueError("it has no rows")
        except (KeyError, TypeError, ValueError) as error:
            raise AlgorithmFileError(
                f"{path}: no table of measurements ({type(error).__name__}: {error}); "
                "write one by testbed bench --algorithm all --save FILE"
            ) from None

        if ranks != world_size:
            raise NotSupportedError(
                f"{path}: measured with {ranks} ranks, and this group has {world_size}; measure it with "
                f"testbed bench --ranks {world_size} --algorithm all --save FILE"
            )
        if transport is not None and measured_over not in (transport, "sim"):
            raise NotSupportedError(
                f"{path}: measured over {measured_over}, and this group is over {transport}"
            )

        self._times = {
            collective: {name: sorted(by_size.items()) for name, by_size in named.items()}
            for collective, named in times.items()
        }
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
            self._selected[key] = None if name == NATIVE else self.bind(resolve_algorithm(name, collective))
        return self._selected[key]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AlgorithmFileError(f"{path}: cannot read this table: {error.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise AlgorithmFileError(f"{path}: not a JSON file: {error}") from None


def _time_at(measured: list[tuple[int, float]], nbytes: int) -> float:
    """Return the time at *nbytes* by interpolation in logarithms."""
    if nbytes <= measured[0][0]:
        return measured[0][1]
    for (low, before), (high, after) in pairwise(measured):
        if low <= nbytes <= high:
            share = math.log(nbytes / low) / math.log(high / low)
            return math.exp((1 - share) * math.log(before) + share * math.log(after))
    return measured[-1][1]
