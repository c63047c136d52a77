"""Objects that ranks give to collectives, as bytes, which tell ranks apart where they are known.

One thread speaks for all ranks of a class, so what they give is what that one gives.  Of tensors without data
that makes no difference, and of numbers that are data it is meant so.  But ``all_gather_object`` and its kin
send what a script says of a rank, often its number, and the results steer scripts.  So the objects that the
first and the last of a class give are compared with all else that they issue.

What a root alone gives, as DTensor does with the state of a random generator, tells no ranks apart where its
group is the only one of its kind: it speaks for itself, and all others give nothing.  Where there are groups
beside it, their roots are compared with each other.
"""

from __future__ import annotations

import torch

from collectives.communicators.requests import Request
from collectives.virtual.group_calls.results import given_by

NOT_COMPARED = (
    "one thread speaks for ranks that do the same: objects that they gave to collectives after they had been "
    "compared are those of one of them (--fold off gives each its own)"
)

COLLECTING = ("gather", "reduce")
"""Rooted collectives to which all ranks give something."""


def objects_given(request: Request, rank: int) -> int | None:
    """Return what stands for the bytes that *rank* of a group gives to a collective or message.

    None where it gives none, or none that are known.  Torch sends objects as tensors of bytes.
    """
    if not may_be_objects(request):
        return None
    source = request.root if request.lane is None else request.lane[0]
    if source not in (None, rank) and request.collective not in COLLECTING:
        return None
    tensor = given_by(request)
    return None if tensor is None or tensor.is_meta else hash(tensor.detach().cpu().numpy().tobytes())


def may_be_objects(request: Request) -> bool:
    """Return whether what is given may be objects, by its type."""
    return request.dtype is torch.uint8 and request.collective != "barrier"


def is_of_root(request: Request) -> bool:
    """Return whether its root alone gives something."""
    return request.root is not None and request.collective not in COLLECTING
