"""Options for the cluster and the GPUs on which a script runs, for checks of it, and for what is shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from testbed.errors import UsageError
from testbed.options.arguments import MAX_RANKS, TraceFile, parse_algorithm

if TYPE_CHECKING:
    from collectives.catalogue.selectors import Choice
    from collectives.virtual.diagnosis.races import Races
    from collectives.virtual.gpu.routing import RoutingRecord
    from collectives.virtual.parameters.record import ParameterRecord
    from collectives.virtual.parameters.replicas import ReplicaCheck
    from sim import Topology

DEFAULT_NETWORK = "switch-100g"
DEFAULT_RANKS = 8


@dataclass(frozen=True)
class ClusterOptions:
    """Options for the cluster on which the script runs.

    Attributes:
        ranks: By default as many as the network's file says, or 8.
        compute: How computation takes time: a device (h100, FILE.toml), profile:FILE.json, measured,
            measured:0.1 (processor time times 0.1). By default only what the script charges takes time.
        algorithm: All-reduce algorithm, one for each collective (all_reduce=ring,all_gather=bruck), auto,
            nccl: what NCCL would choose, or native: what Gloo runs. By default nccl if the network names
            GPUs, else auto.
        clock: Time that the script reads by time.time and its kin: virtual, or real: the machine's.
    """

    ranks: Annotated[int | None, typer.Option(min=1, max=MAX_RANKS)] = None
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help=f"A preset (testbed network) or a network file.  [{DEFAULT_NETWORK}]"
        ),
    ] = None
    compute: Annotated[str, typer.Option(metavar="MODEL")] = "none"
    algorithm: Annotated[str | None, typer.Option(metavar="NAME", show_default=False)] = None

    clock: Literal["virtual", "real"] = "virtual"

    def choice(self, topology: Topology) -> Choice:
        """Return the algorithm that is asked for, or else that which goes by default on *topology*."""
        from collectives.timing import default_algorithm

        return default_algorithm(topology) if self.algorithm is None else parse_algorithm(self.algorithm)

    def topology(self, *, ideal: bool = False) -> Topology:
        """Return the network, with so many ranks; ports of an *ideal* one lose nothing.

        Raises:
            NetworkFileError: there is no such network.
            TopologyError: it cannot have so many ranks.
        """
        from sim import load_network

        description = load_network(self.network or DEFAULT_NETWORK, ideal=ideal)
        default = DEFAULT_RANKS if description.num_ranks is None else None
        return description.topology(self.ranks or default)


@dataclass(frozen=True)
class OutputOptions:
    """Options for what is shown and written, beside the report.

    Attributes:
        output: Which rank's output is shown; all: each line with its rank.
    """

    PANEL: ClassVar = "Output"

    output: Annotated[str, typer.Option(metavar="RANK|all|none")] = "0"
    trace: TraceFile = None


class CheckName(StrEnum):
    """What can be checked."""

    REPLICAS = "replicas"
    RACES = "races"
    NONE = "none"


@dataclass(frozen=True)
class CheckOptions:
    """Options for checks of what ranks compute; those of values need data and a thread for each rank.

    Attributes:
        check: replicas: ranks that hold the same parameters hold the same bits after every step; where they
            part, the step, the parameter and the ranks are named, and the exit code is 1. races: on a GPU
            (--compute h100) waits order all that streams, collectives and copies do to one tensor; else both
            lines are named, and the exit code is 1; by default, but for runs with --fake. none: not even
            these.
        lenient: Carry out by value what the backend that the script names (gloo, nccl) refuses or gets wrong:
            dtypes, reductions, strides.
        orders: all: run in every order of events that ranks and their threads can tell apart, whatever the
            speed of ranks, threads and messages; where it fails in one, or prints or trains something else,
            both orders are shown, and the exit code is 1.
        max_orders: Give up beyond so many orders.
    """

    PANEL: ClassVar = "Checks"

    check: list[CheckName] | None = None

    lenient: Annotated[bool, typer.Option("--lenient")] = False
    orders: Literal["all"] | None = None
    max_orders: Annotated[int, typer.Option(min=1, max=10_000_000)] = 10_000

    def record(self) -> ParameterRecord | None:
        """Return what records the parameters of a run, if a check needs them."""
        if CheckName.REPLICAS not in (self.check or ()):
            return None
        from collectives.virtual.parameters.record import ParameterRecord

        return ParameterRecord()

    def races(self, by_default: bool) -> Races | None:
        """Return what finds the races of a run, if that is asked for, or *by_default*.

        Raises:
            UsageError: none and another check are asked for.
        """
        asked = self.check or ()
        if CheckName.NONE in asked and len(asked) > 1:
            raise UsageError("--check none: give it alone")
        if CheckName.RACES not in asked and (not by_default or CheckName.NONE in asked):
            return None
        from collectives.virtual.diagnosis.races import Races

        return Races()


def checked(record: ParameterRecord | None) -> ReplicaCheck | None:
    """Return what was found in *record*, if there is one."""
    if record is None:
        return None
    from collectives.virtual.parameters.replicas import check_replicas

    return check_replicas(record)


@dataclass(frozen=True)
class GpuOptions:
    """Options for ranks that compute on a GPU, which ``--compute`` names.

    Attributes:
        fake: Tensors on the GPU have shapes and no values, so models run that fit into no machine here.
        routing: With --fake: which experts tokens go to, where routers (topk) choose by scores without
            values; by default balanced.
        record_routing: Count with data what --routing FILE takes without.
        strict: An operation whose cost has no formula, and which its bytes do not bound, is an error; else
            the report names it.
        fold: Ranks that are found to do the same run as one; auto: with --fake, in all but small runs.
        memory_limit: Memory of a GPU, beyond which a script runs out of it; off: it goes on, and the report
            says what is missing. By default the device's.
    """

    PANEL: ClassVar = "GPU"

    fake: Annotated[bool, typer.Option("--fake")] = False
    routing: Annotated[str | None, typer.Option(metavar="balanced|power-law:A|FILE")] = None
    record_routing: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    strict: Annotated[bool, typer.Option("--strict")] = False
    fold: Literal["auto", "on", "off"] = "auto"
    memory_limit: Annotated[str | None, typer.Option(metavar="SIZE|off")] = None

    @property
    def folds(self) -> bool:
        """Whether ranks that do the same run as one."""
        return self.fold == "on" or (self.fake and self.fold == "auto")

    def record(self) -> RoutingRecord | None:
        """Return what records the routing of a run, if that is asked for.

        Raises:
            UsageError: routing is stated, or there is no data to record.
        """
        if self.routing is not None and not self.fake:
            raise UsageError("--routing stands for scores that data would give: add --fake, or leave it out")
        if self.record_routing is None:
            return None
        if self.fake:
            raise UsageError("--record-routing counts what routers choose by data: leave --fake out")
        from collectives.virtual.gpu.routing import RoutingRecord

        return RoutingRecord()

    def arguments(self, record: RoutingRecord | None) -> dict[str, Any]:
        """Return them as arguments of `collectives.virtual.run`, with what is to *record* the routing."""
        return {
            "fake": self.fake,
            "fold": {"auto": None, "on": True, "off": False}[self.fold],
            "memory_limit": self.memory_limit,
            "routing": record or self.routing,
            "strict": self.strict,
        }
