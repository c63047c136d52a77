"""Scenarios of DDP: what ranks do with torch's and with ours, on processes over Gloo and on rank threads.

cases = Scenarios()

@cases.add({}, {"bucket_cap_mb": 0.5}, expected=[1.5])
def a_gradient_is_averaged(make, rank):
    model = make(nn.Linear(1, 1, bias=False))
    model(torch.full((1, 1), rank + 1.0)).backward()
    return [model.module.weight.grad.item()]

@cases.test
def test_our_ddp_does_as_torchs(pool, scenario, place):
    scenario.check(pool, place)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddp
from tests.ddp.rank_threads import on_ranks
from tests.distributed.gloo_callbacks import callbacks_gone
from tests.distributed.pool import WorkerPool

TORCH, OURS = DistributedDataParallel, ddp.DistributedDataParallel
PLACES = ("processes", "threads")
OURS_ALONE = {"algorithm", "strategy", "timeout", "recorder", "check_gradients"}
"""Options that torch's DDP has not."""

Run = Callable[..., Any]
F = TypeVar("F", bound=Run)
UNKNOWN = "no closed form"


def net() -> nn.Module:
    """Return two layers."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def inputs(rank: int, steps: int) -> list[torch.Tensor]:
    """Return what this rank puts into them."""
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(3, 4, generator=generator) for _ in range(steps)]


def line() -> nn.Module:
    """Return a layer of one weight, whose gradient is the mean of what ranks put in."""
    return nn.Linear(1, 1, bias=False)


def number(value: float) -> torch.Tensor:
    """Return what ranks put in."""
    return torch.full((1, 1), float(value))


def same(ours: Any, theirs: Any) -> bool:
    """Return whether two nested results are equal, of tensors bits, dtypes and strides."""
    if isinstance(theirs, torch.Tensor):
        alike = isinstance(ours, torch.Tensor) and ours.dtype == theirs.dtype
        return alike and ours.stride() == theirs.stride() and torch.equal(ours, theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


@dataclass(frozen=True)
class Scenario:
    """One row: what is run with which options.

    Attributes:
        run: called with what wraps a module in a DDP, and the rank.
        options: of the DDP; torch's is not given those that ours alone has.
        given: further arguments of *run*.
        world_size: number of ranks.
        expected: what each rank comes to, where that is known.
        oracle: whether torch's DDP does it, too, and comes to the same.
        alike: compares what one rank comes to with both.
        chains: whether a hook starts collectives in callbacks, for whose end a process must wait.
    """

    run: Run
    options: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    world_size: int = 2
    expected: Any = UNKNOWN
    oracle: bool = True
    alike: Callable[[Any, Any], bool] = same
    chains: bool = False

    def __str__(self) -> str:
        details = ", ".join(
            f"{name}={getattr(value, '__name__', value)}"
            for name, value in {**self.options, **self.given}.items()
        )
        return f"{self.run.__name__}: {details}" if details else self.run.__name__

    def check(self, pool: WorkerPool, place: str) -> None:
        """Carry it out and compare."""
        if place == "processes":
            results = pool.run(in_process, self.world_size, self)
        else:
            results = on_ranks(lambda rank: both(rank, self), self.world_size)
        for rank, (theirs, ours) in enumerate(results):
            assert not self.oracle or self.alike(ours, theirs), f"rank {rank}: {ours}, and torch: {theirs}"
            if self.expected is not UNKNOWN:
                assert ours == (self.expected[rank] if isinstance(self.expected, tuple) else self.expected), (
                    f"rank {rank}: {ours}"
                )


def in_process(rank: int, world_size: int, scenario: Scenario) -> Any:
    with callbacks_gone() if scenario.chains else nullcontext():
        return both(rank, scenario)


def both(rank: int, scenario: Scenario) -> tuple[Any, Any]:
    """Return what torch's DDP comes to, and ours."""
    shared = {name: value for name, value in scenario.options.items() if name not in OURS_ALONE}
    theirs = scenario.run(partial(TORCH, **shared), rank, **scenario.given) if scenario.oracle else None
    return theirs, scenario.run(partial(OURS, **scenario.options), rank, **scenario.given)


class Scenarios:
    """The table of a module."""

    def __init__(self) -> None:
        self._rows: list[tuple[Scenario, str]] = []

    def add(
        self,
        *options: dict[str, Any],
        given: Iterable[dict[str, Any]] = ({},),
        places: Sequence[str] = PLACES,
        **fields: Any,
    ) -> Callable[[F], F]:
        """Add a row for each of the *options* and of the arguments *given*, at each of the *places*.

        Where few points are wanted, rows take turns in where they are carried out.
        """

        def decorate(run: F) -> F:
            for own in options or ({},):
                for more in given:
                    scenario = Scenario(run, own, more, **fields)
                    turn = 1 if len(self._rows) // 2 % 2 else -1
                    self._rows += [(scenario, place) for place in places[::turn]]
            return run

        return decorate

    def test(self, function: F) -> F:
        """Parametrize *function* with all rows."""
        rows = [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in self._rows]
        return pytest.mark.parametrize(("scenario", "place"), rows)(function)  # type: ignore[return-value]
