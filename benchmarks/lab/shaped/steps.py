"""Training steps on a shaped network: gradients are reduced while the backward pass goes on.

A layer is a small matrix product and a nap, which takes the time of a computation and no processor: all
hosts share those of one machine.  What a step computes is recorded first, without a network; the time
of the step is predicted from that profile and then measured, with torch's reducer and with ours.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.lab.shaped.hosts import Hosts
from benchmarks.lab.shaped.timing import begin, duration
from ddp.profiles.profile import Profile

if TYPE_CHECKING:
    from torch import Tensor, nn

    from benchmarks.lab.shaped.host import Host

REDUCERS = ("torch native", "ours native", "ours ring")
"""Whose reducer, and its algorithm."""

_LAYERS = 4
_WIDTH_MULTIPLE = 16
_COMMUNICATION_SECONDS = 0.2
"""What reducing all gradients takes about, at the rate of the slowest link."""
_FORWARD_NAP, _BACKWARD_NAP = 0.01, 0.04
_WARM_UP = 2
_SECONDS = 60.0


@dataclass(frozen=True)
class Model:
    """A model of equal layers.

    Attributes:
        width: of each layer, a square matrix of float32.
    """

    width: int

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return _LAYERS * 4 * self.width**2

    @property
    def bucket_cap_mb(self) -> float:
        """The cap at which each layer is a bucket."""
        return 4 * self.width**2 / 2**20

    @classmethod
    def for_rate(cls, rate: int) -> Model:
        """Return one whose gradients take some tenths of a second at *rate* bytes per second."""
        width = math.sqrt(rate * _COMMUNICATION_SECONDS / 2 / 4 / _LAYERS)
        return cls(max(1, round(width / _WIDTH_MULTIPLE)) * _WIDTH_MULTIPLE)


def record(hosts: Hosts, model: Model) -> Profile:
    """Return what a step of *model* computes, as recorded on the hosts, all at once and without a network."""
    found = [Profile.model_validate(said) for said in hosts.ask(_record, model, timeout=_SECONDS)]
    return sorted(found, key=lambda profile: profile.compute_seconds)[len(found) // 2]


def time_steps(hosts: Hosts, model: Model, reducer: str, *, repetitions: int) -> list[float]:
    """Return the seconds of each step of *model*, whose hosts begin together, by *reducer*."""
    hosts.ask(_prepare, model, reducer, timeout=_SECONDS)
    return [duration(begin(hosts, _step)) for _ in range(repetitions)]


def _network(model: Model) -> nn.Module:
    import torch
    from torch import nn

    class Nap(torch.autograd.Function):
        """The identity, which takes a while."""

        @staticmethod
        def forward(ctx: Any, given: Tensor) -> Tensor:
            time.sleep(_FORWARD_NAP)
            return given.view_as(given)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            time.sleep(_BACKWARD_NAP)
            return gradients[0]

    class Layer(nn.Module):
        """A matrix product, then a nap; backwards, the nap comes first."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(model.width, model.width, bias=False)

        def forward(self, given: Tensor) -> Tensor:
            apply: Any = Nap.apply
            napped: Tensor = apply(self.linear(given))
            return napped

    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(_LAYERS)))


def _record(host: Host, model: Model) -> dict[str, Any]:
    import torch

    from ddp.recording import record_profile

    network, given = _network(model), torch.ones(1, model.width)
    profile = record_profile(network, lambda: network(given).sum().backward(), name="naps", num_warmup=2)
    return profile.model_dump(mode="json", by_alias=True)


def _prepare(host: Host, model: Model, reducer: str) -> None:
    import torch

    from ddp import DistributedDataParallel

    whose, algorithm = reducer.split()
    if whose == "torch":
        wrapped: Any = torch.nn.parallel.DistributedDataParallel(
            _network(model), bucket_cap_mb=model.bucket_cap_mb
        )
    else:
        wrapped = DistributedDataParallel(
            _network(model), bucket_cap_mb=model.bucket_cap_mb, algorithm=algorithm
        )
    given = torch.ones(1, model.width)

    def step() -> None:
        wrapped.zero_grad()
        wrapped(given).sum().backward()

    for _ in range(_WARM_UP):
        step()
    host.kept["step"] = step


def _step(host: Host) -> None:
    host.kept["step"]()
