"""Payload of a measured collective: small integers, of which any wrong one shows.

At a position, counted through the whole buffer, each rank has another number, and so have the
positions after each other; a part that is missing, doubled, late or at another's place is seen.
Sums fit every type, up to 255 ranks, so every order of addition gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from testbed.errors import UsageError

if TYPE_CHECKING:
    import torch

    from collectives.communicators.communicator import Communicator

    Zeros = Callable[[int, torch.dtype, torch.device | str], torch.Tensor]

ITEM_SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "uint8": 1}
"""The types that can be measured, and their bytes."""

REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "gather", "reduce", "scatter")
ROOT = 0

MOST = 255
"""The largest integer up to which every measured type has all."""

PERIOD = 251
"""After which positions the numbers repeat where nothing is added: a prime, so parts differ."""


def num_parts(collective: str, world_size: int) -> int:
    """Return of how many equal parts the buffer consists, each of which is a call's parameter."""
    return world_size if _has_equal_parts(collective) else 1


def count_of(size_bytes: int, dtype: str, collective: str = "all_reduce", world_size: int = 1) -> int:
    """Return how many elements of *dtype* the tensor of a buffer of *size_bytes* holds, or each part.

    Raises:
        UsageError: the type is unknown, or not one element fits.
    """
    if dtype not in ITEM_SIZES:
        raise UsageError(f"--dtype {dtype}: expected one of {', '.join(ITEM_SIZES)}")
    parts = num_parts(collective, world_size)
    count = size_bytes // (ITEM_SIZES[dtype] * parts)
    if count == 0:
        each = f" for each of {parts} ranks; begin at {ITEM_SIZES[dtype] * parts} B" if parts > 1 else ""
        raise UsageError(f"--nbytes: {size_bytes} B holds no element of {dtype}{each}")
    return count


def size_of(count: int, dtype: str, collective: str, world_size: int) -> int:
    """Return the bytes of the whole buffer, as nccl-tests counts them."""
    return count * ITEM_SIZES[dtype] * num_parts(collective, world_size)


def _has_equal_parts(collective: str) -> bool:
    from collectives.program.contracts import CONTRACTS  # brings NumPy, which --help does without

    return CONTRACTS[collective].equal_parts


def _ordinary(count: int, dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    import torch

    return torch.zeros(count, dtype=dtype, device=device)


class Payload:
    """The tensors of one rank for one collective, and what must be in them after it.

    Args:
        collective: its name.
        count: elements of the tensor, or of a rank's part where the buffer consists of parts.
        dtype: of the elements.
        rank: whose tensors they are.
        world_size: number of ranks; the root is rank 0.
        device: where the tensors live.
        zeros: returns memory for them; see `collectives.communicators.communicator.Communicator.zeros`.
    """

    def __init__(
        self,
        collective: str,
        count: int,
        dtype: torch.dtype,
        *,
        rank: int,
        world_size: int,
        device: torch.device | str = "cpu",
        zeros: Zeros | None = None,
    ) -> None:
        zeros = zeros or _ordinary
        self.collective = collective
        self.count = count
        self.rank = rank
        self.world_size = world_size
        whole = count * num_parts(collective, world_size)
        gives, takes = {
            "all_gather": (count, whole),
            "gather": (count, whole if rank == ROOT else 0),
            "reduce_scatter": (whole, count),
            "scatter": (whole if rank == ROOT else 0, count),
        }.get(collective, (whole, whole))
        self.output = zeros(takes, dtype, device)
        in_place = not _has_equal_parts(collective)
        self.input = self.output if in_place else zeros(gives, dtype, device)

    def call(self, communicator: Communicator) -> None:
        """Carry the collective out, once, and wait for it."""
        function = getattr(communicator, self.collective)
        if self.input is self.output:
            function(self.output)
        else:
            function(self.output if len(self.output) else None, self.input if len(self.input) else None)

    def clear(self) -> None:
        """Write zeros, which stay zeros however often they are reduced."""
        self.input.zero_()

    def count_wrong(self, communicator: Communicator) -> int:
        """Carry the collective out on known numbers; return how many come out wrong on this rank."""
        self.output.fill_(MOST)
        if self.collective != "broadcast" or self.rank == ROOT:
            self.input.copy_(self._along(self._numbers(self.rank), 0, len(self.input)))
        self.call(communicator)
        wrong = 0
        for part, (numbers, position) in zip(self.output.split(self.count), self._expected(), strict=False):
            wrong += int((part != self._along(numbers, position, len(part))).sum())
        return wrong

    def _expected(self) -> list[tuple[list[int], int]]:
        """Return, for each part of the output, the numbers of a period and at which one it begins."""
        own, numbers = self.rank * self.count, self._numbers
        match self.collective:
            case "all_reduce":
                return [(self._sums(), 0)]
            case "reduce":
                return [(self._sums() if self.rank == ROOT else numbers(self.rank), 0)]
            case "reduce_scatter":
                return [(self._sums(), own)]
            case "broadcast":
                return [(numbers(ROOT), 0)]
            case "scatter":
                return [(numbers(ROOT), own)]
            case "all_gather" | "gather":
                return [(numbers(rank), 0) for rank in range(self.world_size)]
            case "all_to_all":
                return [(numbers(rank), own) for rank in range(self.world_size)]
        raise ValueError(f"no payload is known for {self.collective}")

    @property
    def _period(self) -> int:
        return max(2, 1 + MOST // self.world_size) if self.collective in REDUCING else PERIOD

    def _numbers(self, rank: int) -> list[int]:
        """Return one period of what *rank* has before the call."""
        return [((position + 1) * (rank + 1) - 1) % self._period for position in range(self._period)]

    def _sums(self) -> list[int]:
        return [sum(column) for column in zip(*map(self._numbers, range(self.world_size)), strict=True)]

    def _along(self, numbers: list[int], position: int, length: int) -> torch.Tensor:
        """Return *length* of *numbers*, over and over, from *position* on."""
        import torch

        start = position % len(numbers)
        turned = torch.tensor(numbers[start:] + numbers[:start]).to(self.output)
        return turned.repeat(-(-length // len(numbers)))[:length]
