"""Gradients of strategies that update parameters themselves: exact, clipped, and out of reach meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils._python_dispatch import TorchDispatchMode

from ddp import DistributedDataParallel, OverlappedOptimizer
from ddp.reduction.overlap import STRATEGIES
from sim import Cluster, RankError
from tests.ddp.rank_threads import OPTIMIZERS, OVERLAPPED, assert_alike, layers, on_ranks, overlapped

EVERY = [*OVERLAPPED, *(name for name, own in STRATEGIES.items() if own.whole_buckets)]


def charge(duration_us: int) -> None:
    clock = Cluster.current()
    clock.charge_ps(duration_us * 10**6)


class Weighted(nn.Module):
    """Adds up its parameter times given numbers, which are the gradient; both ways take some time."""

    def __init__(self, numel: int, forward_us: int, backward_us: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(numel, dtype=torch.float64))
        self.weight.register_hook(lambda _: charge(backward_us))
        self.forward_us = forward_us

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        charge(self.forward_us)
        return (self.weight * numbers).sum()


class Sum(nn.Module):
    def __init__(self, parts: list[Weighted]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, numbers: list[torch.Tensor]) -> torch.Tensor:
        terms = [part(own) for part, own in zip(self.parts, numbers, strict=True)]
        return torch.stack(terms).sum()


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    num_ranks=st.integers(1, 5),
    strategy=st.sampled_from(EVERY),
    cap_bytes=st.sampled_from([1, 100, 400, 10**6]),
    data=st.data(),
)
@settings(max_examples=settings.default.max_examples // 3, deadline=None)
def test_every_gradient_is_reduced_once_and_in_one_order_whatever_the_delays_of_ranks(
    sizes, num_ranks, strategy, cap_bytes, data
):
    delays = st.lists(st.integers(0, 200), min_size=3 * len(sizes), max_size=3 * len(sizes))
    delays_us = [data.draw(delays) for _ in range(num_ranks)]
    numbers = torch.randint(-9, 9, (3, num_ranks, len(sizes), 40), generator=torch.Generator().manual_seed(1))

    def one(rank):
        mine = delays_us[rank]
        parts = [Weighted(numel, *mine[3 * i : 3 * i + 2]) for i, numel in enumerate(sizes)]
        model = DistributedDataParallel(
            Sum(parts), strategy=strategy, bucket_cap_mb=cap_bytes / 2**20, algorithm="ring"
        )
        own = OverlappedOptimizer(model, lambda parameters: torch.optim.SGD(parameters, lr=1.0))
        launches = []
        for step, late_us in zip(numbers, mine[2::3] * 3, strict=False):
            charge(late_us)
            own.zero_grad()
            rows = [row[:numel] for row, numel in zip(step[rank], sizes, strict=True)]
            (num_ranks * model(rows)).backward()  # so that the average is the sum, and exact
            own.step()
            own.synchronize()
            launches.append(
                [(row["bucket"], row["collective"], row["size_bytes"]) for row in model.bucket_rows()]
            )
        return [part.weight.detach().clone() for part in parts], launches

    results = on_ranks(one, num_ranks)

    expected = -numbers.sum((0, 1)).double()
    for weights, launches in results:
        assert launches == results[0][1]
        for weight, total in zip(weights, expected, strict=True):
            assert torch.equal(weight, total[: weight.numel()])


class ChargesEveryOperation(TorchDispatchMode):
    """As a model of computation does that looks at every operation, the driver's own too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        charge(3)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("strategy", OVERLAPPED)
def test_what_completes_in_the_midst_of_an_operation_changes_no_bit(strategy):
    def one(rank, name):
        model, own = overlapped(layers([6, 12, 9, 4]), name, "adam", bucket_cap_mb=0.0002)
        data = torch.Generator().manual_seed(rank)
        with ChargesEveryOperation():
            for _ in range(3):
                own.zero_grad()
                model(torch.randn(3, 6, generator=data)).square().mean().backward()
                own.step()
            own.synchronize()
        rows = [(row["bucket"], row["collective"]) for row in model.bucket_rows()]
        return [parameter.detach().clone() for parameter in model.parameters()], rows

    plain, early = (
        on_ranks(lambda rank, name=name: one(rank, name)) for name in ("after_backward", strategy)
    )

    assert early[0][1] == early[1][1]
    for rank, (parameters, _) in enumerate(early):
        for expected, got in zip(plain[rank][0], parameters, strict=True):
            assert torch.equal(expected, got)


def backward(model: DistributedDataParallel) -> None:
    model(torch.ones(1, 3)).sum().backward()


def step_with_a_scaler(model: DistributedDataParallel, own: OverlappedOptimizer) -> None:
    scaler = torch.amp.GradScaler("cpu")
    own.step()
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    scaler.step(own)


Use = Callable[[DistributedDataParallel, OverlappedOptimizer], object]
USES: dict[str, tuple[Use, str]] = {
    "clipped by torch": (
        lambda model, own: clip_grad_norm_(model.parameters(), 1.0),
        "clip by its clip_grad",
    ),
    "looked at": (lambda model, own: [p.grad.norm() for p in model.parameters()], "use strategy='wait_free'"),
    "accumulated": (lambda model, own: backward(model), r"accumulate in no_sync\(\)"),
    "applied by another optimizer": (
        lambda model, own: OPTIMIZERS["adam"](model.parameters()).step(),
        r"gradient of .* is on its way, and only the OverlappedOptimizer may use it \(aten",
    ),
    "of a second optimizer": (
        lambda model, own: OverlappedOptimizer(model, OPTIMIZERS["sgd"]),
        "has an .* already",
    ),
    "dropped instead of a step": (
        lambda model, own: (model.zero_grad(), backward(model)),
        "second backward pass before the optimizer's step",
    ),
    "stepped with twice": (lambda model, own: (own.step(), own.step()), r"step\(\) without gradients"),
    "scaled": (step_with_a_scaler, r"NotSupportedError: a GradScaler finds no .* strategy .* bfloat16"),
}


@pytest.mark.parametrize("strategy", ["dear", "zero1", "priority", "data_parallel"])
@pytest.mark.parametrize("use", USES)
def test_a_gradient_on_its_way_cannot_be_used_unnoticed(strategy, use):
    function, message = USES[use]

    def one(rank):
        model, own = overlapped(layers([3, 4, 2]), strategy)
        backward(model)
        gradients = [parameter.grad for parameter in model.parameters()]
        assert repr(gradients[0]) == "<the gradient of 0.weight, on its way>"
        function(model, own)

    with pytest.raises(RankError, match=message):
        on_ranks(one)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("strategy", [*OVERLAPPED, "wait_free"])
def test_what_was_accumulated_is_forgotten_when_the_optimizer_is_told_so(strategy, set_to_none):
    def one(rank, wastes):
        model, own = overlapped(layers([3, 4, 2]), strategy)
        for _ in range(2):
            if wastes:
                with model.no_sync():
                    model(torch.ones(1, 3)).sum().backward()
            own.zero_grad(set_to_none)
            model(torch.full((1, 3), rank + 2.0)).sum().backward()
            own.step()
        return list(model.state_dict().values())

    assert_alike(one, False, True)


@pytest.mark.parametrize("strategy", OVERLAPPED)
def test_a_backward_pass_that_raised_leaves_nothing_behind(strategy):
    def one(rank, fails):
        model, own = overlapped(layers([3, 4, 2]), strategy, bucket_cap_mb=1e-5)
        data = torch.Generator().manual_seed(rank)
        for step in range(3):
            if fails and step:
                output = model(torch.ones(1, 3))
                hook = model.module[0].weight.register_hook(raise_key_error)
                with pytest.raises(KeyError):
                    output.sum().backward()
                hook.remove()
                own.zero_grad()
            model(torch.randn(2, 3, generator=data)).sum().backward()
            own.step()
        return list(model.state_dict().values())

    assert_alike(one, False, True)


def raise_key_error(gradient: torch.Tensor) -> None:
    raise KeyError


def test_clipping_without_gradients_or_by_no_norm_is_refused():
    def one(rank):
        _, own = overlapped(layers([3, 2]), "dear")
        with pytest.raises(
            Exception, match=r"clip_grad_norm_\(\): norm_type must be a number above 0, got 0"
        ):
            own.clip_grad_norm_(1.0, 0)
        own.clip_grad_norm_(1.0)

    with pytest.raises(RankError, match=r"clip_grad_norm_\(\) without gradients: it belongs between"):
        on_ranks(one)


def test_a_grad_scaler_works_with_strategies_that_leave_gradients_in_place():
    def one(rank, scales):
        model, own = overlapped(layers([3, 2]), "wait_free")
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=scales)
        scaler.scale(model(torch.ones(1, 3)).sum()).backward()
        scaler.step(own)
        scaler.update()
        return list(model.state_dict().values())

    assert_alike(one, False, True)
