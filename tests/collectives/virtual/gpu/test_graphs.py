"""CUDA graphs: a replay computes what eager steps compute, and costs the host one launch."""

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.fsdp import fully_shard

from collectives.virtual import Roofline, run
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


def by_graph(step, generator=None, **options):
    """Return a function that replays a graph of *step*, and returns what that has returned."""
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, **options):
        result = step()

    def replay():
        graph.replay()
        return result

    return replay


def eagerly(step, generator=None):
    return step


def check_that_graphs_change_nothing(work, num_ranks=1, compute=None, **options):
    """Check that ranks get of ``work(rank, way)`` the same whichever way it has a step repeated."""
    expected, found = (
        in_group(lambda rank, way=way: work(rank, way), num_ranks, "nccl", compute=compute, **options).results
        for way in (eagerly, by_graph)
    )
    assert found == expected


def train(how, optimizer, layers, steps):
    """Return the losses of a small model and its parameters, trained eagerly or by graphs."""
    torch.manual_seed(layers)
    blocks = (nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)) for _ in range(layers))
    model = nn.Sequential(*blocks, nn.Linear(8, 1)).cuda()
    options = {} if optimizer == "SGD" else {"capturable": True}
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1, **options)
    inputs = torch.zeros(4, 8, device="cuda")
    batches, losses = torch.randn(steps + 1, 4, 8), []
    forward = model

    def step():
        stepper.zero_grad(set_to_none=True)
        loss = (forward(inputs) ** 2).mean()
        loss.backward()
        stepper.step()
        return loss.detach()

    inputs.copy_(batches[0])
    step()  # which makes the optimizer's state
    model.train(how in ("eager", "whole"))
    if how == "callables":
        forward = torch.cuda.make_graphed_callables(model, (inputs.clone(),))
    again = by_graph(step) if how == "whole" else step
    for batch in batches[1:]:
        inputs.copy_(batch)
        losses.append(again().item())
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


def between_events_ps(launch):
    """Return the picoseconds from before to after what *launch* issues."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e9


def test_a_replay_costs_the_host_one_operation_and_the_device_what_was_captured():
    def work(rank):
        product, side = torch.ones(64, 64, device="cuda"), torch.cuda.Stream()

        def products():
            side.wait_stream(torch.cuda.current_stream())
            for _ in range(5):
                product @ product
            with torch.cuda.stream(side):
                for _ in range(3):
                    product @ product
            torch.cuda.current_stream().wait_stream(side)

        launches = by_graph(products), lambda: product @ product
        return [between_events_ps(launch) - HOST_PS for launch in launches]

    replayed, alone = run(work, 1, compute=Roofline(DEVICE)).results[0]
    assert replayed == pytest.approx(5 * alone)  # beside which three others went


@MODELS
def test_a_capture_leaves_memory_as_it_was_and_a_replay_changes_it(compute):
    def work(rank):
        counter = torch.zeros((), device="cuda")

        def count():
            assert torch.cuda.is_current_stream_capturing()
            counter.add_(1)
            return counter * 2

        replay = by_graph(count, pool=torch.cuda.graph_pool_handle())
        seen = [counter.item()]
        for _ in range(2):
            seen += [replay().item(), counter.item()]
        return seen

    assert run(work, 1, compute=compute).results == [[0, 2, 1, 4, 2]]


@MODELS
@given(shares=st.lists(st.sampled_from([0.2, 0.5]), min_size=1, max_size=3), replays=st.integers(0, 3))
@settings(max_examples=4)
@pytest.mark.parametrize("explicit", [False, True])
def test_replays_draw_what_eager_calls_draw_and_a_capture_draws_nothing(compute, explicit, shares, replays):
    def work(rank, way):
        torch.cuda.manual_seed(1)
        generator = torch.Generator("cuda").manual_seed(2) if explicit else None
        drawn, found = torch.zeros(4, device="cuda"), []

        def draw():
            for share in shares:
                drawn.bernoulli_(share, generator=generator)

        again = way(draw, generator)
        for _ in range(replays):
            again()
            found += [drawn.tolist(), torch.cuda.get_rng_state().tolist()]
        return found

    check_that_graphs_change_nothing(work, compute=compute)


def test_replays_without_data_move_the_generator_as_eager_calls_do():
    def work(rank, way):
        draw = way(torch.zeros(64, 64, device="cuda").normal_)
        torch.cuda.manual_seed(1)
        for _ in range(3):
            draw()
        return torch.cuda.get_rng_state().tolist()

    check_that_graphs_change_nothing(work, compute=Roofline(DEVICE), fake=True)


@MODELS
def test_a_replay_copies_pinned_memory_to_the_device_and_back(compute):
    def work(rank):
        given, taken = torch.zeros(4).pin_memory(), torch.zeros(4).pin_memory()
        doubled = torch.zeros(4, device="cuda")

        def double():
            doubled.copy_(given, non_blocking=True)
            doubled.mul_(2)
            taken.copy_(doubled, non_blocking=True)
            return doubled.to("cpu", non_blocking=True)

        replay = by_graph(double)
        found = [taken.tolist()]
        for value in (1, 2):
            given.fill_(value)
            also = replay()
            torch.cuda.synchronize()
            found += [taken.tolist(), also.tolist()]
        return found

    expected = [[value] * 4 for value in (0, 2, 2, 4, 4)]
    assert run(work, 1, compute=compute).results == [expected]


@MODELS
def test_a_number_is_put_where_a_mask_says_without_a_wait(compute):
    def work(rank):
        tensor = torch.zeros(4, device="cuda")
        replay = by_graph(lambda: tensor.__setitem__(tensor > 1, -1.0))
        tensor.copy_(torch.arange(4))
        replay()
        return tensor.tolist()

    assert run(work, 1, compute=compute).results == [[0, 1, -1, -1]]


def test_fully_sharded_steps_in_a_graph_give_what_eager_ones_give():
    def work(rank, way):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)).cuda()
        for layer in (model[0], model[2], model):
            fully_shard(layer)
        optimizer, inputs = torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(2, 8, device="cuda")

        def step():
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        again = way(step)
        return [again().item() for _ in range(3)]

    check_that_graphs_change_nothing(work, 2, Roofline(DEVICE))


@pytest.mark.parametrize("wraps", [False, True], ids=["calls", "DistributedDataParallel"])
def test_calls_in_a_graph_give_what_eager_ones_give_and_leave_memory_alone_when_captured(wraps):
    def work(rank, way):
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
        before, again, found = whole.tolist(), way(step), []
        assert whole.tolist() == before
        for number in range(3):
            inputs.copy_(torch.randn(2, 8, generator=torch.Generator().manual_seed(number * 3 + rank)))
            found.append(again().item())
        return found

    check_that_graphs_change_nothing(work, 3, Roofline(DEVICE))


@pytest.mark.parametrize("options", [{"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}])
def test_a_compiled_region_with_graphs_costs_the_host_one_operation_in_each_pass(options):
    def work(rank, **options):
        torch.manual_seed(0)
        layers = (nn.Linear(8, 8, bias=False) for _ in range(6))
        model = torch.compile(nn.Sequential(*layers).cuda(), **options)
        output = model(torch.ones(4, 8, device="cuda"))
        return round(between_events_ps(lambda: output.backward(torch.ones_like(output))) / HOST_PS)

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
