"""Options of what a prediction counts besides the network: software, protocol, transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from ddp.simulation.step_model import StepModel
    from sim.topology import Topology


ALL, NONE = "all", "none"


class ModelName(StrEnum):
    """What a time follows from."""

    LINKS = "links"
    NCCL = "nccl"
    MEASURED = "measured"


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
    ModelName,
    typer.Option(
        "--model",
        help="links: messages share links; nccl: each bucket takes what NCCL expects of it; measured: what "
        "tables in the network's file say.",
    ),
]
Losses: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="LIST",
        help="What a step loses besides, separated by commas: contention, late, launches, copies, optimizer, "
        "rate, input:time=80ms; all: those that apply; none.",
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
    typer.Option(help="How a step of a collective is completed; see docs/modelling.md."),
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


@dataclass(frozen=True)
class StepModelOptions:
    """Options for what a predicted training step counts besides the links."""

    overhead: Overhead = None
    arrival_overhead: ArrivalOverhead = None
    reduction_bandwidth: ReductionBandwidth = None
    protocol: Protocol = None
    model: StepModelName = ModelName.LINKS
    transport_model: TransportModel = None
    losses: Losses = NONE
    device: OnDevice = None

    def step_model(self) -> StepModel:
        """Return what they ask to be counted; a transport that is not named is ideal."""
        from ddp.simulation.step_model import StepModel

        return StepModel(
            overhead=self.overhead or 0,
            arrival_overhead=self.arrival_overhead or 0,
            reduction_bandwidth=self.reduction_bandwidth,
            protocol=None if self.protocol is None else self.protocol.value,
            model=self.model.value,
            transport_model=(self.transport_model or TransportModelName.IDEAL).value,
            losses=tuple(name for name in self.losses.split(",") if name not in ("", NONE)),
            device=self.device,
        )


@dataclass(frozen=True)
class LossyStepModelOptions(StepModelOptions):
    """The same, where what a step loses is counted unless it is left out."""

    losses: Losses = ALL


def as_a_real_run(model: StepModel) -> Callable[[Topology], StepModel]:
    """Return *model* with the transport that a real run would use on a topology."""
    from dataclasses import replace

    from collectives.simulation import default_transport_model

    def on(topology: Topology) -> StepModel:
        default = default_transport_model(topology) if model.model == "links" else "nccl"
        return replace(model, transport_model=default)

    return on
