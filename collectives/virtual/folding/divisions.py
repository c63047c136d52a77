"""Divisions of tensors over ranks, and objects that ranks give: both tell ranks apart.

One thread speaks for all ranks of a class, so what they give to a collective is what that one gives.  Of
tensors without data that makes no difference, and of numbers that are data it is meant so.  But
``all_gather_object`` and its kin send, as bytes, what a script says of a rank, often its number, and the
results steer scripts.  So the objects that the first and the last of a class give are compared with all else
that they issue.

What a root alone gives, as DTensor does with the state of a random generator, tells no ranks apart where its
group is the only one of its kind: it speaks for itself, and all others give nothing.  Where there are groups
beside it, their roots are compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch

from collectives.communicators.requests import Request
from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.folding.classes import Division, MembersDiffer
from collectives.virtual.folding.verification import FEW_RANKS
from collectives.virtual.group_calls.results import given_by
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.world import VirtualWorld
from sim.cluster import current_rank_thread


def note_division(division: Division) -> None:
    """Note that something is divided over the ranks of a group."""
    rank_thread = current_rank_thread()
    if rank_thread is not None:
        VirtualWorld.of(rank_thread.cluster).classes.note_division(division)


def note_routed_size() -> None:
    """Note that a size follows from stated routing: ranks of one class may have others from now on.

    Those that go with an all-to-all are compared by its parts, in every iteration.

    Raises:
        MembersDiffer: the ranks of a class, which are few, are compared no more.
    """
    gpu = current_gpu()
    if gpu is None:
        return
    cluster, rank = gpu.rank_thread.cluster, gpu.rank_thread.rank
    classes = VirtualWorld.of(cluster).classes
    own = classes.uncompared(rank, len(gpu.score))
    if own is None or classes.has_splits:
        return
    if len(own.ranks) > FEW_RANKS:
        Notices.of(cluster).add(SIZES_NOT_COMPARED, current_place())
        return
    ranks = frozenset(own.ranks)
    raise MembersDiffer(
        f"{spell_ranks(own.ranks)}: sizes that follow from routing",
        lambda member: member if member in ranks else None,
    )


@dataclass(frozen=True)
class Rows:
    """Rows of a tensor: all parts are as long as the first, up to where the rows end."""

    size: int
    parts: int

    @property
    def is_even(self) -> bool:
        """Whether all parts are as long."""
        return self.size % self.parts == 0

    def part(self, number: int) -> int:
        """Return how long a part is."""
        length = -(-self.size // self.parts)
        return min(max(self.size - number * length, 0), length)

    def __str__(self) -> str:
        return f"{self.size} over {self.parts} ranks"


@dataclass(frozen=True)
class Flat:
    """Tensors one after the other in a flat one, whose parts are equally long, whatever tensors are there.

    Attributes:
        sizes: elements of the tensors.
        parts: how many ranks.
        length: elements of a part.
    """

    sizes: tuple[int, ...]
    parts: int
    length: int

    @property
    def is_even(self) -> bool:
        """Whether all parts have pieces as long, of as many tensors."""
        return all(self.part(number) == self.part(0) for number in range(1, self.parts))

    def part(self, number: int) -> tuple[int, ...]:
        """Return how much of each tensor lies in a part, of those of which something does."""
        first, last = number * self.length, (number + 1) * self.length
        ends = list(accumulate(self.sizes))
        lengths = (
            min(end, last) - max(end - size, first) for size, end in zip(self.sizes, ends, strict=True)
        )
        return tuple(length for length in lengths if length > 0)

    def __str__(self) -> str:
        return f"{len(self.sizes)} tensors, {sum(self.sizes)} elements, over {self.parts} ranks"


@dataclass(frozen=True)
class Shares:
    """Tensors each of which belongs to one rank."""

    sizes: tuple[tuple[int, ...], ...]

    @property
    def parts(self) -> int:
        """How many ranks."""
        return len(self.sizes)

    @property
    def is_even(self) -> bool:
        """Whether all ranks have tensors of the same sizes."""
        return len(set(self.sizes)) == 1

    def part(self, number: int) -> tuple[int, ...]:
        """Return the sizes of the tensors of a rank."""
        return self.sizes[number]

    def __str__(self) -> str:
        return f"{sum(map(len, self.sizes))} tensors over {self.parts} ranks"


NOT_COMPARED = (
    "one thread speaks for ranks that do the same: objects that they gave to collectives after they had been "
    "compared are those of one of them (--fold off gives each its own)"
)

SIZES_NOT_COMPARED = (
    "one thread speaks for ranks that do the same: sizes that followed from --routing after they had been "
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
