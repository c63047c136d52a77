"""Options of what a prediction counts besides the network: software, protocol, transport."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from ddp.simulation.step_model import StepModel
    from sim.topology import Topology


NONE = "none"


class ModelName(StrEnum):
    """What a time follows from."""

    LINKS = "links"
    NCCL = "nccl"
    MEASURED = "measured"
    LIBRARY = "library"


class ProtocolName(StrEnum):
    """NCCL's protocols."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class TransportModelName(StrEnum):
    """How a transport completes a step."""

    IDEAL = "ideal"
    GLOO = "gloo"
    NCCL = "nccl"
    SHM = "shm"


Overhead: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Software overhead of each message, on either side, such as 1us."),
]
ArrivalOverhead: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From a message's last byte until its receiver knows, such as 50us."),
]
ReductionBandwidth: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="RATE", help="At which a rank reduces, such as 200GB/s; else at no cost."),
]
CallOverhead: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of a call on each rank, before its first step, such as 100us."),
]
CopyBandwidth: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="RATE", help="At which a rank copies what calls copy around programs; else at no cost."
    ),
]
Protocol: TypeAlias = Annotated[
    ProtocolName | None,
    typer.Option(help="NCCL protocol, which takes bandwidth from links and adds latency."),
]
StepModelName: TypeAlias = Annotated[
    ModelName | None,
    typer.Option(
        "--model",
        help="links: messages share links; nccl: each bucket takes what NCCL expects of it; measured: what "
        "tables in the network's file say; library: measured where there is a table, else nccl.",
    ),
]
Losses: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="What a step loses besides, separated by commas: contention, late, launches, copies, optimizer, "
        "rate, input:time=80ms; all: those that apply; none.  [all; none with --ideal]",
    ),
]
OnDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME|FILE",
        help="On which a rank computes, for --losses; by default that of the network's hardware.",
    ),
]
TransportModel: TypeAlias = Annotated[
    TransportModelName | None,
    typer.Option(
        help="How a step of a collective is completed (docs/modelling.md): by default as over what would "
        "really run, nccl where the network names its hardware, shm on one host, else gloo."
    ),
]


@dataclass(frozen=True)
class SoftwareOptions:
    """Options for what software adds to the network, and for the transport that it uses."""

    overhead: Overhead = None
    arrival_overhead: ArrivalOverhead = None
    reduction_bandwidth: ReductionBandwidth = None
    protocol: Protocol = None
    transport_model: Annotated[
        TransportModelName | None,
        typer.Option(
            help="How steps of collectives are completed, and when they go on; by default as over what "
            "would really run: nccl where the network names its hardware or ranks compute on a GPU, else "
            "gloo."
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether one of them was."""
        return any(vars(self).values())

    def arguments(self, topology: Topology, on_gpu: bool = False) -> dict[str, Any]:
        """Return them as arguments of `collectives.virtual.run` on *topology*.

        Args:
            topology: the network.
            on_gpu: whether ranks compute on a GPU, whose collectives are those of NCCL unless another
                transport is chosen.
        """
        from collectives.simulation import default_transport_model

        chosen = self.transport_model
        default = "nccl" if on_gpu else default_transport_model(topology)
        return {
            "overhead": self.overhead or 0,
            "arrival_overhead": self.arrival_overhead or 0,
            "reduction_bandwidth": self.reduction_bandwidth,
            "protocol": None if self.protocol is None else self.protocol.value,
            "transport_model": default if chosen is None else chosen.value,
        }


Ideal: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ideal", help="Count nothing but the links, and what other options ask for; else as in a real run."
    ),
]


@dataclass(frozen=True)
class StepModelOptions:
    """Options for what a predicted training step counts besides the links: by default, as in a real run."""

    overhead: Overhead = None
    arrival_overhead: ArrivalOverhead = None
    reduction_bandwidth: ReductionBandwidth = None
    protocol: Protocol = None
    model: StepModelName = None
    transport_model: TransportModel = None
    losses: Losses = None
    device: OnDevice = None
    ideal: Ideal = False

    def on(self, topology: Topology) -> StepModel:
        """Return what they ask to be counted on *topology*."""
        from ddp.simulation.step_model import StepModel, as_a_real_run

        losses = (
            None if self.losses is None else [own for own in self.losses.split(",") if own not in ("", NONE)]
        )
        counted = {
            "overhead": self.overhead,
            "arrival_overhead": self.arrival_overhead,
            "reduction_bandwidth": self.reduction_bandwidth,
            "protocol": None if self.protocol is None else self.protocol.value,
            "model": None if self.model is None else self.model.value,
            "transport_model": None if self.transport_model is None else self.transport_model.value,
            "losses": losses,
            "device": self.device,
        }
        return StepModel.of(**counted) if self.ideal else as_a_real_run(topology, **counted)
