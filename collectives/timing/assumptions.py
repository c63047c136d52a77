"""Assumptions of a prediction: what is counted besides the links, and by what model of time.

A network brings its assumptions along: `Assumptions.of_a_real_run` says what would run on it, over which
transport, and with which inefficiencies.  A bare `Topology` knows its links alone, so that closed forms hold
exactly there: `Assumptions.ideal`.  Whatever else is to be counted is named, with either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from collectives.catalogue.selectors import NCCL, NVLS, OF_LIBRARY, is_one_kernel
from collectives.errors import NotSupportedError
from collectives.execution.staging import staged_nbytes
from collectives.execution.transport_model import TransportModel, transport_model
from collectives.timing.formulas.nccl.constants import NcclProtocol
from collectives.timing.formulas.nccl.point_to_point import group_call
from sim.hardware import Device
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.topology.kinds.host import HostRouting
from sim.units import SECOND, Quantity, parse_bandwidth, parse_time

if TYPE_CHECKING:
    from sim.topology.description import NetworkDescription

Model: TypeAlias = Literal["links", "nccl", "measured", "library"]
"""``links`` runs programs; ``library`` is ``measured`` where that applies, else what ``nccl`` makes likely,
for what the library chooses (``nccl``, ``native``), and runs programs for all others."""

IN_WORDS: Mapping[str, str] = {
    "library": "each bucket takes what was measured of NCCL, or what its model makes likely",
    "measured": "each bucket takes what was measured",
    "nccl": "each bucket takes what NCCL expects",
}
"""What a closed form counts in a step, for reports."""

ALL = "all"
"""Of inefficiencies: those that apply."""

OF_DEVICE = ("copies", "optimizer")
"""Of inefficiencies: those that follow from the device on which a rank computes."""

AUTO = "auto"
"""Of algorithms: the cheapest of our programs."""


class Counted(TypedDict, total=False):
    """Assumptions by name, as functions that predict take them; None is left as it would be without it.

    See `Software` and `Assumptions` for what each means.
    """

    transport_model: str | TransportModel | None
    protocol: NcclProtocol | None
    overhead: Quantity | None
    arrival_overhead: Quantity | None
    call_overhead: Quantity | None
    step_overhead: Quantity | None
    posting: Quantity | None
    reduction_bandwidth: Quantity | None
    copy_bandwidth: Quantity | None
    block_bandwidth: Quantity | None
    symmetric: bool | None
    inefficiencies: str | Sequence[str] | None
    model: Model | None
    device: str | Device | None


@dataclass(frozen=True)
class Software:
    """What code adds to the wire; the default adds nothing.

    Attributes:
        transport_model: how a step of a program is completed: ``ideal``, ``gloo``, ``nccl`` or ``shm`` (see
            `collectives.execution.transport_model`).
        protocol: of NCCL, for what it leaves of a link and its latency (see
            `collectives.timing.formulas.nccl.protocol`).
        overhead: of each message, on either side (see `sim.scenario.rank_overhead`).
        arrival_overhead: from the last byte of a message until its receiver knows.
        call_overhead: of a call, on each rank, before its first step.
        step_overhead: of each step of a program, before its messages start: over NCCL, the launch of a group
            call.  Of MSCCL XML, and of what NCCL itself chooses, all steps are one kernel: neither this nor
            *posting* is of each.
        posting: of each message of a step to a rank of another node, on its sender, likewise.
        reduction_bandwidth: bytes/s at which a rank reduces; None: reducing takes no time.
        copy_bandwidth: bytes/s at which a rank copies what its communicator copies around a program (see
            `collectives.execution.staging`); None: that takes no time.
        block_bandwidth: bytes/s of a thread block of a file of MSCCL XML; None: what NCCL's model says of the
            GPU (see `collectives.timing.thread_blocks`), or nothing where the transport is ``ideal``.
        symmetric: buffers are registered as windows, so that NCCL takes its symmetric kernels where it has
            some (see `collectives.timing.formulas.nccl.symmetric`).
        inefficiencies: terms of what a training step loses besides the time of its messages (see
            `ddp.step.inefficiencies`); a collective by itself has none.
    """

    transport_model: str | TransportModel = "ideal"
    protocol: NcclProtocol | None = None
    overhead: Quantity = 0
    arrival_overhead: Quantity = 0
    call_overhead: Quantity = 0
    step_overhead: Quantity = 0
    posting: Quantity = 0
    reduction_bandwidth: Quantity | None = None
    copy_bandwidth: Quantity | None = None
    block_bandwidth: Quantity | None = None
    symmetric: bool = False
    inefficiencies: tuple[str, ...] = ()

    @property
    def transport(self) -> TransportModel:
        """How a step of a program is completed.

        Raises:
            ValueError: there is no such transport model.
        """
        return transport_model(self.transport_model)

    def rank_overhead(self) -> RankOverhead:
        """Return what ranks add to the time of the network, where no condition holds.

        Raises:
            UnitError: a quantity that cannot be read.
        """
        return RankOverhead.of(
            self.overhead,
            self.reduction_bandwidth,
            arrival_overhead=self.arrival_overhead,
            step_overhead=self.step_overhead,
            posting=self.posting,
        )

    @property
    def has_overheads(self) -> bool:
        """Whether messages and reductions take time besides the links; launches of steps do not count.

        Raises:
            UnitError: a quantity that cannot be read.
        """
        return not self.rank_overhead().in_one_kernel().is_free

    def check_of_library(self, what: str) -> None:
        """Check that nothing is asked for besides what the library's own time has in it.

        Raises:
            NotSupportedError: overheads, a rate of reduction or a protocol are.
        """
        if self.protocol is not None or self.has_overheads:
            raise NotSupportedError(
                f"{what}: the library's own time has its protocol and software in it; leave out protocol, "
                "overheads and reduction, or take model='links'"
            )

    def loses(self, term: str) -> bool:
        """Return whether an inefficiency is counted, by its name or among all."""
        named = {own.partition(":")[0] for own in self.inefficiencies}
        return not named.isdisjoint({term, ALL}) and f"-{term}" not in named

    @property
    def is_around_calls(self) -> bool:
        """Whether a call takes time on its rank besides its program."""
        return bool(self.call_overhead) or self.copy_bandwidth is not None

    def around_ps(self, collective: str, num_ranks: int, nbytes: int) -> int:
        """Return what a call takes on a rank besides its program; counted before its first step.

        Raises:
            UnitError: a quantity that cannot be read.
        """
        call_ps = parse_time(self.call_overhead, "call_overhead")
        if self.copy_bandwidth is None:
            return call_ps
        rate = parse_bandwidth(self.copy_bandwidth, "copy_bandwidth")
        return call_ps + staged_nbytes(collective, num_ranks, nbytes) * SECOND // rate

    def in_one_kernel(self) -> Software:
        """Return the same of what has one kernel for all steps."""
        return replace(self, step_overhead=0, posting=0)

    def launched_once(self, num_ranks: int | None = None) -> Software:
        """Return the same of what has one kernel for all steps, with the launch of that; none on one rank."""
        if num_ranks == 1:
            return self.in_one_kernel()
        both = self.step_overhead
        if self.call_overhead:
            both = f"{parse_time(self.call_overhead) + parse_time(self.step_overhead)}ps"
        return replace(self.in_one_kernel(), call_overhead=both)

    def of_all(self, choices: Iterable[object]) -> Software:
        """Return the same as it counts where nothing but *choices* runs, for reports."""
        others = [own for own in choices if own not in OF_LIBRARY]
        if not all(is_one_kernel(own) or own == NVLS for own in others):
            return self
        return self.launched_once() if others else self.in_one_kernel()

    def copying_faster(self, speedup: float) -> Software:
        """Return the same where ranks copy so many times as fast."""
        if self.copy_bandwidth is None or speedup == 1:
            return self
        rate = parse_bandwidth(self.copy_bandwidth, "copy_bandwidth")
        return replace(self, copy_bandwidth=round(rate * speedup))

    def in_words(self) -> str:
        """Return what is added, for reports; inefficiencies are told by whoever has settled them."""
        parts = [f"transport model {self.transport.name}"]
        if self.overhead:
            parts.append(f"{self.overhead} of overhead for each message on either side")
        if self.arrival_overhead:
            parts.append(f"{self.arrival_overhead} until its arrival is known")
        if self.call_overhead:
            parts.append(f"{self.call_overhead} for each call")
        if launched := self.launches_in_words():
            parts.append(launched)
        if self.reduction_bandwidth is not None:
            parts.append(f"reduction at {self.reduction_bandwidth}")
        if self.copy_bandwidth is not None:
            parts.append(f"copies around programs at {self.copy_bandwidth}")
        if self.protocol is not None:
            parts.append(f"protocol {self.protocol}")
        return ", ".join(parts)

    def launches_in_words(self) -> str:
        """Return what launches of steps take, for reports; nothing where that is nothing."""
        parts = [f"{self.step_overhead} for the launch of each step"] if self.step_overhead else []
        parts += [f"{self.posting} for each message that leaves a node"] if self.posting else []
        return " and ".join(parts)


@dataclass(frozen=True)
class Assumptions:
    """What a prediction follows from, besides the network and what is asked of it.

    Attributes:
        software: what code adds to the wire.
        model: by what a collective is timed (see `Model`).
        algorithm: of all-reduce, and of other collectives by what it chooses, where nobody names one; empty:
            the ring on a bare topology, on a network that is named what a real run would take.
        device: on which a rank computes, for inefficiencies; None: what the network's hardware says.
        device_for: GPUs for which *device* stands, as they have no file of their own; nothing: it is theirs.
        fabric: whether ports of a network that is named lose what its fabric says (`sim.topology.fabric`).
    """

    software: Software = field(default_factory=Software)
    model: Model = "links"
    algorithm: str = ""
    device: str | Device | None = None
    device_for: str = ""
    fabric: bool = True

    @classmethod
    def ideal(cls, **counted: Any) -> Assumptions:
        """Return links alone, and what is *counted* by the names of `Counted`."""
        return cls(fabric=False).with_(**counted)

    @classmethod
    def of_a_real_run(cls, topology: Topology, *, on_gpu: bool = False, **counted: Any) -> Assumptions:
        """Return what a real run on *topology* would use and lose, but for what is *counted* otherwise.

        Where the network says what GPUs it has (``[hardware]``), NCCL as it would choose: by what was
        measured of it, else by what it expects of itself, unless another transport is named; of a program of
        ours each step is a group call of NCCL's, and takes what such a call does (`group_call`).  Elsewhere
        the cheapest of our programs, through shared memory on one host whose ranks have it, over Gloo between
        hosts.  All inefficiencies that apply.  Where ranks compute *on_gpu*, collectives go on by themselves,
        as NCCL's, on any network.
        """
        as_nccl = on_gpu or counted.get("model") in ("nccl", "measured")
        real = cls(
            Software(
                transport_model="nccl" if as_nccl else default_transport_model(topology),
                inefficiencies=(ALL,),
            ),
            default_model(topology.hardware, counted.get("transport_model")),
            default_algorithm(topology),
            *_default_device(topology),
        )
        asked = real.with_(**counted)
        of_steps = {name: counted.get(name) for name in ("step_overhead", "posting")}
        return replace(asked, software=_launching(asked.software, topology)).with_(**of_steps)

    @classmethod
    def on(
        cls,
        topology: Topology,
        network: object,
        given: Assumptions | None,
        counted: Mapping[str, Any],
        *,
        on_gpu: bool = False,
    ) -> Assumptions:
        """Return what holds where a *topology* is asked about: that of a *network*, or a bare one.

        Args:
            topology: the network.
            network: what brings its assumptions along; None: *topology* is bare, and knows its links alone.
            given: assumptions that hold instead.
            counted: by the names of `Counted`, what is otherwise.
            on_gpu: ranks compute on a GPU.
        """
        if given is None and network is not None:
            return cls.of_a_real_run(topology, on_gpu=on_gpu, **counted)
        asked = (given or cls.ideal()).with_(**counted)
        usual = "ring" if network is None else default_algorithm(topology)
        return asked if asked.algorithm else replace(asked, algorithm=usual)

    def with_(self, **counted: Any) -> Assumptions:
        """Return these assumptions with what is *counted* by the names of `Counted`; None changes nothing.

        Raises:
            TypeError: there is no such assumption.
        """
        given = {name: value for name, value in counted.items() if value is not None}
        terms = given.pop("losses", None)  # an older name
        terms = given.get("inefficiencies", terms)
        if terms is not None:
            given["inefficiencies"] = (terms,) if isinstance(terms, str) else tuple(terms)
        if "device" in given:
            given["device_for"] = ""
        of_software = {own.name: given.pop(own.name) for own in fields(Software) if own.name in given}
        return replace(self, software=replace(self.software, **of_software), **given)

    def in_words(self, inefficiencies: Sequence[str]) -> str:
        """Return what is counted, for reports; *inefficiencies* are the terms that ``all`` comes to."""
        lost = [f"inefficiencies: {', '.join(inefficiencies)}"] if inefficiencies else []
        if self.device_for and not {ALL, *OF_DEVICE}.isdisjoint(inefficiencies):
            lost.append(f"computed on {self.device}, nearest to {self.device_for}")
        registered = ["buffers registered as symmetric windows"] if self.software.symmetric else []
        counted = [IN_WORDS.get(self.model, self.software.in_words())]
        if self.model == "library" and (launched := self.software.launches_in_words()):
            counted.append(f"a program of ours takes {launched}")
        return "; ".join([*counted, *registered, *lost])

    def __str__(self) -> str:
        """Return what is counted, as it was asked for."""
        return self.in_words(self.software.inefficiencies)


def asked_topology(
    topology: Topology | None,
    network: str | NetworkDescription | None,
    num_ranks: int | None,
    assumptions: Assumptions | None,
) -> Topology:
    """Return the network on which something is asked: a bare topology, or a network of so many ranks.

    Ports of a network lose what its fabric says unless *assumptions* say that they do not.

    Raises:
        ValueError: both are given, or neither.
        NetworkFileError, TopologyError: there is no such network, or not of so many ranks.
    """
    if (topology is None) == (network is None):
        raise ValueError("expected a topology (links alone) or a network (what a real run uses), one of both")
    if topology is not None:
        if num_ranks not in (None, topology.num_ranks):
            raise ValueError(f"num_ranks={num_ranks}: the topology has {topology.num_ranks} ranks")
        return topology
    assert network is not None
    from sim.topology.description import load_network  # which brings pydantic along

    description = load_network(network) if isinstance(network, str) else network
    if assumptions is not None and not assumptions.fabric:
        description = description.without_fabric()
    return description.topology(num_ranks)


def default_transport_model(topology: Topology) -> str:
    """Return the name of the transport model that a real run on *topology* would follow."""
    if isinstance(topology.routing, HostRouting):
        return "shm"
    return "gloo" if topology.hardware is None else "nccl"


def _launching(software: Software, topology: Topology) -> Software:
    """Return *software* with what a step takes over NCCL; as it is where the GPUs are not known.

    With a protocol it is as it is, too: that is asked for where a program is one kernel, as NCCL's own are.
    """
    if topology.hardware is None or software.transport.name != "nccl" or software.protocol is not None:
        return software
    launch_us, posting_us = group_call(topology.hardware)
    return replace(software, step_overhead=f"{launch_us:.4g}us", posting=f"{posting_us:.4g}us")


def _default_device(topology: Topology) -> tuple[str | None, str]:
    """Return the device of the GPUs of *topology*, and for what it stands; see `sim.files.device_file`."""
    if topology.hardware is None:
        return None, ""
    from sim.files.device_file import device_of  # which brings pydantic along

    return device_of(topology.hardware)


def default_model(hardware: object | None, transport: str | TransportModel | None = None) -> Model:
    """Return by which model of time collectives go where nobody has chosen one.

    Args:
        hardware: of the network's GPUs; None: its file says nothing of any.
        transport: the transport model that is asked for; the library's times are of NCCL's own.
    """
    is_of_nccl = transport is None or transport_model(transport).name == "nccl"
    return "library" if hardware is not None and is_of_nccl else "links"


def default_algorithm(topology: Topology) -> str:
    """Return by what collectives on *topology* go where nobody has chosen: ``nccl`` or ``auto``."""
    return AUTO if topology.hardware is None else NCCL
