"""Transport models: how a transport completes a step, when it progresses, and when it reduces.

The programs are the same on every transport, but not the order in which a rank awaits its messages.  Each
model states the rule of one transport, and a simulation follows it:

    ideal   each step's sends and receives are awaited; a collective goes on by itself
    gloo    our programs over Gloo (`collectives.transports.gloo`): sends are awaited late, and a collective
            goes on when its rank calls (`collectives.transports.progress`)
    nccl    our programs over NCCL: one group call for each step on a stream, which goes on by itself, and
            a kernel that reduces after it (`collectives.transports.nccl`)
    shm     our programs through memory that ranks share (`collectives.transports.shared_memory`): as over
            Gloo, but ranks carry the bytes themselves, and reduce them as they come

Over ``shm`` every send counts as one that is read where it lies, as it is of registered tensors; a copy of
others is made first, so that a step which writes there need not wait.

What software takes of each message is no part of a model: it is a quantity of its own, on the sender's and
the receiver's side (`sim.scenario.rank_overhead`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from collectives.errors import NotSupportedError


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
        carried_by: whether bytes move in the ``network``, or ``ranks`` move them on their own processors, so
            that none moves while they compute.
    """

    name: str
    late_sends: bool = False
    progress: Literal["itself", "calls"] = "itself"
    reduces: Literal["after", "arriving"] = "after"
    carried_by: Literal["network", "ranks"] = "network"

    def check_overlap(self, what: str) -> None:
        """Check that what computes may do so beside its collectives.

        Args:
            what: computes, in words.

        Raises:
            NotSupportedError: ranks carry the bytes themselves.
        """
        if self.carried_by == "ranks":
            raise NotSupportedError(
                f"{what}: over transport model {self.name!r} ranks carry the bytes themselves, and what that "
                "takes of computation is not modelled; simulate collectives alone, or take the model gloo"
            )


IDEAL = TransportModel("ideal")

TRANSPORT_MODELS: Mapping[str, TransportModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            IDEAL,
            TransportModel("gloo", late_sends=True, progress="calls"),
            TransportModel("nccl"),
            TransportModel("shm", late_sends=True, progress="calls", reduces="arriving", carried_by="ranks"),
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
