"""Transport models: how a transport completes a step, when it progresses, and when it reduces.

The programs are the same on every transport, but not the order in which a rank awaits its messages.  Each
model states the rule of one transport, and a simulation follows it:

    ideal   each step's sends and receives are awaited; a collective goes on by itself
    gloo    our programs over Gloo (`collectives.transports.gloo`): sends are awaited late, and a collective
            goes on when its rank calls (`collectives.transports.progress`)
    nccl    our programs over NCCL: one group call for each step on a stream, which goes on by itself, and
            a kernel that reduces after it (`collectives.transports.nccl`)

What software takes of each message is no part of a model: it is a quantity of its own, on the sender's and
the receiver's side (`sim.scenario.rank_overhead`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True)
class TransportModel:
    """How a transport completes a step.

    Attributes:
        name: by which it is asked for and reported.
        late_sends: a step is complete when its receives are; a send is awaited before memory that it reads
            is written, and at the end.  Otherwise a step is complete when its sends are, too.
        progress: whether a collective goes on by ``itself`` while its rank computes, or on the rank's
            ``calls`` alone: those that start, test or await a collective, and the hooks of a backward pass.
        reduces: ``after`` the last byte of the step, or while bytes are ``arriving``, which costs nothing
            unless it is slower than the wire.
    """

    name: str
    late_sends: bool = False
    progress: Literal["itself", "calls"] = "itself"
    reduces: Literal["after", "arriving"] = "after"


IDEAL = TransportModel("ideal")

TRANSPORT_MODELS: Mapping[str, TransportModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            IDEAL,
            TransportModel("gloo", late_sends=True, progress="calls"),
            TransportModel("nccl"),
        )
    }
)
"""Those that have a name."""


def transport_model(model: str | TransportModel) -> TransportModel:
    """Return the transport model of that name; a model is returned as it is.

    Raises:
        ValueError: there is no model of that name; names those that there are.
    """
    if isinstance(model, TransportModel):
        return model
    if model not in TRANSPORT_MODELS:
        raise ValueError(f"transport_model must be one of {', '.join(TRANSPORT_MODELS)}, got {model!r}")
    return TRANSPORT_MODELS[model]
