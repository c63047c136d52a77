"""Selectors of the algorithm of a call: one that is given, or ``auto``, which depends on the size.

"ring"                          of all-reduce; the other collectives run those of `DEFAULTS`
{"all_gather": "bruck"}         of the collectives named
"nccl"                          what NCCL would choose, on a network that names its hardware; see
                                `collectives.timing.formulas.nccl.choice`
"auto"                          the cheapest on the network simulated, see `collectives.timing.cost`
"auto:reduction_bandwidth=50GB/s"  the same, where reducing takes time
"auto:table=FILE"               the fastest in a table of measurements: what
                                ``testbed bench --algorithm all --output FILE`` has written, see
                                `collectives.catalogue.measured_times`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from collectives.catalogue.resolve import names_msccl_xml, resolve_algorithm
from collectives.errors import UnknownAlgorithmError
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

NVLS = "nvls"
"""The algorithm that is no program: switches reduce and multicast."""

OF_LIBRARY = (NCCL, NATIVE)
"""Names of what the library chooses by itself, where the network names its hardware."""


def is_one_kernel(choice: object) -> bool:
    """Return whether all steps of what *choice* names are one kernel: the library's own, or MSCCL XML."""
    if isinstance(choice, Algorithm):
        return choice.thread_blocks is not None
    return isinstance(choice, str) and (choice in OF_LIBRARY or names_msccl_xml(choice))


def kernels_in(choice: Choice) -> frozenset[str]:
    """Return the collectives of which MSCCL XML is one kernel, in a group that goes by *choice*."""
    chosen = choice if isinstance(choice, Mapping) else {"all_reduce": choice}
    return frozenset(name for name, own in chosen.items() if own not in OF_LIBRARY and is_one_kernel(own))


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
