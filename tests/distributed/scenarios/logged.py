"""Logging data and private names of DDP: those of torch's, but for times."""

from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from tests.distributed.scenarios.models import inputs, line, net
from tests.distributed.scenarios.scenario import OURS, Scenarios

cases = Scenarios()


class Halves(nn.Module):
    """Layers of two dtypes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = net(), nn.Linear(2, 2).double()

    def forward(self, x):
        return self.second(self.first(x).double())


def but_for_times(ours, theirs):
    """Return whether both have torch's keys and values; ours tells more of static graphs, and its carrier."""
    assert theirs.keys() <= ours.keys() <= {*theirs, "static_graph", "carrier"}
    return all(ours[key] == theirs[key] for key in theirs if "_time" not in key)


@cases.add({}, {"gradient_as_bucket_view": True}, places=["gloo"], alike=but_for_times)
def logging_data_have_torchs_keys_and_but_for_times_its_values(make, rank):
    model = make(Halves(), bucket_cap_mb=1e-4)
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    model._set_ddp_runtime_logging_sample_rate(2)
    with model.join():
        for x in inputs(rank, 14):
            model(x).sum().backward()
    logged = model._get_ddp_logging_data()
    assert (logged["rank"], logged["iteration"], logged["gloo_num_threads"]) == (rank, 12, 2)
    if make.func is OURS:
        assert all(logged[key] > 0 for key in logged if key.startswith("avg_backward_comm"))
    return logged


def has_torchs_keys(ours, theirs):
    return theirs.keys() <= ours.keys()


@cases.add(places=["testbed"], alike=has_torchs_keys)
def logging_data_over_our_backend_have_torchs_keys(make, rank):
    model = make(net())
    for x in inputs(rank, 2):
        model(x).sum().backward()
    logged = model._get_ddp_logging_data()
    assert make.func is not OURS or "gloo_num_threads" not in logged
    return logged


@cases.add(
    {},
    {"bucket_cap_mb": 4},
    {"bucket_cap_mb_list": [0.2, 0.5, 1.0]},
    {"find_unused_parameters": True, "bucket_cap_mb": 0.5},
    {"static_graph": True},
    places=["gloo"],  # torch's reduces the rows of an embedding by a sparse all-reduce
)
def first_and_rebuilt_buckets_are_so_large(make, rank):
    module = nn.Sequential(*(nn.Linear(500, 500) for _ in range(6)), nn.Embedding(9, 500, sparse=True))
    model = make(module)
    layers = list(module)
    module.forward = lambda x: sum(layers[-1](x)) + sum(layer(torch.ones(500)).sum() for layer in layers[:-1])
    for _ in range(4):
        model(torch.tensor([1])).sum().backward()
    return buckets_of(model)


def buckets_of(model):
    data = model._get_ddp_logging_data()
    if isinstance(model, OURS):
        rebuilt = data.get("rebuilt_bucket_sizes") or data["bucket_sizes"]
        assert rebuilt == ", ".join(map(str, model.bucket_nbytes))
    return [data.get("bucket_sizes"), data.get("rebuilt_bucket_sizes") or None]


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = line()
        self.second = line()
        self.second.weight = self.first.weight
        self.own = line()


@cases.add(expected=[2, 2, 1])
def shared_and_ignored_parameters_are_counted(make, rank):
    counts = []
    for ignored in ([], ["first.weight"], ["own.weight"]):
        module = Shared()
        OURS._set_params_and_buffers_to_ignore_for_model(module, ignored)
        counts.append(make(module)._get_ddp_logging_data()["num_parameter_tensors"])
    return counts


@cases.add(expected="104, 128", places=["gloo"])
def the_size_of_the_first_bucket_is_tuned(make, rank):
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 100):
        model = make(net())
        for x in inputs(rank, 3):
            model(x).sum().backward()
        return str(model._get_ddp_logging_data()["rebuilt_bucket_sizes"])


class Branches(nn.Module):
    """The second layer is used only where the input says so."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x, both):
        y = self.first(x)
        return self.second(y) if both else y


@cases.add({"find_unused_parameters": True, "bucket_cap_mb_list": [1, 2]})
def private_names_answer(make, rank):
    """Read what torch's tests, and code of users, read on a wrapped module."""
    torch.manual_seed(0)
    model = make(Branches())
    parameters, sparse = model._build_params_for_reducer()
    seen = [
        model._build_debug_param_to_name_mapping(parameters), sparse, model.bucket_bytes_cap,
        model.bucket_bytes_cap_list, model.broadcast_bucket_size, model.device_type,
        model.is_multi_device_module, list(model.named_module_buffers),
        [buffer.tolist() for buffer in model.modules_buffers],
        len(list(model._get_data_parallel_params(model.module))),
    ]  # fmt: skip
    for step in range(4):
        model(torch.ones(1, 2), step > 1 and rank == 0).sum().backward()
        seen += [model.reducer._get_local_used_map().tolist(), model.reducer._ddp_graph_static()]
    buffers = [torch.full((3,), float(rank)), torch.full((1,), rank)]
    model._default_broadcast_coalesced(buffers, authoritative_rank=1)
    return [*seen, *buffers, model.reducer._rebuild_buckets()]


@cases.add({"skip_all_reduce_unused_params": False}, {"skip_all_reduce_unused_params": True})
def so_many_buckets_are_told_to_be_reduced(make, rank):
    model = make(Branches(), bucket_cap_mb=1e-6, find_unused_parameters=True)
    for _ in range(3):
        model(torch.ones(1, 2), False).sum().backward()
    return int(model._get_ddp_logging_data()["num_buckets_reduced"])
