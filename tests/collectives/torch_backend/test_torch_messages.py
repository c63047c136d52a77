"""Messages and uneven exchanges as torch makes them, on rank threads and between processes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import pipelining

from collectives.virtual import run_virtual
from sim.errors import DeadlockError, RankError
from sim.topology import Topology

SWITCH = Topology.switch(num_ranks=4, bandwidth="100Gbps", latency="2us")


def on_rank_threads(function, pool):
    """Run *function* on every rank, with the group of the ranks 3, 2 and 0 and that of them all."""

    def run(rank):
        dist.init_process_group("testbed")
        return function(rank, dist.new_group([3, 2, 0]), dist.group.WORLD)

    return run_virtual(run, SWITCH).results


def between_processes(function, pool):
    return pool.run(in_process, 4, function)


def in_process(rank, world_size, function):
    members, everybody = [3, 2, 0], list(range(world_size))
    return function(rank, *(dist.new_group(ranks, backend="testbed") for ranks in (members, everybody)))


BOTH = pytest.mark.parametrize(
    "run",
    [
        pytest.param(on_rank_threads, id="rank threads"),
        pytest.param(between_processes, id="processes", marks=pytest.mark.distributed),
    ],
)


def messages_and_objects(rank, group, everybody):
    if rank == 1:
        return None
    right, left = {0: 2, 2: 3, 3: 0}[rank], {2: 0, 3: 2, 0: 3}[rank]
    received = [torch.zeros(2), torch.zeros(3, dtype=torch.complex64), torch.zeros(4, dtype=torch.bool)]
    sent = [torch.full((2,), 1.0 * rank), torch.full((3,), 1j * rank), torch.full((4,), bool(rank))]
    requests = [dist.isend(tensor, right, group, tag=n) for n, tensor in enumerate(sent)]
    sources = [dist.recv(tensor, left, group, tag=n) for n, tensor in enumerate(received)]
    for request in requests:
        request.wait()
    exchanged = torch.zeros(5, dtype=torch.int64)
    batch = [
        dist.P2POp(dist.irecv, exchanged, left, everybody),
        dist.P2POp(dist.isend, torch.full((5,), rank), right, everybody),
    ]
    for request in dist.batch_isend_irecv(batch):
        request.wait()
    objects = [None, None]
    if rank == 0:
        dist.send_object_list(["text", {"key": [1, 2]}], 3, group)
    if rank == 3:
        sources.append(dist.recv_object_list(objects, 0, group))
    return sources, [tensor.tolist() for tensor in received], exchanged.tolist(), objects


@BOTH
def test_messages_and_objects_arrive_in_a_sub_group(run, pool):
    results = run(messages_and_objects, pool)

    assert results[1] is None
    for rank, left in ((0, 3), (2, 0), (3, 2)):
        sources, received, exchanged, objects = results[rank]
        assert sources == [left] * 3 + [0] * (rank == 3)
        assert received == [[left] * 2, [1j * left] * 3, [bool(left)] * 4]
        assert exchanged == [left] * 5
        assert objects == (["text", {"key": [1, 2]}] if rank == 3 else [None, None])


def crossing_a_collective(rank, group, everybody):
    total, received = torch.ones(500), torch.zeros(3)
    if rank == 0:
        work = dist.all_reduce(total, group=everybody, async_op=True)
        dist.recv(received, 1, everybody)
        sending = dist.isend(received + 1, 2, everybody)
        work.wait()
        dist.all_reduce(total, group=everybody)
        sending.wait()
    else:
        dist.all_reduce(total, group=everybody)
        if rank == 1:
            dist.send(torch.ones(3), 0, everybody)
        dist.all_reduce(total, group=everybody)
        if rank == 2:
            dist.recv(received, 0, everybody)
    return total.unique().tolist(), received.unique().tolist()


@BOTH
def test_messages_and_collectives_of_a_group_do_not_hold_each_other_up(run, pool):
    assert run(crossing_a_collective, pool) == [
        ([16.0], [1.0]),
        ([16.0], [0.0]),
        ([16.0], [2.0]),
        ([16.0], [0.0]),
    ]


def uneven(rank, group, everybody):
    if rank == 1:
        return None
    me = dist.get_rank(group)
    sizes = [[0, 1, 2], [3, 0, 0], [1, 2, 0]]
    given, expected = sizes[me], [row[me] for row in sizes]
    tensor = torch.repeat_interleave(torch.arange(3.0), torch.tensor(given)) + 10 * me
    single = torch.zeros(sum(expected), 2, dtype=torch.complex64)
    dist.all_to_all_single(
        single, torch.complex(tensor, -tensor)[:, None].expand(-1, 2), expected, given, group
    )
    parts = [torch.zeros(n, 1) for n in expected]
    work = dist.all_to_all(parts, [part[:, None] for part in tensor.split(given)], group, async_op=True)
    work.wait()
    return single.tolist(), [part.flatten().tolist() for part in parts]


@BOTH
def test_parts_of_any_size_are_exchanged_in_a_sub_group(run, pool):
    results = run(uneven, pool)

    sizes = [[0, 1, 2], [3, 0, 0], [1, 2, 0]]
    assert results[1] is None
    for rank in (0, 2, 3):
        me = [0, 2, 3].index(rank)
        parts = [[10.0 * peer + me] * row[me] for peer, row in enumerate(sizes)]
        assert results[rank] == ([[complex(n, -n)] * 2 for part in parts for n in part], parts)


def layer():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()).double()


@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B"])
def test_torchs_own_pipeline_has_the_gradients_of_one_process(schedule):
    torch.manual_seed(0)
    layers, example, target = (
        [layer() for _ in range(4)],
        torch.randn(16, 8).double(),
        torch.zeros(16, 8).double(),
    )
    start = [parameter.detach().clone() for one in layers for parameter in one.parameters()]
    torch.nn.functional.mse_loss(torch.nn.Sequential(*layers)(example), target).backward()
    expected = [[parameter.grad for parameter in one.parameters()] for one in layers]

    def work(rank):
        dist.init_process_group("testbed")
        mine = layer()
        for parameter, value in zip(mine.parameters(), start[2 * rank : 2 * rank + 2], strict=True):
            parameter.data.copy_(value)
        stage = pipelining.PipelineStage(mine, rank, 4, torch.device("cpu"))
        run = getattr(pipelining, schedule)(stage, 8, loss_fn=torch.nn.functional.mse_loss)
        run.step(*([example] if rank == 0 else []), **({"target": target} if rank == 3 else {}))
        return [parameter.grad for parameter in mine.parameters()]

    for grads, wanted in zip(run_virtual(work, SWITCH).results, expected, strict=True):
        for grad, want in zip(grads, wanted, strict=True):
            assert torch.allclose(grad, want, rtol=0, atol=1e-15)


def test_gradients_flow_through_torchs_functional_exchange():
    def work(rank):
        dist.init_process_group("testbed")
        tensor = torch.arange(8.0, requires_grad=True)
        splits = [2] * 4
        exchanged = functional.all_to_all_single_autograd(tensor, splits, splits, dist.group.WORLD)
        (exchanged.sum() * (rank + 1)).backward()
        return exchanged.tolist(), tensor.grad.tolist()

    for rank, (exchanged, grad) in enumerate(run_virtual(work, SWITCH).results):
        assert exchanged == [2.0 * rank, 2.0 * rank + 1] * 4
        assert grad == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_message_takes_its_latency_and_its_bytes_and_both_directions_go_at_once():
    def work(rank):
        dist.init_process_group("testbed")
        if rank > 1:
            return
        sending = dist.isend(torch.ones(1000), 1 - rank)
        dist.recv(torch.ones(1000), 1 - rank)
        sending.wait()

    run = run_virtual(work, SWITCH)

    assert run.times_ps == (4_000_000 + 4000 * 80, 4_000_000 + 4000 * 80, 0, 0)


def test_a_message_that_nobody_sends_is_a_deadlock_that_names_it():
    def work(rank):
        dist.init_process_group("testbed")
        if rank == 2:
            dist.recv(torch.ones(3), 0, tag=7)

    with pytest.raises(DeadlockError) as caught:
        run_virtual(work, SWITCH)

    waits_for = (
        "waits since 0 ps for message #0 from rank 0 to rank 2 (tag 7, 3 × float32): step 0, Recv(peer=0"
    )
    assert f"rank 2: {waits_for}" in str(caught.value)


def test_a_receive_of_another_size_is_a_deadlock_that_names_both_sizes():
    def work(rank):
        dist.init_process_group("testbed")
        if rank == 0:
            dist.send(torch.ones(4), 1)
        if rank == 1:
            dist.recv(torch.ones(3), 0)

    with pytest.raises(DeadlockError) as caught:
        run_virtual(work, SWITCH)

    for size in (3, 4):
        assert f"message #0 from rank 0 to rank 1 (tag 0, {size} × float32)" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist.isend(torch.ones(1), group_dst=4), "rank"),
    ],
)
def test_a_peer_that_is_no_other_rank_is_refused(call, message):
    def work(rank):
        dist.init_process_group("testbed")
        if rank == 0:
            call()

    with pytest.raises(RankError, match=message) as caught:
        run_virtual(work, SWITCH)

    assert isinstance(caught.value.__cause__, ValueError)
