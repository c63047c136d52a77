"""A recorded profile says when each gradient of a real backward pass became ready."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import nn

from ddp.errors import ProfileError
from ddp.profile import Profile
from ddp.record import record_profile

PAUSE = 0.002


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        time.sleep(PAUSE)
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(PAUSE)
        return gradient


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2, dtype=torch.float64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(Slow.apply(x))
        return x


def train(module: nn.Module) -> Callable[[], None]:
    return lambda: module(torch.ones(1, 2, dtype=torch.float64)).sum().backward()


@pytest.fixture(scope="module")
def profile() -> Profile:
    net = Net()
    return record_profile(net, train(net), name="slow", num_iterations=3, num_warmup=1)


def test_gradients_are_listed_by_name_and_size_in_the_order_of_registration(profile: Profile) -> None:
    assert [(g.name, g.numel, g.dtype, g.nbytes) for g in profile.gradients] == [
        (f"layers.{layer}.{kind}", numel, "float64", 8 * numel)
        for layer in range(3)
        for kind, numel in (("weight", 4), ("bias", 2))
    ]


def test_gradients_become_ready_from_the_last_layer_to_the_first(profile: Profile) -> None:
    assert [index // 2 for index in profile.ready_order()] == [2, 2, 1, 1, 0, 0]


def test_times_are_at_least_what_was_slept(profile: Profile) -> None:
    first, middle, last = (profile.gradients[index].ready_seconds for index in (0, 2, 4))

    assert profile.forward_seconds >= 3 * PAUSE
    assert middle - last >= PAUSE
    assert first - middle >= PAUSE
    assert profile.backward_seconds >= first


def test_recording_leaves_no_hooks_behind() -> None:
    net = Net()
    record_profile(net, train(net), name="slow", num_iterations=1, num_warmup=0)

    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    assert not any(parameter._post_accumulate_grad_hooks for parameter in net.parameters())


def test_a_step_without_a_backward_pass_is_refused() -> None:
    net = Net()
    with pytest.raises(ProfileError, match="ran no forward and backward pass"):
        record_profile(net, lambda: None, name="none")


def test_a_parameter_without_a_gradient_is_named() -> None:
    net = Net()
    net.extra = nn.Parameter(torch.ones(1))
    with pytest.raises(ProfileError, match="computed no gradient for extra"):
        record_profile(net, train(net), name="unused")


def test_a_number_of_iterations_below_one_is_refused() -> None:
    with pytest.raises(ProfileError, match="num_iterations=0"):
        record_profile(Net(), lambda: None, name="none", num_iterations=0)
