"""The roofline of a device over every operation: what is charged, by how much, and what is not."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from collectives import NotSupportedError
from collectives.virtual import Roofline, compute, run
from sim import Device, RankError, Trace, load_device
from sim.units import SECOND
from tests.collectives.virtual.clusters import in_group, rank_thread
from tests.given import switch

ARITHMETIC = Device(
    "arithmetic", {"float32": SECOND, "float64": SECOND}, memory_bandwidth=2**62
)  # FLOP: 1 ps
MEMORY = Device("memory", {"float32": 2**62}, memory_bandwidth=SECOND)  # a byte: 1 ps
LAUNCHES = Device("launches", {"float32": 2**62}, memory_bandwidth=2**62, launch_ps=10**6)


def alone(fn, device):
    """Return the totals of *fn* on one rank, and the time that it took, in picoseconds."""
    model = device if isinstance(device, Roofline) else Roofline(device)
    outcome = run(lambda rank: fn(), network=switch(1), compute=model)
    return model.totals[0], outcome.times_ps[0]


def cost(call, *tensors, device=MEMORY):
    """Return what *call* alone takes."""
    return alone(lambda: call(*tensors), device)[1]


@given(m=st.integers(1, 9), k=st.integers(1, 9), n=st.integers(1, 9))
@settings(max_examples=5)
def test_a_matrix_product_takes_its_arithmetic_or_its_bytes_whichever_is_longer(m, k, n):
    left, right = torch.ones(m, k), torch.ones(k, n)
    nbytes = 4 * (m * k + k * n + m * n)

    assert cost(torch.mm, left, right) == nbytes
    for rate in (SECOND // 2, SECOND, 7 * SECOND):
        device = Device("both", {"float32": rate}, memory_bandwidth=SECOND, launch_ps=3)
        arithmetic = -(-2 * m * k * n * SECOND // rate)
        assert cost(torch.mm, left, right, device=device) == max(nbytes, arithmetic) + 3


def test_operations_cost_the_bytes_that_they_read_and_write():
    x, y, index = torch.ones(10, 5), torch.ones(10, 5), torch.tensor([1, 1, 4])
    table = torch.ones(1000, 5)
    sparse = torch.sparse_coo_tensor([[1, 1, 4]], torch.ones(3), (1000,), check_invariants=True).coalesce()

    assert cost(torch.add, x, y) == 3 * 200
    assert cost(torch.Tensor.add_, x, y) == 3 * 200  # reads both, writes one
    assert cost(torch.Tensor.copy_, x, y) == 2 * 200
    assert cost(torch.Tensor.zero_, x) == cost(torch.Tensor.normal_, x) == 200
    assert cost(lambda: torch.add(x, y, out=torch.empty(10, 5))) == 3 * 200
    assert cost(lambda: torch._foreach_add_([x, y], [y, x])) == 6 * 200
    assert cost(nn.functional.embedding, index, table) == 24 + 2 * 60  # the rows that it takes
    assert cost(lambda: table.index_add_(0, index, torch.empty(3, 5))) == 24 + 60 + 2 * 60
    assert cost(x.to, torch.float64) == 200 + 400
    assert cost(torch.ones, 7) == 28
    assert cost(torch.neg, sparse) == 2 * (16 + 8)  # its indices and its values


def test_views_allocations_and_what_a_tensor_says_of_itself_are_free_even_of_launches():
    x = torch.ones(4, 6, requires_grad=True)

    def look():
        torch.empty(100), x.new_empty(3), torch.empty_like(x)
        x.view(24)[3:], x.t(), x.detach(), x.split(2), x.expand(2, 4, 6), x.unsqueeze(0).reshape(-1)
        return x.shape, x.detach()[0, 0].item()

    assert cost(look, device=LAUNCHES) == 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.convolution = nn.Conv1d(8, 8, 3)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.convolution(x.transpose(1, 2)).transpose(1, 2).relu()


@pytest.mark.parametrize("recompute", [False, True])
def test_arithmetic_is_counted_in_forward_and_backward_as_torch_counts_it(recompute):
    def step(loss_of=lambda loss: loss.backward()):
        torch.manual_seed(0)
        block = Block()
        x = torch.randn(2, 6, 8, requires_grad=True)
        with sdpa_kernel(SDPBackend.MATH):
            out = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
            loss_of(out.sum())

    counter = FlopCounterMode(display=False)
    with counter:
        step()
    totals, time_ps = alone(step, ARITHMETIC)

    assert totals.flops == counter.get_total_flops() > 0
    assert totals.flops <= time_ps <= totals.flops + totals.operations  # rounded up, each once


def attend(backend):
    q = torch.ones(2, 3, 16, 4, requires_grad=True)
    with sdpa_kernel(backend):
        return nn.functional.scaled_dot_product_attention(q, q, q)


def forward_without_gradients(mode):
    with mode():
        nn.Linear(3, 5)(torch.ones(2, 3))


def recurrent():
    return nn.LSTM(4, 6, bias=False)(torch.ones(3, 2, 4))[0]


ATTENTION = 2 * 2 * 2 * 3 * 16 * 16 * 4
RECURRENT = 2 * 4 * 6 * (4 + 6) * 3 * 2


@pytest.mark.parametrize(
    ("call", "flops"),
    [
        (lambda: attend(SDPBackend.FLASH_ATTENTION), ATTENTION),
        (lambda: attend(SDPBackend.MATH), ATTENTION),
        (lambda: attend(SDPBackend.FLASH_ATTENTION).sum().backward(), ATTENTION * 7 // 2),  # scores again
        (lambda: forward_without_gradients(torch.no_grad), 2 * 2 * 3 * 5),
        (lambda: forward_without_gradients(torch.inference_mode), 2 * 2 * 3 * 5),
        (recurrent, RECURRENT),  # each weight for each vector
        (lambda: recurrent().sum().backward(), 3 * RECURRENT),
    ],
)
def test_arithmetic_is_what_a_hand_counts(call, flops):
    assert alone(call, ARITHMETIC)[0].flops == flops


def all_collectives(rank):
    x, parts, many = torch.ones(6), [torch.ones(6) for _ in range(2)], torch.ones(12)
    before, began = rank_thread().computed_ps, rank_thread().now_ps()
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.reduce(x, 0)
    dist.all_gather(parts, x)
    dist.all_gather_single(many, x)
    dist.reduce_scatter_single(x, many)
    dist.reduce_scatter(x, parts)
    dist.all_to_all_single(torch.empty(6), x)
    dist.gather(x, parts if rank == 0 else None)
    dist.scatter(x, parts if rank == 0 else None)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    dist.barrier()
    return rank_thread().computed_ps - before, rank_thread().now_ps() - began


def test_collectives_compute_nothing_and_take_the_time_that_they_take_without_a_model():
    charged = in_group(all_collectives, 2, compute=Roofline(MEMORY)).results

    assert [computed for computed, _ in charged] == [0, 0]
    assert charged == in_group(all_collectives, 2).results


def train(kind, steps=2):
    def work(rank):
        dist.init_process_group()
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3)))
        if kind == "ddp":
            model = DistributedDataParallel(model, bucket_cap_mb=0.001)
        elif kind == "fsdp2":
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for layer in [*model, model]:
                fully_shard(layer, mesh=mesh)
        elif kind == "compile":
            model = torch.compile(model, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return rank_thread().computed_ps

    return work


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("kind", ["plain", "ddp", "fsdp2", "compile"])
def test_runs_repeat_and_the_arithmetic_is_that_of_the_model_however_it_is_trained(kind):
    models = Roofline("h100"), Roofline("h100")
    first, second = (run(train(kind), network=switch(2), compute=model) for model in models)

    assert first.times_ps == second.times_ps
    assert models[0].totals == models[1].totals
    assert models[0].totals[0].flops == 2 * 2 * 4 * 16 * 16 * (3 * 3 - 1)  # the input needs no gradient


def test_that_a_mode_is_active_is_known_on_its_rank_and_forgotten_afterwards():
    def work(rank):
        with FlopCounterMode(display=False) if rank == 1 else nullcontext():
            dist.barrier()
        return is_in_torch_dispatch_mode()

    assert in_group(work, 3, compute=Roofline(MEMORY)).results == [True] * 3
    assert in_group(work, 3).results == [False] * 3
    assert not is_in_torch_dispatch_mode()


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_trace_shows_the_pass_of_all_that_is_computed(kind):
    trace, device = Trace(), replace(load_device("a100"), kind=kind)
    model = Roofline(device)
    report = run(train("plain", steps=1), network=switch(1), compute=model, trace=trace).report

    spans = [span for span in trace.spans if span.track == "compute"]
    passes = [name for name, _ in groupby(span.args.get("pass", span.name) for span in spans)]
    assert passes[-3:] == ["forward", "backward", "optimizer"]
    computed = sum(span.end_ps - span.start_ps for span in spans)
    assert computed / SECOND == report.ranks[0].compute_seconds


def test_a_type_that_the_device_cannot_compute_in_is_refused_by_name():
    x = torch.ones(2, 2, dtype=torch.bfloat16)

    with pytest.raises(RankError, match=r"the device v100 has no rate for bfloat16, in which aten.mm"):
        alone(lambda: (x + x, x @ x), "v100")


@pytest.mark.parametrize(("tf32", "product_ps"), [(False, 2000), (True, 200)])
def test_float32_products_are_in_tfloat32_only_if_asked_for_and_convolutions_where_it_can(tf32, product_ps):
    device = Device("any", {"float32": SECOND, "tfloat32": 10 * SECOND}, memory_bandwidth=2**62)
    x, weights = torch.ones(10, 10), torch.ones(10, 10, 1)

    assert cost(torch.mm, x, x, device=Roofline(device, tf32)) == product_ps
    assert cost(torch.conv1d, x[None], weights, device=Roofline(device, tf32)) == 200


@pytest.mark.parametrize("without_data", [lambda: torch.device("meta"), FakeTensorMode], ids=["meta", "fake"])
def test_products_without_data_take_no_time_and_are_named(without_data):
    def work(rank):
        with without_data():
            torch.nn.Linear(8, 8)(torch.ones(2, 8))

    outcome = run(work, network=switch(1), compute=Roofline(MEMORY))

    assert any("without data" in notice and "addmm" in notice for notice in outcome.report.notices)


def test_what_torch_computes_without_data_to_know_shapes_is_not_named():
    def work(rank):
        mesh = init_device_mesh("cpu", (2,))
        whole = distribute_tensor(torch.ones(4, 4), mesh, [Replicate()])
        (whole @ distribute_tensor(torch.ones(4, 4), mesh, [Shard(1)])).to_local()

    outcome = in_group(work, 2, compute=Roofline(MEMORY))

    assert not any("without data" in notice for notice in outcome.report.notices)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_limit": "1GB"}, "memory_limit: memory is followed where ranks"),
        ({"strict": True}, "strict: operations are charged by a device"),
        ({"fake": True, "compute": Roofline("laptop-cpu")}, "needs a GPU as its model of computation"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_needs_a_gpu_as_the_model_is_refused_without_one(options, said):
    with pytest.raises(NotSupportedError, match=said):
        run(lambda rank: None, network=switch(1), **options)


def test_a_rank_may_end_while_another_waits_in_a_step_of_its_optimizer():
    def work(rank):
        if rank == 0:
            getattr(torch, "cu" + "da").synchronize()  # the word itself would give every rank such devices
            compute("1s")
        model = nn.Linear(16, 16)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()

    outcome = run(work, 2, "dgx-h100", compute=Roofline("h100"))

    assert outcome.times_ps[1] < outcome.times_ps[0]
