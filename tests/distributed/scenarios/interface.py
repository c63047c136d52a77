"""The rest of torch's interface, row by row of docs/ddp.md."""

import copy
import io
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel.distributed import _BufferCommHookLocation, _MixedPrecision

from tests.distributed.scenarios.models import gradients, inputs, line, net, number, sgd, train, values
from tests.distributed.scenarios.scenario import OURS, Scenarios, same

cases = Scenarios()
LOW = torch.bfloat16


@cases.add(given=[{"reduced": None}, {"reduced": torch.float32}], oracle=False, expected={torch.float32})
def mixed_precision_computes_low_reduces_as_told_and_keeps_parameters_full(make, rank, reduced):
    model = make(net(), mixed_precision=_MixedPrecision(param_dtype=LOW, reduce_dtype=reduced))
    low = net().to(LOW)
    (x,) = inputs(rank, 1)
    output = model(x)
    assert output.dtype == LOW
    output.float().sum().backward()
    low(x.to(LOW)).float().sum().backward()
    for parameter, mine in zip(model.parameters(), low.parameters(), strict=True):
        total = mine.grad.to(reduced or LOW)
        dist.all_reduce(total)
        assert torch.equal(parameter.grad, (total / 2).float())
    with torch.no_grad():
        model(x)
    return {own.dtype for parameter in model.parameters() for own in (parameter, parameter.grad)}


@cases.add({}, {"find_unused_parameters": True}, {"gradient_as_bucket_view": True})
def an_optimizer_in_the_backward_pass_trains_as_one_behind_it_on_a_cpu_too(make, rank):
    from torch.distributed.optim import _apply_optimizer_in_backward

    module = net()
    if make.func is OURS:
        _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.05, "momentum": 0.9})
    model = make(module, bucket_cap_mb=1e-5)
    optimizer = sgd(model)
    for x in inputs(rank, 4):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if make.func is OURS:
            assert all(parameter.grad is None for parameter in model.parameters())
        else:
            optimizer.step()
    return values(model)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count = self.count + x.sum()
        return self.layer(x)


@cases.add(given=[{"before": False}, {"before": True}])
def hooks_replace_the_broadcast_of_buffers(make, rank, before):
    model = make(Counter())

    def hook(state, buffers):
        assert list(buffers) == ["count"]
        work = dist.all_reduce(buffers["count"], async_op=True)
        if before:
            work.wait()
        return [work.get_future()]

    kind = _BufferCommHookLocation
    model._register_buffer_comm_hook(None, hook, kind.PRE_FORWARD if before else kind.POST_FORWARD)
    for _ in range(2):
        model(number(rank + 1)).sum().backward()
    return float(model.module.count.item())


@cases.add(places=["gloo"])
def a_model_can_be_pickled_and_copied_and_goes_on_averaging(make, rank):
    first, second = inputs(rank, 2)
    model = make(net(), bucket_cap_mb=1e-4)
    model(first).sum().backward()
    file = io.BytesIO()
    models = [model]
    if make.func is OURS:
        torch.save(model, file)
        file.seek(0)
        models += [
            pickle.loads(pickle.dumps(model)), copy.deepcopy(model), torch.load(file, weights_only=False),
        ]  # fmt: skip
        elsewhere = make(net(), process_group=dist.new_group([0, 1]))
        with pytest.raises(RuntimeError, match="only over the default group"):
            pickle.dumps(elsewhere)
    for one in models:
        one.zero_grad()
        one(second).sum().backward()
    assert all(same(gradients(one), gradients(model)) for one in models)
    return gradients(model)


@cases.add(world_size=3, oracle=False, expected=([1.0, 0.5], [1.0, 0.5], [1.0]))
def a_model_goes_on_with_the_ranks_of_another_group(make, rank):
    model = make(line())
    seen = []
    for group in (None, dist.new_group([0, 1])):
        if group is not None:
            if rank == 2:
                return seen
            model._update_process_group(group)
        for _ in range(2):
            model.zero_grad()
            model(number(rank)).sum().backward()
        seen.append(model.module.weight.grad.item())
    return seen


@cases.add(expected=(0.0, 1.0))
def without_its_hooks_nothing_is_averaged(make, rank):
    model = make(line())
    model._remove_autograd_hooks()
    model(number(rank)).sum().backward()
    return float(model.module.weight.grad.item())


@cases.add(given=[{"first": 0}, {"first": 2}])
def delayed_parameters_are_averaged_when_the_chosen_gradient_is_there(make, rank, first):
    module = net()
    named = list(module.named_parameters())
    delayed = {"delay_all_reduce_named_params": named[first:], "param_to_hook_all_reduce": named[0][1]}
    return train(make(module, **(delayed if make.func is OURS else {})), rank)


@cases.add(world_size=4, expected=(1.0, 2.0, 1.0, 2.0))
def a_mesh_of_one_dimension_names_the_ranks(make, rank):
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = make(line(), device_mesh=mesh["dp"])
    model(number(rank)).sum().backward()
    with pytest.raises(RuntimeError, match="Only 1D device mesh is supported"):
        make(nn.Linear(1, 1), device_mesh=mesh)
    return float(model.module.weight.grad.item())
