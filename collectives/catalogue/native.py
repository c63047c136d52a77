"""Native programs: what the vendor's own collectives do, as programs that can be simulated.

Of Gloo, whose algorithms are `collectives.algorithms.gloo`.  NCCL's are its own search's; the closed form
``model="nccl"`` answers for those.

What Gloo awaits comes nearest to sends that are awaited late (the transport model ``gloo``), in each of
them.  A broadcast awaits its sends at the end, and a gather, a scatter and an all-to-all post everything at
once.  A ring awaits a send two segments later; but a send is over when the kernel has taken its bytes, which
is before its receiver has them all, so it is not what a ring waits for.  Other than our programs, Gloo's
go on while the rank computes: it has threads of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from collectives.algorithms.direct import direct_gather, direct_scatter
from collectives.algorithms.gloo.all_to_all import gloo_all_to_all
from collectives.algorithms.gloo.ring import (
    IN_FLIGHT,
    gloo_ring,
    gloo_ring_all_gather,
    gloo_ring_reduce,
    gloo_ring_reduce_scatter,
)
from collectives.algorithms.gloo.tree import gloo_tree_broadcast
from collectives.errors import NotSupportedError
from collectives.execution.transport_model import TransportModel
from collectives.program import Algorithm

MAX_SEGMENT_NBYTES = 1 << 20
"""Of Gloo's rings (``kMaxSegmentSize`` in gloo/allreduce.h and gloo/reduce.h)."""

_GLOO = {
    native.collective: native
    for native in (
        gloo_ring,
        gloo_ring_reduce_scatter,
        gloo_ring_all_gather,
        gloo_ring_reduce,
        gloo_tree_broadcast,
        direct_gather,
        direct_scatter,
        gloo_all_to_all,
    )
}


def native_program(collective: str, num_ranks: int, nbytes: int, itemsize: int = 1) -> Algorithm:
    """Return what torch over Gloo runs for *collective*.

    Args:
        collective: its name.
        num_ranks: that take part.
        nbytes: of the buffer, as nccl-tests counts it.
        itemsize: bytes of an element.

    Raises:
        NotSupportedError: Gloo has no such collective.
    """
    if collective not in _GLOO:
        raise NotSupportedError(f"Gloo has no {collective}; it has {', '.join(_GLOO)}")
    native = _GLOO[collective]
    if "segments" in native.parameter_names():
        return native.with_parameters(segments=num_segments(num_ranks, nbytes, itemsize))
    return native


@dataclass(frozen=True)
class Native:
    """What torch over Gloo runs, by collective and size; a `collectives.catalogue.selectors.Selector`.

    Attributes:
        num_ranks: of the group.
        itemsize: bytes of an element.
    """

    num_ranks: int
    itemsize: int = 1

    def select(self, collective: str, nbytes: int) -> Algorithm:
        """Return the program for *nbytes* bytes, as nccl-tests counts them."""
        return native_program(collective, self.num_ranks, nbytes, self.itemsize)


def native_over(model: TransportModel, num_ranks: int, itemsize: int = 1) -> Native:
    """Return what ``native`` means where messages pass as *model* says.

    A model that is Gloo's but for a rule is called *gloo with* that, and stands for the same programs.

    Raises:
        NotSupportedError: the model is not Gloo's, so that no program is known.
    """
    if model.name.partition(" ")[0] != "gloo":
        raise NotSupportedError(
            f"native: which program a vendor runs is known for transport_model='gloo', not for "
            f"{model.name!r}; take transport_model='gloo'; or, for what NCCL takes, model='nccl' or "
            "'measured' where there is one; or name an algorithm, such as ring"
        )
    return Native(num_ranks, itemsize)


def by_itself(model: TransportModel) -> TransportModel:
    """Return *model* for the vendor's own collectives, which go on while a rank computes."""
    return replace(model, progress="itself")


def num_segments(num_ranks: int, nbytes: int, itemsize: int = 1) -> int:
    """Return into how many segments Gloo's rings divide the chunk of a rank."""
    largest = itemsize * max(1, MAX_SEGMENT_NBYTES // itemsize)
    return -(-max(-(-nbytes // largest), IN_FLIGHT * num_ranks) // num_ranks)
