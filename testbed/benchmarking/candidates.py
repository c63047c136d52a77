"""Request of a measurement: its transport, and the algorithms that ``--algorithm`` names, or all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from collectives import NotSupportedError, algorithm_names, resolve_algorithm
from testbed.benchmarking.payload import size_of
from testbed.errors import UsageError
from testbed.options.arguments import split_names

if TYPE_CHECKING:
    from collectives.catalogue.selectors import Choice
    from collectives.program import Algorithm
    from collectives.timing import Assumptions

ALL = "all"
NATIVE = "native"
SIMULATED = "sim"
"""The transport that is none."""

CONNECT = "connect"
"""What `collectives.connect` takes over shared memory where nobody names an algorithm."""

_KNOWN = (
    "or --transport-model gloo, over which it is known what programs run; what NCCL takes is by "
    "testbed simulate native --model nccl, or measured"
)


class TransportName(StrEnum):
    """What moves the bytes."""

    SIM = "sim"
    THREADS = "threads"
    SHM = "shm"
    GLOO = "gloo"
    NCCL = "nccl"

    @property
    def is_of_processes(self) -> bool:
        """Whether its ranks are processes, which meet in a group of torch."""
        return self in (TransportName.SHM, TransportName.GLOO, TransportName.NCCL)

    @property
    def backend(self) -> str:
        """The backend of that group, whose own collectives are ``native``."""
        return "gloo" if self is TransportName.SHM else self.value


@dataclass(frozen=True)
class Candidate:
    """An algorithm that is to be measured.

    Attributes:
        name: as it was written.
        algorithm: what that means, on the nodes at hand; None for ``auto``, ``connect``, and ``native``,
            the vendor's own, which depend on the size.
        asked_for: by its name; otherwise as one of ``all``.
    """

    name: str
    algorithm: Algorithm | None
    asked_for: bool = True

    @property
    def simulated_as(self) -> Algorithm | str:
        """What the simulator takes for it: its name where it is no one algorithm."""
        return self.algorithm or self.name

    @property
    def chooses(self) -> bool:
        """Whether it takes one of our programs for each size."""
        return self.algorithm is None and self.name != NATIVE

    def choice(self, collective: str) -> Choice | None:
        """Return what a communicator takes to carry out *collective* so."""
        if self.name == CONNECT:
            return None
        return self.name if self.algorithm is None else {collective: self.algorithm}


@dataclass(frozen=True)
class Refusal:
    """Why an algorithm was not measured."""

    algorithm: str
    reason: str

    def __str__(self) -> str:
        named = self.reason.startswith(self.algorithm.partition(":")[0])
        return self.reason if named else f"{self.algorithm}: {self.reason}"


@dataclass(frozen=True)
class BenchRequest:
    """What is to be timed.

    Attributes:
        transport: what moves the bytes.
        num_ranks: world size.
        collective: what is carried out.
        candidates: the algorithms, of which at least one is there.
        counts: elements of the tensor, or of each rank's part of it.
        dtype: their type.
        iterations: timed calls of each algorithm and size.
        warmup: calls before them.
        timeout: seconds that a collective may wait for its peers.
        assumed: what is counted besides the links, where it is simulated.
        assumptions: the same for a report, as it was asked for.
        registered: whether tensors lie in memory of the transport, where it has any.
    """

    transport: TransportName
    num_ranks: int
    collective: str
    candidates: tuple[Candidate, ...]
    counts: tuple[int, ...]
    dtype: str
    iterations: int
    warmup: int
    timeout: float
    assumed: Assumptions | None = None
    assumptions: dict[str, Any] | None = None
    registered: bool = False

    @property
    def sizes(self) -> list[int]:
        """Bytes of each buffer."""
        return [size_of(count, self.dtype, self.collective, self.num_ranks) for count in self.counts]


def choose_candidates(
    text: str | None,
    collective: str,
    num_ranks: int,
    *,
    ranks_per_node: int,
    native: bool,
    transport: str,
    by_formula: Collection[str] = (),
) -> tuple[list[Candidate], list[Refusal]]:
    """Return the algorithms that *text* names, and those of several that refuse *num_ranks*.

    Args:
        text: a comma-separated list of names, ``all`` for all that ship, with ``native`` where there
            is one; None is the collective's default algorithm, over shm ``connect``.
        collective: which all of them carry out.
        num_ranks: world size.
        ranks_per_node: how many of them share a node, for the algorithms that ask.
        native: whether it is known what collectives of its own the transport has; ``all`` has them beside
            ours where they are not simulated.
        transport: how it is called.
        by_formula: names of what a closed form times, without a program.

    Raises:
        UsageError: there is no such collective, no algorithm is left, or no ``native`` is there.
        UnknownAlgorithmError: there is none of a name.
        NotSupportedError: the only one that is named refuses *num_ranks*.
    """
    from collectives.catalogue.selectors import DEFAULTS, NCCL
    from collectives.program.contracts import CONTRACTS
    from collectives.program.placement import on_nodes

    if collective not in CONTRACTS:
        raise UsageError(f"--collective {collective}: expected one of {', '.join(CONTRACTS)}")
    names: dict[str, bool] = {}
    default = CONNECT if transport == TransportName.SHM else DEFAULTS[collective]
    for name in split_names(text or default):
        if name == ALL:
            shipped = dict.fromkeys(algorithm_names(collective), False)
            if native and transport != SIMULATED:
                shipped[NATIVE] = False
            names = {**shipped, **names}
        else:
            names[name] = True
    if NATIVE in names and not native:
        known = "" if transport != SIMULATED else f"; {_KNOWN}"
        raise UsageError(
            f"--algorithm native is the vendor's own, and {transport} has none: try {DEFAULTS[collective]}"
            f"{known}"
        )
    candidates: list[Candidate] = []
    refusals: list[Refusal] = []
    for name, asked_for in names.items():
        is_connect = name == CONNECT and transport == TransportName.SHM
        is_nccl = name == NCCL and transport == SIMULATED
        if name in (NATIVE, *by_formula) or is_connect or is_nccl or _is_auto(name, transport):
            candidates.append(Candidate(name, None, asked_for))
            continue
        algorithm = on_nodes(resolve_algorithm(name, collective), ranks_per_node, range(num_ranks))
        reason = _refusal(algorithm, collective, num_ranks, alone=len(names) == 1)
        if reason:
            refusals.append(Refusal(name, reason))
        else:
            candidates.append(Candidate(name, algorithm, asked_for))
    if not candidates:
        raise UsageError(f"nothing to measure: {'; '.join(map(str, refusals))}")
    return candidates, refusals


def _is_auto(name: str, transport: str) -> bool:
    from collectives.catalogue.selectors import parse_auto

    auto = parse_auto(name)
    if auto is not None and transport == "threads":
        raise UsageError("--algorithm auto chooses for --transport sim, or by a table for shm, gloo and nccl")
    if auto is not None and auto.table is None and transport != SIMULATED:
        raise UsageError(
            f"--algorithm auto knows no costs of a real network; give auto:table=FILE, which "
            f"testbed bench --transport {transport} --algorithm all --output FILE writes"
        )
    return auto is not None


def _refusal(algorithm: Algorithm, collective: str, num_ranks: int, *, alone: bool) -> str:
    """Return why *algorithm* does not run here, or nothing; one that is *alone* raises it."""
    from collectives.catalogue.admission import evidence_of

    if algorithm.collective != collective:
        raise UsageError(
            f"{algorithm} is an algorithm for {algorithm.collective}: add --collective {algorithm.collective}"
        )
    try:
        algorithm.num_chunks(num_ranks)
        next(algorithm.steps(0, num_ranks), None)
        evidence_of(algorithm, num_ranks)
    except NotSupportedError as error:
        if alone:
            raise
        return str(error)
    return ""
