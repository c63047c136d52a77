"""Model of a step's communication: what of software, transport and protocol is counted.

The default counts nothing but the network, as `collectives.simulation.simulation.simulate` does: with it
closed forms hold exactly.  Whatever else is counted is asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from collectives.catalogue.native import by_itself
from collectives.catalogue.selectors import NATIVE
from collectives.execution.transport_model import TransportModel, transport_model
from collectives.models.nccl.constants import NcclProtocol
from collectives.simulation.closed_forms import Model
from collectives.simulation.defaults import default_model, default_transport_model
from sim.hardware import Device
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.units import Quantity


@dataclass(frozen=True)
class StepModel:
    """What the communication of a simulated step follows from, besides the network.

    Attributes:
        overhead: of each message, on either side (see `sim.scenario.rank_overhead`).
        arrival_overhead: from the last byte of a message until its receiver knows.
        reduction_bandwidth: at which a rank reduces; None: reducing takes no time.
        protocol: of NCCL, for what it leaves of a link and its latency.
        model: ``links``, where programs run on the links; or a closed form (see
            `collectives.simulation.closed_forms`), by which each bucket takes its time, one after another.
        transport_model: how a step of a program is completed (see `collectives.execution.transport_model`).
        losses: terms of what a step loses besides the time of its messages (see `ddp.simulation.losses`).
        device: on which a rank computes, for *losses*; None: what the network's hardware says.
    """

    overhead: Quantity = 0
    arrival_overhead: Quantity = 0
    reduction_bandwidth: Quantity | None = None
    protocol: NcclProtocol | None = None
    model: Model = "links"
    transport_model: str | TransportModel = "ideal"
    losses: tuple[str, ...] = ()
    device: str | Device | None = None

    @classmethod
    def of(cls, **counted: Any) -> StepModel:
        """Return the model with fields *counted*, of which None counts nothing."""
        given = {name: value for name, value in counted.items() if value is not None}
        if "losses" in given:
            given["losses"] = tuple(given["losses"])
        return cls(**given)

    @property
    def transport(self) -> TransportModel:
        """How a step of a program is completed.

        Raises:
            ValueError: there is no such transport model.
        """
        return transport_model(self.transport_model)

    @property
    def is_ideal(self) -> bool:
        """Whether nothing but the network is counted, so that figures are those of `IDEAL`."""
        as_ideal = replace(self.transport, name=IDEAL.transport.name) == IDEAL.transport
        counts = self.protocol is not None or self.model != "links" or bool(self.losses)
        return as_ideal and self.rank_overhead().is_free and not counts

    def running(self, algorithm: object) -> StepModel:
        """Return this model for *algorithm*: what is ``native`` goes on while its rank computes."""
        if algorithm != NATIVE or self.model != "links":
            return self
        return replace(self, transport_model=by_itself(self.transport))

    def rank_overhead(self) -> RankOverhead:
        """Return what ranks add to the time of the network, where no condition holds.

        Raises:
            UnitError: a quantity that cannot be read.
        """
        return RankOverhead.of(
            self.overhead, self.reduction_bandwidth, arrival_overhead=self.arrival_overhead
        )

    def options(self) -> dict[str, Any]:
        """Return the same as keyword arguments of `ddp.simulation.simulated_step.simulate_step`."""
        return {own.name: getattr(self, own.name) for own in fields(self)}

    def of_a_collective(self, topology: Topology) -> dict[str, Any]:
        """Return what of it a collective on *topology* has, as arguments of `collectives.simulate`."""
        options = self.options()
        del options["losses"], options["device"]
        if self.model == "links" and {ALL, "rate"} & {*self.losses}:
            options["model"] = default_model(topology)
        return options

    def in_words(self, losses: Sequence[str]) -> str:
        """Return what is counted, for reports; *losses* are the terms that ``all`` has come to."""
        lost = [f"losses: {', '.join(losses)}"] if losses else []
        if self.model != "links":
            return "; ".join([IN_WORDS[self.model], *lost])
        parts = [f"transport model {self.transport.name}"]
        if self.overhead:
            parts.append(f"{self.overhead} of overhead for each message on either side")
        if self.arrival_overhead:
            parts.append(f"{self.arrival_overhead} until its arrival is known")
        if self.reduction_bandwidth is not None:
            parts.append(f"reduction at {self.reduction_bandwidth}")
        if self.protocol is not None:
            parts.append(f"protocol {self.protocol}")
        return "; ".join([", ".join(parts), *lost])

    def __str__(self) -> str:
        """Return what is counted, as it was asked for."""
        return self.in_words(self.losses)


IDEAL = StepModel()
"""Nothing but the network is counted."""

IN_WORDS = {
    "library": "each bucket takes what was measured of NCCL, or what NCCL expects",
    "measured": "each bucket takes what was measured",
    "nccl": "each bucket takes what NCCL expects",
}
"""What a closed form counts, for reports."""

ALL = "all"
"""Losses: those that apply."""


def as_a_real_run(topology: Topology, **counted: Any) -> StepModel:
    """Return what is counted of a real run on *topology*: its transport, and all losses that apply.

    Args:
        topology: the network.
        counted: fields of the model that are something else; None: as of a real run.
    """
    by_formula = counted.get("model") not in (None, "links")
    real = {
        "transport_model": "nccl" if by_formula else default_transport_model(topology),
        "losses": (ALL,),
    }
    return StepModel.of(**real | {name: value for name, value in counted.items() if value is not None})
