"""Results of collectives as their definitions say them, whatever program carries them out.

For what only moves data, and for reductions of integers, which come to the same in any order, no program has
to run.  Sums and products of floating-point numbers depend on the order: those of ranks that all have a
thread are left to the program (`collectives.virtual.group_calls.untimed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import torch

from collectives.communicators.reduction import REDUCE
from collectives.communicators.requests import Request, flat
from collectives.errors import MismatchError
from collectives.execution.call import Call

T = TypeVar("T")
Results = Callable[[int], torch.Tensor | None]
"""Returns what the rank of a number within the group gets, flat; None where it gets nothing."""

REDUCES = frozenset({"all_reduce", "reduce", "reduce_scatter"})


def depends_on_order(request: Request) -> bool:
    """Return whether the result depends on the order in which the ranks' contributions are reduced."""
    if request.collective not in REDUCES:
        return False
    return (request.dtype.is_floating_point or request.dtype.is_complex) and request.op in (
        "sum", "avg", "product",
    )  # fmt: skip


def given_by(request: Request) -> torch.Tensor | None:
    """Return what a rank gives: in place, where it has nothing else; None where it gives nothing."""
    if request.collective in ("scatter", "gather"):
        return request.given
    return request.output if request.given is None else request.given


def results_of(request: Request, given: Sequence[torch.Tensor | None]) -> Results:
    """Return what each rank gets of a collective.

    Args:
        request: of any rank: says which collective, with which reduction and root.
        given: what each rank gives, flat; None where the collective does not ask for it.
    """
    world_size, root = len(given), request.root
    match request.collective:
        case "all_gather":
            whole = torch.cat(_all(given))
            return lambda rank: whole
        case "gather":
            gathered = torch.cat(_all(given))
            return lambda rank: gathered if rank == root else None
        case "all_reduce":
            total = _reduced(request.op, _all(given))
            return lambda rank: total.clone()
        case "reduce":
            at_root = _reduced(request.op, _all(given))
            return lambda rank: at_root if rank == root else None
        case "reduce_scatter":
            parts = _reduced(request.op, _all(given)).view(world_size, -1)
            return lambda rank: parts[rank]
        case "broadcast" | "scatter":
            assert root is not None
            sent = given[root]
            assert sent is not None
            sent = sent.clone()
            if request.collective == "broadcast":
                return lambda rank: sent
            return lambda rank: sent.view(world_size, -1)[rank]
        case "all_to_all":
            exchanged = torch.stack([tensor.view(world_size, -1) for tensor in _all(given)], dim=1)
            return lambda rank: exchanged[rank].reshape(-1)
        case _:
            return lambda rank: None


def parts_of(call: Call, requests: Sequence[Request]) -> Results:
    """Return what each rank gets of an all-to-all of parts of any size.

    Raises:
        MismatchError: two ranks disagree about the size of a part; names all such.
    """
    given = [flat(tensor) for tensor in _all([request.given for request in requests])]
    splits = [request.splits for request in requests]
    received = [own[0] for own in _all(splits)]
    sent = [own[1] for own in _all(splits)]
    ranks = range(len(requests))
    disagreements = [
        f"rank {source} sends {sent[source][destination]} elements to rank {destination}, which expects "
        f"{received[destination][source]}"
        for source in ranks
        for destination in ranks
        if sent[source][destination] != received[destination][source]
    ]
    if disagreements:
        raise MismatchError(f"{call}: {'; '.join(disagreements)}")
    starts = [list(pairwise(accumulate(sizes, initial=0))) for sizes in sent]
    exchanged = [
        torch.cat([given[source][slice(*starts[source][rank])] for source in ranks]) for rank in ranks
    ]
    return lambda rank: exchanged[rank]


def _all(given: Sequence[T | None]) -> list[T]:
    found = [value for value in given if value is not None]
    if len(found) < len(given):
        raise RuntimeError(f"{len(given) - len(found)} of {len(given)} ranks have given nothing")
    return found


def _reduced(op: str, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the reduction in the order of ranks; an average is divided by whoever hands it out."""
    total = given[0].clone()
    for other in given[1:]:
        REDUCE[op](total, other)
    return total
