"""Communication hooks: torch's own run unchanged and give torch's bits; wrong ones are told by name."""

from collections import OrderedDict
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

from ddp.buckets.torch_hooks import takes_turns
from ddp.errors import CommHookError
from sim.cluster import Cluster
from tests.distributed.scenarios import models
from tests.distributed.scenarios.mistakes import told
from tests.distributed.scenarios.models import WIDE, line, net, number, numbers, resolved, sgd, values
from tests.distributed.scenarios.scenario import OURS, PROCESSES, Scenarios, same, torch_over_gloo

cases = Scenarios()

PER_TENSOR = quantization_hooks.quantization_pertensor_hook
PER_CHANNEL = quantization_hooks.quantization_perchannel_hook
BUILT_IN = torch._C._distributed_c10d.BuiltinCommHookType
SEVERAL_BUCKETS = {"bucket_cap_mb": 0.002}


def hooked(make, hook, state=None):
    model = make(net(*WIDE))
    model.register_comm_hook(state, hook)
    return model


def train(model, rank, optimizers=sgd):
    return models.train(model, rank, optimizers, shape=(3, WIDE[0]))


def power_state():
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=2)


def post_local_sgd(model):
    subgroup, _ = dist.new_subgroups(group_size=1)
    state = post_localSGD_hook.PostLocalSGDState(None, subgroup, start_localSGD_iter=3)
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "fp16_wrapper": default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook),
    "noop": debugging_hooks.noop_hook,
}
REGISTER: dict[str, Any] = {
    "powerSGD": lambda model: model.register_comm_hook(power_state(), powerSGD_hook.powerSGD_hook),
    "post_localSGD": post_local_sgd,
    "builtin_allreduce": lambda model: model._register_builtin_comm_hook(BUILT_IN.ALLREDUCE),
    "builtin_fp16": lambda model: model._register_builtin_comm_hook(BUILT_IN.FP16_COMPRESS),
    "fused_sgd": lambda model: model._register_fused_optim(torch.optim.SGD, 0.05, momentum=0.9),
    **{name: lambda model, hook=hook: model.register_comm_hook(None, hook) for name, hook in HOOKS.items()},
}


# Over Gloo with torch's DDP callbacks of several buckets overtake each other, on every rank in another order.
@cases.add(SEVERAL_BUCKETS, given=[{"name": "powerSGD"}], places=["threads"], world_size=4)
@cases.add(given=[{"name": "powerSGD"}], chains=True)
@cases.add({**SEVERAL_BUCKETS, "gradient_as_bucket_view": True}, given=[{"name": "fp16"}])
@cases.add(SEVERAL_BUCKETS, given=[{"name": name} for name in REGISTER if name != "powerSGD"])
def torchs_own_hooks_train(make, rank, name):
    model = make(net(*WIDE))
    REGISTER[name](model)
    rate = 0.0 if name == "fused_sgd" else 0.05
    return train(model, rank, lambda model: torch.optim.SGD(model.parameters(), lr=rate))


def power_one_at_a_time(state, bucket):
    """Torch's hook as it can be used over Gloo with torch's DDP: nothing else is under way beside it."""
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


@cases.add({**SEVERAL_BUCKETS, "algorithm": "ring"}, places=["gloo"], chains=True)
@cases.add({**SEVERAL_BUCKETS, "algorithm": "native"}, places=["gloo"], world_size=3, chains=True)
def powersgd_trains_over_gloo_as_with_torch_bucket_by_bucket(make, rank):
    hook = powerSGD_hook.powerSGD_hook if make.func is OURS else power_one_at_a_time
    seen = [train(hooked(make, hook, power_state()), rank) for _ in range(2)]
    assert same(*seen)
    return seen[0]


def quantize_by_hand(per_channel, flat):
    """The mean of what all ranks' gradients are after quantisation, in torch's order of operations."""
    gathered = [torch.zeros_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, flat)
    total = torch.zeros_like(nn.functional.pad(flat, (0, 512 - len(flat) % 512)) if per_channel else flat)
    for own in gathered:
        if per_channel:
            channels = nn.functional.pad(own, (0, 512 - len(own) % 512)).view(-1, 512)
            observer = torch.ao.quantization.PerChannelMinMaxObserver()
            observer(channels)
            scale, zero = observer.calculate_qparams()
            there = quantization_hooks._quantize_per_channel_backend(channels, scale, zero)
            back = quantization_hooks._dequantize_per_channel_backend(there, scale, zero).flatten()
        else:
            observer = torch.ao.quantization.MinMaxObserver()
            observer(own)
            scale, zero = torch.FloatTensor([*observer.calculate_qparams()])
            there = quantization_hooks._quantize_per_tensor_backend(own, scale, zero)
            back = quantization_hooks._dequantize_per_tensor_backend(there, scale, zero)
        total += back
    return total[: len(flat)] / len(gathered)


# Between processes over our backend callbacks of several buckets may overtake each other, as over Gloo.
@cases.add(given=[{"hook": PER_TENSOR}, {"hook": PER_CHANNEL}], chains=True)
@cases.add(
    {**SEVERAL_BUCKETS, "algorithm": "native"},
    given=[{"hook": PER_TENSOR}],
    places=["gloo", "threads"],
    chains=True,
)
@cases.add(
    {**SEVERAL_BUCKETS, "algorithm": "ring"},
    given=[{"hook": PER_CHANNEL}],
    places=["gloo", "threads"],
    chains=True,
)
@cases.add(SEVERAL_BUCKETS, given=[{"hook": PER_CHANNEL}], places=["threads"], world_size=3)
def quantization_hooks_train_as_by_hand(make, rank, hook):
    def by_hand(state, bucket):
        return resolved(quantize_by_hand(hook is PER_CHANNEL, bucket.buffer()))

    if torch_over_gloo(make):
        return train(hooked(make, by_hand), rank)
    seen = [train(hooked(make, hook, state), rank) for state in (dist.group.WORLD, None)]
    assert same(*seen)
    return seen[0]


@cases.add(expected=True)
def gradients_are_compressed_to_bfloat16_on_a_cpu_too(make, rank):
    halves = [(torch.tensor(r + 1.3).bfloat16() / 2).bfloat16() for r in range(2)]
    if torch_over_gloo(make):
        return "BF16 all reduce communication hook required" in told(
            TypeError, hooked, make, default_hooks.bf16_compress_hook
        )
    model = make(nn.Linear(2, 2, bias=False))
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    model(torch.full((1, 2), rank + 1.3)).sum().backward()
    return bool((model.module.weight.grad == (halves[0] + halves[1]).float()).all())


@cases.add(given=[{"hierarchical": False}])
@cases.add(given=[{"hierarchical": True}], world_size=4)
def models_are_averaged(make, rank, hierarchical):
    from torch.distributed.optim import PostLocalSGDOptimizer  # its module warns when it is imported

    model = make(net(*WIDE))
    post_local_sgd(model)
    averager = PeriodicModelAverager(period=2, warmup_steps=3)
    if hierarchical:
        averager = HierarchicalModelAverager(OrderedDict([(1, 2), (2, 4)]), warmup_steps=3)
    return train(model, rank, lambda model: PostLocalSGDOptimizer(sgd(model), averager))


@cases.add(SEVERAL_BUCKETS)
def torchs_sharded_optimizer_trains(make, rank):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def sharded(model):
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)

    return train(make(net(*WIDE)), rank, sharded)


def shard(make, rank, name, split, group=None):
    from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make(net(*WIDE), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, process_group=group, overlap_with_ddp=True, lr=0.05
    )
    hook = getattr(ddp_zero_hook, name)
    model.register_comm_hook(None, hook(default_hooks.allreduce_hook, model, optimizer, split))
    train(model, rank, lambda model: SimpleNamespace(step=lambda: None))  # the hook steps
    assert not same(values(model.module), values(net(*WIDE)))
    return values(model)


ZERO = [
    {"name": name, "split": split}
    for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved")
    for split in (False, True)
]


@cases.add(SEVERAL_BUCKETS, given=ZERO, places=["threads"], world_size=3)
@cases.add(SEVERAL_BUCKETS, given=ZERO[:2], places=PROCESSES)
def an_overlapped_sharded_optimizer_trains(make, rank, name, split):
    if dist.get_backend() == "testbed":
        return shard(make, rank, name, split)
    if not hasattr(dist.Backend, "PLAIN"):  # Gloo under a name that torch's check does not know
        dist.Backend.register_backend("plain", dist.ProcessGroupGloo, devices=["cpu"])
    with pytest.raises(RuntimeError, match=r"^Gloo backend using Overlapping DDP with ZeRO may meet hangs$"):
        shard(make, rank, name, split)
    return shard(make, rank, name, split, dist.new_group(backend="plain"))


RAISES = {
    PER_TENSOR: "invalid index of a 0-dim tensor",
    PER_CHANNEL: "too many indices for tensor of dim",
    powerSGD_hook.batched_powerSGD_hook: "communication hook batched_powerSGD_hook raised AssertionError",
}


@cases.add(SEVERAL_BUCKETS, given=[{"hook": hook} for hook in RAISES], places=["gloo"], world_size=1)
def hooks_that_raise_in_torch_itself_raise_here_by_name_or_not_at_all(make, rank, hook):
    """Torch's quantisation takes what Gloo has gathered for what NCCL would have; with ours it works."""
    batched = hook is powerSGD_hook.batched_powerSGD_hook
    model = hooked(make, hook, power_state() if batched else dist.group.WORLD)
    if make.func is OURS and not batched:
        train(model, rank)
        return
    message = told((RuntimeError, AssertionError, CommHookError), train, model, rank)
    assert RAISES[hook] in message if make.func is OURS or not batched else not message


@cases.add(oracle=False, world_size=1, expected=True)
def hooks_that_chain_take_turns_over_gloo_within_wrappers_too(make, rank):
    wrapped = default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
    hooks = (wrapped, partial(PER_CHANNEL, bucket_size=64), default_hooks.allreduce_hook, power_one_at_a_time)
    turns = [takes_turns(hook, dist.group.WORLD, torch.device("cpu")) for hook in hooks]
    over_gloo = Cluster.current() is None and dist.get_backend() == "gloo"
    return turns == ([True, True, False, False] if over_gloo else [False] * 4)


@cases.add(oracle=False, expected=([6.0, 6.0, 2.0], [8.0, 8.0, 2.0]))
def a_hook_sees_undivided_gradients_bucket_by_bucket_and_may_change_their_dtype(make, rank):
    seen = []

    def hook(state, bucket):
        alike = all(g.shape == p.shape for g, p in zip(bucket.gradients(), bucket.parameters(), strict=True))
        seen.append((bucket.index(), bucket.is_last(), bucket.buffer().tolist(), alike))
        bucket.set_buffer(bucket.buffer().double() * 2)
        return resolved(bucket.buffer())

    model = make(nn.Sequential(line(), nn.Linear(1, 1)), bucket_cap_mb=1e-6)
    for layer in model.module:
        nn.init.ones_(layer.weight)
    model.register_comm_hook(None, hook)
    for _ in range(2):
        model.zero_grad()
        model(number(rank + 3)).sum().backward()
    x = rank + 3.0
    assert seen[1:] == [(0, False, [1.0], True), (1, False, [x], True), (2, True, [x], True)]
    return numbers(model)


def returns_none(state, bucket):
    return None


def raises(state, bucket):
    raise ZeroDivisionError("inside the hook")


def holds_an_error(state, bucket):
    future = torch.futures.Future()
    future.set_exception(ZeroDivisionError("inside the future"))
    return future


def holds_no_tensor(state, bucket):
    return resolved(3)


FAILS = {
    returns_none: "hook returns_none returned None for bucket 0; it must return a torch.futures.Future",
    raises: "inside the hook",
    holds_an_error: "inside the future",
    holds_no_tensor: "hook holds_no_tensor holds 3, a int for bucket 0; it must hold a tensor of 1",
}


@cases.add(given=[{"hook": hook} for hook in FAILS], oracle=False, expected=0.5)
def a_hook_that_fails_is_told_by_its_own_error_and_the_next_pass_works(make, rank, hook):
    model = make(line())
    model.register_comm_hook(None, hook)
    message = told((TypeError, ZeroDivisionError), model(number(1)).backward)
    assert FAILS[hook] in message
    model._driver.in_flight.comm_hook = None
    model.zero_grad()
    model(number(rank)).backward()
    return numbers(model)[0]


def takes_a_number(state, bucket: int):
    return bucket


def takes_nothing(): ...


@cases.add(given=[{"hook": 3}], oracle=False, says=["must be callable, got 3"])
@cases.add(given=[{"hook": takes_nothing}], oracle=False, says=["is called with a state and a bucket"])
@cases.add(given=[{"hook": takes_a_number}], oracle=False, says=[r"takes a torch\.distributed\.GradBucket"])
def what_is_no_hook_and_a_second_hook_are_refused(make, rank, hook):
    model = make(line())
    message = told((TypeError, ValueError), model.register_comm_hook, None, hook)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    twice = told(RuntimeError, model.register_comm_hook, None, default_hooks.fp16_compress_hook)
    assert "registered already, allreduce_hook" in twice
    unknown = told(ValueError, make(line())._register_builtin_comm_hook, "FP8")
    assert "no built-in communication hook is called 'FP8'" in unknown
    return message


@cases.add(oracle=False, expected=True)
def a_sparse_gradient_is_what_the_hook_has_made_of_it(make, rank):
    def of_times(times):
        model = make(nn.Embedding(5, 2, sparse=True))
        model.register_comm_hook(None, lambda _, bucket: resolved(bucket.buffer() * times))
        model(torch.tensor([rank, rank, 4])).sum().backward()
        return model.module.weight.grad.to_dense()

    once, thrice = of_times(1), of_times(3)
    return torch.equal(thrice, 3 * once) and once[rank].tolist() == [2, 2]
