"""Graphs that change, leave parameters out, or compute again; inputs that end early on some ranks."""

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from sim.cluster import Cluster
from tests.distributed.scenarios.models import (
    Choosing,
    gradients,
    inputs,
    line,
    net,
    number,
    numbers,
    resolved,
    values,
)
from tests.distributed.scenarios.scenario import OURS, Scenarios, same

cases = Scenarios()
FINDS = {"find_unused_parameters": True}


class KeepsItsLoss(Choosing):
    def forward(self, *arguments):
        self.loss = super().forward(*arguments).sum()


@cases.add(
    FINDS,
    {**FINDS, "bucket_cap_mb": 1e-6, "gradient_as_bucket_view": True},
    {**FINDS, "strategy": "after_backward", "algorithm": "ring", "check_gradients": "identical"},
    expected=[[1.5, 0.5, None, None], [0.5, 1.0, None, None], [None, None, None, 1.5]],
)
def parameters_that_no_rank_uses_keep_none_and_others_get_the_average(make, rank):
    model = make(Choosing(4))
    seen = []
    for use in ((0, 1) if rank == 0 else (0,), (rank,), (3,)):
        model.zero_grad()
        model(number(rank + 1), use).sum().backward()
        seen.append(numbers(model))
    return seen


@cases.add(FINDS, expected=[1.0, 0.5, None])
def what_was_used_within_no_sync_counts_as_used(make, rank):
    model = make(Choosing())
    with model.no_sync():
        model(number(rank), (1,)).sum().backward()
    model(number(1), (0,)).sum().backward()
    return numbers(model)


@cases.add(FINDS, oracle=False, expected=[0.5, 0.5, None])
def two_forward_passes_that_use_different_parts_go_into_one_backward(make, rank):
    model = make(Choosing())
    (model(number(rank), (0,)) + model(number(rank), (1,))).sum().backward()
    return numbers(model)


@cases.add(FINDS, expected=[0.5, 0.5, None], oracle=False)
@cases.add(given=[{"use": (0, 1, 2)}], expected=[0.5, 0.5, 0.5])
def a_loss_that_forward_does_not_return_is_reduced_too(make, rank, use=(0, 1)):
    model = make(KeepsItsLoss())
    model(number(rank), use)
    model.module.loss.backward()
    return numbers(model)


@cases.add({"static_graph": True}, given=[{"again": True}, {"again": False}], expected=[[1.0, 0.5, None]] * 3)
@cases.add(given=[{"use": (0, 1, 2), "again": False}], expected=[[0.5, 0.5, 0.5]] * 3)
@cases.add({"bucket_cap_mb": 1e-6}, given=[{"use": (0, 1, 2)}], oracle=False, expected=[[0.5, 0.5, 0.5]] * 3)
@cases.add(FINDS, given=[{"use": (0, 1)}], oracle=False, expected=[[0.5, 0.5, None]] * 3)
def layers_are_computed_again_in_checkpoints(make, rank, use=(0, 1, 0), again=True):
    """Pass through checkpoints, re-entrant ones or not; torch's DDP takes those of a static graph only."""
    model = make(Choosing())
    seen = []
    for _ in range(3):
        model.zero_grad()
        model(number(rank).requires_grad_(), use, again).sum().backward()
        seen.append(numbers(model))
    return seen


@cases.add(FINDS, {"static_graph": True}, expected=None)
def a_gradient_that_autograd_leaves_undefined_stays_none(make, rank):
    model = make(nn.Linear(2, 2))
    undefined = torch._C._functions.UndefinedGrad()
    undefined(model(torch.ones(1, 2)).sum()).backward()
    return model.module.weight.grad


class Penalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.penalised = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x):
        return (self.used * x).sum()


@cases.add(given=[{"after": False}, {"after": True}], expected=[[0.5] * 3, [1.0] * 3])
def a_parameter_that_only_the_loss_uses_is_averaged(make, rank, after):
    model = make(Penalised())
    for _ in range(4):
        model.zero_grad()
        penalty = (model.module.penalised**2).sum() * rank
        output = model(torch.full((3,), float(rank)))
        if after:
            penalty = (model.module.penalised**2).sum() * rank
        (output + penalty).backward()
    return [parameter.grad.tolist() for parameter in model.parameters()]


class TwoWays(nn.Module):
    """Layers used one after the other, in the one order or in the other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(net(4, 4, 4, 4, 4, 4, 4)[::2])

    def forward(self, x, turned):
        for layer in reversed(self.layers) if turned else self.layers:
            x = layer(x)
        return x


@cases.add(
    {"bucket_cap_mb": 1e-4}, given=[{"turned_at": step, "set_to_none": step != 3} for step in (1, 3, 100)]
)
def gradients_that_change_their_order_are_averaged(make, rank, turned_at, set_to_none):
    model = make(TwoWays())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x in enumerate(inputs(rank, 6)):
        way = step >= turned_at
        if step % 3 == 2:
            optimizer.zero_grad(set_to_none)
            with model.no_sync():
                model(x, way).sum().backward()
        output = model(x, way)
        if step % 3 != 2:
            optimizer.zero_grad(set_to_none)
        output.sum().backward()
        optimizer.step()
    if make.func is OURS and Cluster.current() is None:
        assert (len(model._driver.passes.watched) < len(values(model))) == (turned_at == 100)
    return values(model)


class WithBuffer(nn.Module):
    """Integer weights, a buffer that each forward pass changes, and a layer that may be unused."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.sometimes = (nn.Linear(2, 2, bias=False) for _ in range(3))
        self.register_buffer("count", torch.zeros(1))
        for layer in (self.first, self.second, self.sometimes):
            nn.init.ones_(layer.weight)

    def forward(self, x, whole):
        self.count += x.sum()
        hidden = self.second(self.first(x))
        return self.sometimes(hidden) if whole else hidden


def same_after_join(ours, theirs):
    """Torch gives zeros where no active rank used a parameter that one has used which has joined."""
    return len(ours) == len(theirs) and all(
        not (theirs is not None and theirs.any()) if ours is None else same(ours, theirs)
        for ours, theirs in zip(ours, theirs, strict=True)
    )


@cases.add({}, alike=same_after_join)
@cases.add(given=[{}, {"divides": False}, {"hooked": True}], world_size=3, alike=same_after_join)
@cases.add(FINDS, {"algorithm": "ring", "gradient_as_bucket_view": True}, world_size=3, alike=same_after_join)
def uneven_inputs_are_averaged(make, rank, divides=True, hooked=False):
    model = make(WithBuffer(), bucket_cap_mb=1e-5)
    if hooked:
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    find = make.keywords.get("find_unused_parameters", False)
    seen = []
    with model.join(divide_by_initial_world_size=divides):
        for step in range(2 + rank):
            model.zero_grad()
            if step == 1:
                with model.no_sync():
                    model(torch.ones(1, 2), not find).sum().backward()
            x = torch.full((1, 2), 18.0 * (rank + 1))
            model(x, step % 2 == 0 or not find).sum().backward()
            seen += gradients(model)
    return seen + values(model)


@cases.add(oracle=False, expected=0.5)
def after_join_all_ranks_count_again(make, rank):
    model = make(line())
    with model.join(divide_by_initial_world_size=False):
        for _ in range(1 + rank):
            model(number(1)).sum().backward()
    model.zero_grad()
    model(number(rank)).sum().backward()
    return float(model.module.weight.grad.item())


@cases.add(world_size=1, expected=4, oracle=False)
@cases.add({"skip_all_reduce_unused_params": True}, world_size=1, expected=2, oracle=False)
def buckets_of_unused_parameters_are_skipped_if_asked_for(make, rank):
    buckets = []

    def hook(state, bucket):
        buckets.append(bucket.index())
        return resolved(bucket.buffer())

    model = make(Choosing(4), find_unused_parameters=True, bucket_cap_mb=1e-6)
    model.register_comm_hook(None, hook)
    model(number(1), (1, 2)).sum().backward()
    assert numbers(model) == [None, 1.0, 1.0, None]
    return len(buckets)
