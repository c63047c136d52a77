"""Training: gradients, parameters and buffers of every step, on the same data on the same ranks."""

import copy
import dataclasses
import tempfile
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

import ddp
from sim.cluster import Cluster
from tests.distributed.scenarios.models import (
    IMAGES,
    WIDE,
    Mixed,
    gradients,
    inputs,
    line,
    net,
    number,
    train,
    values,
)
from tests.distributed.scenarios.scenario import OURS, Scenarios, close, torch_over_gloo

cases = Scenarios()


@cases.add(
    {},
    {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0005, "algorithm": "tree"},
    {"static_graph": True, "strategy": "after_backward"},
    {"forward_sync_buffers": False},
    {"broadcast_buffers": False},
    {"init_sync": False},
)
def two_ranks_train(make, rank):
    module = Mixed(seed=rank if make.keywords.get("init_sync", True) else 0)
    module.norm.running_mean.fill_(rank)
    return train(make(module), rank, shape=IMAGES)


@cases.add({}, {"gradient_as_bucket_view": True})
def no_sync_accumulates_locally_and_the_sum_is_reduced(make, rank):
    model = make(Mixed(seed=rank))
    seen = []
    data = inputs(rank, 7, *IMAGES)
    model(next(data)).mean().backward()
    for _ in range(2):
        model.zero_grad()
        with model.no_sync():
            for _ in range(2):
                model(next(data)).mean().backward()
        seen += gradients(model)
        model(next(data)).mean().backward()
        seen += gradients(model)
    return seen + values(model)


@cases.add(oracle=False, expected=[0.5, 5.5])
def each_of_two_forward_passes_is_reduced_by_its_own_backward(make, rank):
    model = make(line())
    first, second = model(number(rank)), model(number(10 * rank))
    first.backward()
    after_first = model.module.weight.grad.item()
    second.backward()
    return [after_first, model.module.weight.grad.item()]


@cases.add(expected=[True, True, 0.5])
def a_backward_pass_that_reaches_no_parameter_reduces_nothing(make, rank):
    critic = make(line())
    weight = critic.module.weight
    image = number(rank).requires_grad_()
    (slope,) = torch.autograd.grad(critic(image), image)
    critic.requires_grad_(False)
    critic(image).backward()
    critic.requires_grad_(True)
    critic(image).backward()
    return [torch.equal(slope, weight), torch.equal(image.grad, 2 * weight), weight.grad.item()]


class ComplexScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.z = nn.Parameter(torch.ones(1, dtype=torch.complex64))

    def forward(self, factor):
        return (self.z * factor).real.sum()


@cases.add(expected=1 - 1j)
def complex_gradients_are_averaged(make, rank):
    model = make(ComplexScale())
    model(2.0 * rank + 1j).backward()
    return complex(model.module.z.grad.item())


@cases.add({}, {"algorithm": "ring"}, world_size=3, expected=(None, [1.0, 1.5], [1.0, 1.5]))
def a_group_of_some_ranks_trains_from_its_first_rank_on(make, rank):
    group = dist.new_group([1, 2])
    if rank == 0:
        return None
    module = line()
    nn.init.constant_(module.weight, rank)
    model = make(module, process_group=group)
    model(number(rank)).backward()
    return [module.weight.item(), module.weight.grad.item()]


@cases.add(world_size=3)
def wrapping_gives_every_rank_the_values_of_rank_zero_but_for_those_ignored(make, rank):
    module = Mixed(seed=rank)
    module.norm.running_mean.fill_(rank)
    ddp.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        module, ["frozen", "norm.running_var"]
    )
    nn.init.constant_(module.frozen, rank)
    module.norm.running_var.fill_(rank)
    model = make(module)
    model.eval()(torch.ones(1, 2, 5, 5))
    state = model.state_dict()
    assert torch.equal(state["module.norm.running_var"], torch.full((4,), float(rank)))
    assert torch.equal(state["module.frozen"], torch.full((3,), float(rank)))
    return [(name, value.clone()) for name, value in state.items()]


@cases.add(expected=[0, 0.5])
def a_module_can_be_wrapped_again(make, rank):
    module = line()
    old = make(module)
    old(number(1)).sum().backward()
    del old
    num_hooks = len(module.weight._post_accumulate_grad_hooks or ())
    new = make(module)
    new.zero_grad()
    new(number(rank)).sum().backward()
    return [num_hooks, module.weight.grad.item()]


@cases.add({}, expected=(4, 4), oracle=False)
@cases.add({"gradient_as_bucket_view": True}, expected=(2, 2))
def gradients_are_views_of_the_two_buckets_only_where_asked_for(make, rank):
    model = make(nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 9)), bucket_cap_mb=0.0003)
    for _ in range(2):
        model(torch.ones(1, 9)).sum().backward()
    return len({parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()})


@cases.add(oracle=False, expected=[True, True, False])
def a_wrapped_module_can_be_copied_saved_restored_and_evaluated(make, rank):
    model = make(Mixed(seed=rank))
    images = torch.ones(2, 2, 5, 5)
    model(images).sum().backward()
    average = copy.deepcopy(model.module)
    average(images).sum().backward()
    restored = make(Mixed(seed=7))
    restored.load_state_dict(model.state_dict())
    model.eval()
    with torch.no_grad():
        return [
            torch.equal(model(images), restored.eval()(images)),
            not any(parameter._post_accumulate_grad_hooks for parameter in average.parameters()),
            model.training,
        ]


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclasses.dataclass
class Record:
    one: Any
    two: Any


class Named(dict[str, Any]):
    pass


class Listed(list[Any]):
    pass


WRAP = {
    "tuple": lambda one, two: (one, two), "nested": lambda one, two: {"outer": [(one,), {"inner": (3, two)}]},
    "named tuple": Pair, "dataclass": Record,
    "dataclass within a dict": lambda one, two: {"one": one, "record": Record(3, [two])},
    "class of dictionaries": lambda one, two: (one, Named(two=two)),
    "class of lists": lambda one, two: (one, Listed([two])),
}  # fmt: skip


class Two(nn.Module):
    """Two layers, of which a backward pass may use one."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.one = nn.Linear(2, 2, bias=False)
        self.two = nn.Linear(2, 2, bias=False)
        self.wrap = wrap
        self.latest = []

    def forward(self, x):
        self.latest = [self.one(x), self.two(x)]
        return self.wrap(*self.latest)


@cases.add(
    {"find_unused_parameters": True},
    given=[{"kind": kind} for kind in WRAP],
    oracle=False,
    expected=[[1.5, None], [None, 1.5], [3.0, 1.5]],
)
def a_backward_pass_through_any_of_the_tensors_is_reduced(make, rank, kind):
    """Go back from one output, whose parameters alone are used then, from the other, and from both."""
    model = make(Two(WRAP[kind]))
    seen = []
    for loss in (lambda one, two: one, lambda one, two: two, lambda one, two: 2 * one + two):
        model.zero_grad()
        output = model(torch.full((1, 2), rank + 1.0))
        assert type(output) is type(model.module.wrap(0, 0))
        loss(*model.module.latest).sum().backward()
        seen.append([None if own is None else own[0, 0].item() for own in gradients(model)])
    return seen


@cases.add({}, {"find_unused_parameters": True}, places=["gloo"], expected=[1.5, 1.5])
def tensors_behind_remote_references_are_found(make, rank):
    from torch.distributed import rpc

    rendezvous = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(rendezvous, src=0)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{rendezvous[0]}/ranks", _transports=["uv"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    try:
        model = make(Two(lambda one, two: rpc.RRef({"one": one, "two": [two]})))
        outputs = model(torch.full((1, 2), rank + 1.0)).local_value()
        (outputs["one"] + outputs["two"][0]).sum().backward()
        if make.func is OURS and model.find_unused_parameters:
            mixed = make(Two(lambda one, two: (one, rpc.RRef(two))))
            mixed(torch.full((1, 2), rank + 1.0))[1].local_value().sum().backward()
            assert mixed.module.two.weight.grad[0, 0].item() == 1.5
        return [parameter.grad[0, 0].item() for parameter in model.parameters()]
    finally:
        rpc.shutdown()


@cases.add(given=[{"within": True}, {"within": False}], alike=close, costly=True)
def compiled_modules_train(make, rank, within):
    """Wrap a compiled module, or compile a wrapped one; what they come to is that of the module itself."""
    module = net(*WIDE)
    if torch_over_gloo(make):
        return train(make(module), rank, shape=(3, WIDE[0]))
    if within or (make.func is OURS and Cluster.current() is None):  # Dynamo's guards count our finalizers
        return train(make(torch.compile(module, backend="aot_eager")), rank, shape=(3, WIDE[0]))
    return train(torch.compile(make(module), backend="aot_eager"), rank, shape=(3, WIDE[0]))
