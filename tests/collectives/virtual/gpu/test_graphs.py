"""CUDA graphs: a replay computes what eager steps compute, and costs the host one launch."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from collectives.virtual import Roofline, run
from sim.errors import RankError
from sim.hardware import Device
from tests.collectives.virtual.clusters import in_group

HOST_PS = 10**8
"""Picoseconds that the host takes for an operation, longer than any kernel here."""
DEVICE = Device(
    "device",
    {"float32": 10**15},
    10**13,
    kind="gpu",
    host_overhead_ps=HOST_PS,
    copy_bandwidth=10**13,
    memory_bytes=2**34,
)
MODELS = pytest.mark.parametrize("compute", [None, Roofline(DEVICE)], ids=["instant", "charged"])


def train(how, optimizer, layers, steps):
    """Return the losses of a small model and its parameters, trained eagerly or by graphs."""
    torch.manual_seed(layers)
    blocks = (nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU()) for _ in range(layers))
    model = nn.Sequential(*blocks, nn.Linear(8, 1)).cuda()
    options = {} if optimizer == "SGD" else {"capturable": True}
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options)
    inputs = torch.zeros(4, 8, device="cuda")
    batches, losses = torch.randn(steps + 1, 4, 8), []

    def step(model):
        stepper.zero_grad(set_to_none=True)
        loss = (model(inputs) ** 2).mean()
        loss.backward()
        stepper.step()
        return loss.detach()

    inputs.copy_(batches[0])
    step(model)  # which makes the optimizer's state
    loss, graph = None, torch.cuda.CUDAGraph()
    if how == "whole":
        with torch.cuda.graph(graph):
            loss = step(model)
    elif how == "callables":
        model.eval()
        model = torch.cuda.make_graphed_callables(model, (inputs.clone(),))
    else:
        model.train(how == "eager")
    for batch in batches[1:]:
        inputs.copy_(batch)
        if loss is not None:
            graph.replay()
        losses.append((step(model) if loss is None else loss).item())
    return losses, [own.detach().cpu() for own in model.state_dict().values()]


@MODELS
@settings(max_examples=4)
@pytest.mark.parametrize(("how", "as_by"), [("whole", "eager"), ("callables", "eager in eval mode")])
@given(
    optimizer=st.sampled_from(["SGD", "Adam", "AdamW"]),
    layers=st.integers(1, 3),
    steps=st.integers(1, 4),
)
def test_training_by_graphs_is_eager_training_bit_for_bit(compute, how, as_by, optimizer, layers, steps):
    def both(rank):
        return train(how, optimizer, layers, steps), train(as_by, optimizer, layers, steps)

    (losses, state), (expected, expected_state) = run(both, 1, compute=compute).results[0]
    assert losses == expected
    assert all(map(torch.equal, state, expected_state))


def test_a_replay_costs_the_host_one_operation_and_the_device_what_was_captured():
    def work(rank):
        product = torch.ones(64, 64, device="cuda")
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            for _ in range(5):
                product @ product
            with torch.cuda.stream(side):
                for _ in range(3):
                    product @ product
            torch.cuda.current_stream().wait_stream(side)
        times = []
        for launch in (graph.replay, lambda: product @ product):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            launch()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e9)
        return times[0] - HOST_PS, times[1] - HOST_PS

    replayed, alone = run(work, 1, compute=Roofline(DEVICE)).results[0]
    assert replayed == pytest.approx(5 * alone)  # beside which three others went


@MODELS
def test_a_capture_leaves_memory_as_it_was_and_a_replay_changes_it(compute):
    def work(rank):
        counter = torch.zeros((), device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            assert torch.cuda.is_current_stream_capturing()
            counter += 1
            twice = counter * 2
        seen = [counter.item()]
        for _ in range(2):
            graph.replay()
            seen += [counter.item(), twice.item()]
        return seen

    assert run(work, 1, compute=compute).results == [[0, 1, 2, 2, 4]]


def read(graph, tensor):
    with torch.cuda.graph(graph):
        tensor.sum().item()


def synchronize(graph, tensor):
    with torch.cuda.graph(graph):
        torch.cuda.synchronize()


def reduce(graph, tensor):
    with torch.cuda.graph(graph):
        dist.all_reduce(tensor)


def nest(graph, tensor):
    with torch.cuda.graph(graph):
        torch.cuda.CUDAGraph().capture_begin()


def replay(graph, tensor):
    graph.replay()


def gather_a_list(graph, tensor):
    with torch.cuda.graph(graph):
        dist.all_gather([tensor, tensor.clone()], tensor)


def leave_a_stream_alone(graph, tensor):
    side = torch.cuda.Stream()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.sum()


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (read, "not permitted when stream is capturing"),
        (synchronize, "not permitted when stream is capturing"),
        (nest, "being captured on this rank"),
        (replay, "has captured nothing"),
    ],
)
@MODELS
def test_what_no_graph_takes_is_refused_by_name(compute, mistake, words):
    with pytest.raises(RankError, match=words):
        in_group(lambda rank: mistake(torch.cuda.CUDAGraph(), torch.ones(4).cuda()), 2, compute=compute)


def test_a_collective_in_a_graph_wants_a_gpu_that_is_modelled():
    with pytest.raises(RankError, match="needs a GPU that is modelled: --compute"):
        in_group(lambda rank: reduce(torch.cuda.CUDAGraph(), torch.ones(4).cuda()), 2)


@pytest.mark.parametrize("wraps", [False, True], ids=["calls", "DistributedDataParallel"])
def test_calls_in_a_graph_give_what_eager_ones_give_and_leave_memory_alone_when_captured(wraps):
    def work(rank, is_captured):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).cuda()
        wrapped = nn.parallel.DistributedDataParallel(model) if wraps else model
        inputs, whole = torch.zeros(2, 8, device="cuda"), torch.zeros(6, 8, device="cuda")

        def step():
            model.zero_grad(set_to_none=True)
            output = wrapped(inputs)
            output.square().mean().backward()
            received, following = torch.empty_like(output), (rank + 1) % 3
            sent = dist.P2POp(dist.isend, output.detach(), following)
            works = dist.batch_isend_irecv([sent, dist.P2POp(dist.irecv, received, (rank - 1) % 3)])
            works.append(dist.all_gather_single(whole, output.detach(), async_op=True))
            for own in works:
                own.wait()
            with torch.no_grad():
                for parameter in model.parameters():
                    if not wraps:
                        dist.all_reduce(parameter.grad)
                    parameter.sub_(0.1 * parameter.grad)
            return received.sum() + whole.sum()

        for _ in range(11 if wraps else 1):  # so many DistributedDataParallel wants
            step()
        if is_captured:
            graph, before = torch.cuda.CUDAGraph(), whole.tolist()
            with torch.cuda.graph(graph):
                result = step()
            assert whole.tolist() == before
        found = []
        for number in range(3):
            inputs.copy_(torch.randn(2, 8, generator=torch.Generator().manual_seed(number * 3 + rank)))
            found.append((graph.replay() or result if is_captured else step()).item())
        return found

    compute = Roofline(DEVICE)
    expected, found = (
        in_group(lambda rank, own=own: work(rank, own), 3, "nccl", compute=compute).results
        for own in (False, True)
    )
    assert found == expected


@pytest.mark.parametrize(
    ("mistake", "words"), [(leave_a_stream_alone, "unjoined work"), (gather_a_list, "all_gather_into_tensor")]
)
def test_what_is_known_of_a_modelled_gpu_alone_is_refused_there(mistake, words):
    with pytest.raises(RankError, match=words):
        in_group(
            lambda rank: mistake(torch.cuda.CUDAGraph(), torch.ones(4).cuda()),
            2,
            "nccl",
            compute=Roofline(DEVICE),
        )


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}])
def test_a_compiled_region_with_graphs_costs_the_host_one_operation_in_each_pass(options):
    def work(rank, **options):
        torch.manual_seed(0)
        layers = (nn.Linear(8, 8, bias=False) for _ in range(6))
        model = torch.compile(nn.Sequential(*layers).cuda(), **options)
        output = model(torch.ones(4, 8, device="cuda"))
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        output.backward(torch.ones_like(output))
        end.record()
        end.synchronize()
        return round(begin.elapsed_time(end) * 1e9 / HOST_PS)

    compute = Roofline(DEVICE)
    graphed = run(lambda rank: work(rank, **options), 1, compute=compute, fake=True).results[0]
    assert graphed == 2  # what it begins with, and the graph
    assert run(work, 1, compute=compute, fake=True).results[0] > 6


@settings(max_examples=10)
@given(places=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=6, unique=True))
def test_addresses_tell_apart_what_lies_apart(places):
    def work(rank):
        storages = [torch.zeros(8, device="cuda") for _ in range(4)]
        again = [storages[own][first:] for own, first in places]
        assert [own.data_ptr() for own in again] == [
            storages[own][first:].data_ptr() for own, first in places
        ]
        return [own.data_ptr() for own in again]

    found = run(work, 1).results[0]
    assert len(set(found)) == len(places)
