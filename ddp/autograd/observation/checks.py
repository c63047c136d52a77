"""Gradients that are checked on request: finite before they are summed, identical afterwards.

``finite`` looks at what each rank has computed, since a sum shows NaN on every rank and tells
nobody whose it was.  ``identical`` compares fingerprints of what each rank got, which differ where
ranks added up in different orders or a hook gave them different things.  Findings are exchanged
once per pass, in one small all-gather, so that every rank raises, and all say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch

from ddp.errors import GradientError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator

Check: TypeAlias = Literal["finite", "identical"]
CHECKS = ("finite", "identical")


class GradientChecks:
    """The checks of one module.

    Args:
        kind: ``finite`` or ``identical``.
        parameters: whose gradients are checked.
        names: of the parameters.

    Raises:
        ValueError: there is no such check.
    """

    def __init__(self, kind: Check, parameters: Sequence[Parameter], names: Sequence[str]) -> None:
        if kind not in CHECKS:
            raise ValueError(f"check_gradients must be None or one of {', '.join(CHECKS)}, got {kind!r}")
        self.kind = kind
        self._parameters = parameters
        self._names = names
        self._not_finite: list[int] = []
        self._iteration = 0

    def taken(self, index: int) -> None:
        """Look at the local gradient of a parameter, before it is summed."""
        grad = self._parameters[index].grad
        if self.kind == "finite" and grad is not None and not _values(grad).isfinite().all():
            self._not_finite.append(index)

    def reduced(self, communicator: Communicator) -> None:
        """Compare notes with all ranks at the end of a pass; a collective call.

        Raises:
            GradientError: on every rank, naming parameter, rank and iteration.
        """
        self._iteration += 1
        device = self._parameters[0].device
        if self.kind == "finite":
            row = torch.zeros(len(self._parameters), dtype=torch.int64, device=device)
            row[self._not_finite] = 1
            self._not_finite.clear()
        else:
            row = torch.tensor([_fingerprint(p.grad) for p in self._parameters], device=device)
        rows = row.new_empty(communicator.world_size * len(row))
        communicator.all_gather(rows, row)
        table: list[list[int]] = rows.view(communicator.world_size, -1).tolist()
        findings = self._not_finite_in(table) if self.kind == "finite" else self._differing_in(table)
        problem = next(iter(findings), None)
        if problem is not None:
            raise GradientError(f"iteration {self._iteration}: {problem}")

    def _not_finite_in(self, table: Sequence[Sequence[int]]) -> Iterable[str]:
        for rank, row in enumerate(table):
            names = [name for name, flag in zip(self._names, row, strict=True) if flag]
            if names:
                yield (
                    f"the gradient of {names[0]} that rank {rank} computed holds NaN or infinity"
                    f"{_others(len(names) - 1)}; look at that rank's loss and inputs"
                )

    def _differing_in(self, table: Sequence[Sequence[int]]) -> Iterable[str]:
        for rank, row in enumerate(table):
            pairs = zip(self._names, row, table[0], strict=True)
            names = [name for name, mine, first in pairs if mine != first]
            if names:
                yield (
                    f"the averaged gradient of {names[0]} differs between rank 0 and rank {rank}"
                    f"{_others(len(names) - 1)}; a communication hook or an all-reduce gives ranks different "
                    "results"
                )


def _others(count: int) -> str:
    return f" (and those of {count} other parameters)" if count else ""


def _values(grad: torch.Tensor) -> torch.Tensor:
    return grad if grad.layout is torch.strided else grad.coalesce().values()


@torch.no_grad()
def _fingerprint(grad: torch.Tensor | None) -> int:
    """Return a number that differs where a bit differs, with near certainty."""
    if grad is None:
        return -1
    octets = _values(grad).detach().contiguous().view(-1).view(torch.uint8).to(torch.int64)
    weights = torch.arange(1, len(octets) + 1, device=octets.device) * 2654435761 % (2**31 - 1)
    return int((octets * weights).sum())
