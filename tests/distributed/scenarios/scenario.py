"""Scenarios of DDP: what ranks do with torch's and with ours, in a table of which a row is a line.

cases = Scenarios()

@cases.add({}, {"bucket_cap_mb": 0.5}, expected=[1.5])
def a_gradient_is_averaged(make, rank):
    model = make(nn.Linear(1, 1, bias=False))
    model(torch.full((1, 1), rank + 1.0)).backward()
    return [model.module.weight.grad.item()]

Ranks are processes over Gloo, processes over our backend, or threads in virtual time.  What torch's DDP
comes to over Gloo is what torch's and ours must come to anywhere, bit for bit: of two numbers there is one
sum.  Of more there are several, so scenarios of more ranks compare the two at the same place.
"""

import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddp
from sim.cluster import Cluster
from tests.ddp.rank_threads import on_ranks
from tests.distributed.pool import WorkerPool
from tests.waiting import until

TORCH, OURS = DistributedDataParallel, ddp.DistributedDataParallel
PROCESSES = ("gloo", "testbed")
PLACES = (*PROCESSES, "threads")
OURS_ALONE = {"algorithm", "strategy", "timeout", "recorder", "check_gradients"}
"""Options that torch's DDP has not."""

PATIENCE = 100.0
"""Seconds for a scenario, of which the first in a process may spend most on what torch imports late."""

Run = Callable[..., Any]
F = TypeVar("F", bound=Run)
UNKNOWN = "no closed form"


def torch_over_gloo(make) -> bool:
    """Return whether *make* makes torch's DDP, over Gloo itself, where some of its hooks do not work."""
    return make.func is TORCH and Cluster.current() is None and dist.get_backend() == "gloo"


def same(ours, theirs) -> bool:
    """Return whether two nested results are equal, of tensors bits, dtypes and strides."""
    if isinstance(theirs, torch.Tensor):
        alike = isinstance(ours, torch.Tensor) and ours.dtype == theirs.dtype
        return alike and ours.stride() == theirs.stride() and torch.equal(ours, theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


def close(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
    """Return whether tensors differ by rounding at most."""
    tolerances = {torch.float32: 1e-6, torch.float64: 1e-12}
    return all(
        torch.allclose(own, their, rtol=0, atol=tolerances[their.dtype])
        for own, their in zip(ours, theirs, strict=True)
    )


@dataclass(frozen=True)
class Scenario:
    """One row: what is run with which options.

    Attributes:
        run: called with what wraps a module in a DDP, and the rank.
        options: of the DDP; torch's is not given those that ours alone has.
        given: further arguments of *run*.
        world_size: number of ranks.
        places: where ranks may be.
        expected: what each rank comes to, where that is known.
        says: regular expressions, of which each is found in what each rank comes to: a text.
        oracle: whether torch's DDP does it, too, and comes to the same.
        alike: compares what one rank comes to with both.
        chains: whether a hook starts collectives in callbacks, for whose end a process must wait.
        costly: whether it takes more than a second of processor time.
    """

    run: Run
    options: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    world_size: int = 2
    places: Sequence[str] = PLACES
    expected: Any = UNKNOWN
    says: Sequence[str] = ()
    oracle: bool = True
    alike: Callable[[Any, Any], bool] = same
    chains: bool = False
    costly: bool = False

    def __str__(self) -> str:
        details = ", ".join(
            f"{name}={getattr(value, '__name__', value)}"
            for name, value in {**self.options, **self.given}.items()
        )
        ranks = "" if self.world_size == 2 else f" ({self.world_size})"
        return f"{self.run.__name__}{ranks}" + (f": {details}" if details else "")

    def check(self, pool: WorkerPool, place: str) -> None:
        """Carry it out at *place*, and compare."""
        results = self._at(place, pool, ("torch", "ours") if self.oracle else ("ours",))
        truth = [own.get("torch") for own in results]
        if self.oracle and self.world_size <= 2 and {place, "gloo"} <= {*self.places} and place != "gloo":
            truth = [own["torch"] for own in self._at("gloo", pool, ("torch",))]
        for rank, (own, true) in enumerate(zip(results, truth, strict=True)):
            for whose, found in own.items():
                assert not self.oracle or self.alike(found, true), (
                    f"rank {rank}, {whose}: {found}, not {true}"
                )
            self._check_what_is_known(rank, own["ours"])

    def _check_what_is_known(self, rank: int, found) -> None:
        if self.expected is not UNKNOWN:
            expected = self.expected[rank] if isinstance(self.expected, tuple) else self.expected
            assert found == expected, f"rank {rank}: {found}"
        for pattern in self.says:
            assert re.search(pattern.format(rank=rank), found), f"rank {rank}: {found}"

    def _at(self, place: str, pool: WorkerPool, whose: Sequence[str]) -> list[dict[str, Any]]:
        """Return what each rank comes to, with torch's DDP or ours."""
        if place == "threads":
            return on_ranks(lambda rank: carried_out(rank, self.world_size, self, whose), self.world_size)
        return pool.run(in_process, self.world_size, self, whose, backend=place, timeout=PATIENCE)


def in_process(rank: int, world_size: int, scenario: Scenario, whose: Sequence[str]) -> dict[str, Any]:
    chains = scenario.chains and dist.get_backend() == "gloo"
    with callbacks_gone() if chains else nullcontext():
        return carried_out(rank, world_size, scenario, whose)


def carried_out(rank: int, world_size: int, scenario: Scenario, whose: Sequence[str]) -> dict[str, Any]:
    """Return what torch's DDP comes to, or ours, or both."""
    shared = {name: value for name, value in scenario.options.items() if name not in OURS_ALONE}
    make = {"torch": partial(TORCH, **shared), "ours": partial(OURS, **scenario.options)}
    return {own: scenario.run(make[own], rank, **scenario.given) for own in whose}


class Scenarios:
    """The table of a module, whose rows have *common* fields."""

    def __init__(self, **common) -> None:
        self.common = common
        self.scenarios = []

    def add(
        self, *options: dict[str, Any], given: Iterable[dict[str, Any]] = ({},), **fields
    ) -> Callable[[F], F]:
        """Add a row for each of the *options* and of the arguments *given*."""

        def decorate(run):
            self.scenarios += [
                Scenario(run, own, more, **{**self.common, **fields})
                for own in options or ({},)
                for more in given
            ]
            return run

        return decorate


def each(tables: Iterable[Scenarios], costly: bool = False):
    """Parametrize a test with every row of *tables* at each of its places; *costly* rows, or the others.

    Where few points are wanted, rows take turns in where they are carried out.
    """
    rows = []
    scenarios = [own for table in tables for own in table.scenarios if own.costly == costly]
    for number, scenario in enumerate(scenarios):
        turn = number % len(scenario.places)
        places = [*scenario.places[turn:], *scenario.places[:turn]]
        rows += [pytest.param(scenario, place, id=f"{scenario}-{place}") for place in places]
    return pytest.mark.parametrize(("scenario", "place"), rows)


@contextmanager
def callbacks_gone() -> Iterator[None]:
    """Go on when Gloo's threads have let go of the group: it must not be one of them that destroys it.

    A callback that chains collectives holds the group. If the thread that lets go of it is the last to hold
    the group, it joins itself, and the process ends ("Resource deadlock avoided").
    """
    group = dist.group.WORLD
    before = sys.getrefcount(group)
    yield

    def let_go():
        gc.collect()
        return sys.getrefcount(group) <= before

    until(let_go, "Gloo's threads to let go of the group", seconds=45)
