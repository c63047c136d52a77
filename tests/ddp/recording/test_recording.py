"""A recorded profile says when each gradient of a real backward pass became ready."""

import time
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import nn

import ddp
import ddp.recording.recording
from ddp import Profile, record_profile
from ddp.errors import ProfileError

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


def loop(module: nn.Module, count: int = 6) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        train(module)()
        optimizer.step()


def by_step(net: nn.Module) -> Profile:
    return record_profile(net, train(net), name="Net", num_iterations=4, num_warmup=1)


def by_loop(net: nn.Module) -> Profile:
    with ddp.record() as recording:
        loop(net)
    return recording.profile


def by_loop_of(wrapper: Callable[..., nn.Module]) -> Callable[[nn.Module], Profile]:
    def record(net):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            return by_loop(wrapper(net))
        finally:
            dist.destroy_process_group()

    return record


@pytest.mark.parametrize(
    ("record", "source"),
    [
        (by_step, "median of 4 iterations"),
        (by_loop, "median of 4 iterations"),
        (by_loop_of(nn.parallel.DistributedDataParallel), "rank 0 of 1"),
        (by_loop_of(ddp.DistributedDataParallel), "rank 0 of 1"),
    ],
    ids=["step", "loop", "torch's DDP", "our DDP"],
)
def test_a_profile_has_the_sizes_of_gradients_and_when_they_became_ready_and_leaves_no_hooks(record, source):
    net = Net()

    profile = record(net)

    assert profile.name == "Net"
    assert source in profile.source
    assert [(g.name, g.numel, g.dtype, g.nbytes) for g in profile.gradients] == [
        (f"layers.{layer}.{kind}", numel, "float64", 8 * numel)
        for layer in range(3)
        for kind, numel in (("weight", 4), ("bias", 2))
    ]
    assert [index // 2 for index in profile.ready_order()] == [2, 2, 1, 1, 0, 0]
    first, middle, last = (profile.gradients[index].ready_seconds for index in (0, 2, 4))
    assert profile.forward_seconds >= 3 * PAUSE
    assert profile.backward_seconds >= first >= middle + PAUSE >= last + 2 * PAUSE
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    if "rank" not in source:
        assert not any(parameter._post_accumulate_grad_hooks for parameter in net.parameters())


def with_one_that_is_not_used() -> Net:
    net = Net()
    net.extra = nn.Parameter(torch.ones(1))
    return net


@pytest.mark.parametrize(
    ("net", "trains", "iterations", "message"),
    [
        (Net(), False, 3, "ran no forward and backward pass"),
        (with_one_that_is_not_used(), True, 3, "computed no gradient for extra"),
        (Net(), False, 0, "num_iterations=0"),
    ],
)
def test_a_step_that_shows_nothing_is_refused(net, trains, iterations, message):
    step = train(net) if trains else lambda: None

    with pytest.raises(ProfileError, match=message):
        record_profile(net, step, name="none", num_iterations=iterations)


@pytest.mark.parametrize("wrapper", [nn.parallel.DistributedDataParallel, ddp.DistributedDataParallel])
@pytest.mark.parametrize("sent", [True, False])
def test_buffers_are_recorded_where_they_are_sent(wrapper, sent):
    net = Net()
    net.register_buffer("mean", torch.zeros(5))

    profile = by_loop_of(partial(wrapper, forward_sync_buffers=sent))(net)

    assert profile.broadcasts() == [20] * sent


def test_a_compiled_module_is_recorded_under_its_own_names():
    net = nn.Sequential(nn.Linear(2, 2, dtype=torch.float64))

    with ddp.record() as recording:
        loop(torch.compile(net, backend="eager"))

    assert [g.name for g in recording.profile.gradients] == ["0.weight", "0.bias"]


def test_what_was_recorded_before_an_exception_is_kept():
    def interrupted():
        with recording:
            loop(Net(), 4)
            raise KeyboardInterrupt

    recording = ddp.record()
    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert recording.trained == {"Net": 4}
    assert len(recording.profile.gradients) == 6


def test_several_trained_modules_are_listed_and_one_can_be_named():
    first, second, linear = Net(), Net(), nn.Linear(2, 2)

    def both():
        recording = ddp.record()
        with recording:
            loop(first, 3)
            loop(second, 3)
            loop(linear.double(), 2)
        return recording

    recording = both()
    with pytest.raises(ProfileError, match=r"Net \(3 passes\), Net-2 \(3 passes\).*say which"):
        _ = recording.profile
    recording._wanted = "Net-2"
    assert len(recording.profile.gradients) == 6
    recording._wanted = second
    assert len(recording.profile.gradients) == 6
    recording._wanted = "Nut"
    with pytest.raises(ProfileError, match="Nut was not trained; trained were: Net"):
        _ = recording.profile


ONE = torch.ones(1, 2, dtype=torch.float64)


def with_a_teacher(net: Net, teacher: Net, criterion: nn.Module) -> None:
    with torch.no_grad():
        target = teacher(ONE)
    criterion(net(ONE), target).backward()


def times(count: int, step: Callable[..., object], *modules: nn.Module) -> None:
    for _ in range(count):
        step(*modules)


@pytest.mark.parametrize(
    ("run", "options", "passes", "said"),
    [
        pytest.param(
            lambda: loop(Net(), 8), {"num_iterations": 2, "num_warmup": 1}, 3, "median of 2 iterations",
            id="it ends after the iterations asked for",
        ),
        pytest.param(
            lambda: loop(with_one_that_is_not_used(), 3), {}, 3, "without extra, which got no gradient",
            id="a gradient that never comes is left out",
        ),
        pytest.param(
            lambda: times(4, lambda net: (net(ONE) + net(ONE)).sum().backward(), Net()), {}, 4, "median of",
            id="several forward calls before one backward pass are one pass",
        ),
        pytest.param(
            lambda: times(4, with_a_teacher, Net(), Net(), nn.MSELoss()), {}, 4, "median of",
            id="modules without gradients or without parameters are not the one trained",
        ),
    ],
)  # fmt: skip
def test_what_is_recorded_is_the_module_that_is_trained(run, options, passes, said):
    calls = []

    with ddp.record(**options) as recording:
        recording.on_full = lambda: calls.append(1)
        run()

    assert recording.trained == {"Net": passes}
    assert len(recording.profile.gradients) == 6
    assert said in recording.profile.source
    assert len(calls) == ("num_iterations" in options)
