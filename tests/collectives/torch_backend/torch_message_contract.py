"""Contract of every group as torch sees it, about messages and barriers: scenarios as in `torch_contract`."""

from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.collectives.torch_backend.torch_contract import values


def received_by_rank_0(rank, everybody):
    """Return source, source and number of the two messages that each other rank sends to rank 0."""
    if rank > 0:
        for number in range(2):
            dist.send(torch.tensor([rank, number], dtype=torch.uint8), 0, everybody)
        return None
    messages = []
    for _ in range(6):
        tensor = torch.zeros(2, dtype=torch.uint8)
        source = dist.recv(tensor, group=everybody)
        messages.append((source, *tensor.tolist()))
    return messages


def messages_of_any_source_come_once_in_the_order_of_their_source_and_name_it(rank, group, everybody):
    messages = received_by_rank_0(rank, everybody)
    if rank == 0:
        assert sorted(messages) == [(peer, peer, number) for peer in (1, 2, 3) for number in (0, 1)]
        assert all(messages.index((peer, peer, 0)) < messages.index((peer, peer, 1)) for peer in (1, 2, 3))


def a_source_can_be_named_after_none_was(rank, group, everybody):
    if rank > 0:
        dist.send(torch.full((3,), float(rank)), 0, everybody, tag=5)
        return
    first = torch.zeros(3)
    source = dist.recv(first, group=everybody, tag=5)
    assert first.tolist() == [float(source)] * 3
    for peer in {1, 2, 3} - {source}:
        other = torch.zeros(3)
        dist.recv(other, peer, everybody, tag=5)
        assert other.tolist() == [float(peer)] * 3


def messages_of_one_rank_to_receives_from_any_are_had_by_asking_for_them(rank, group, everybody):
    if rank == 3:
        for number in range(3):
            dist.send(torch.tensor([float(number)]), 0, everybody, tag=6)
    if rank == 0:
        received = [torch.zeros(1) for _ in range(3)]
        works = [dist.irecv(tensor, group=everybody, tag=6) for tensor in received]
        for work in works:
            while not work.is_completed():
                pass
        assert torch.cat(received).tolist() == [0.0, 1.0, 2.0]


def ranks_and_tags_may_be_integers_of_numpy(rank, group, everybody):
    peer, tag, received = np.int64(rank ^ 1), np.int32(7), torch.zeros(1)
    messages = [
        dist.P2POp(dist.isend, torch.tensor([float(rank)]), peer, everybody, tag),
        dist.P2POp(dist.irecv, received, int(peer), everybody, int(tag)),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    dist.broadcast(received, np.int64(2), everybody)
    assert received.item() == 3.0


def a_rank_sends_to_itself(rank, group, everybody):
    received = torch.zeros(2)
    calls = [dist.P2POp(dist.irecv, received, rank, everybody)]
    calls.append(dist.P2POp(dist.isend, torch.full((2,), float(rank)), rank, everybody))
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert received.tolist() == [float(rank)] * 2


def messages_and_objects_arrive_in_a_sub_group(rank, group, everybody):
    if rank == 1:
        return
    right, left = {0: 2, 2: 3, 3: 0}[rank], {2: 0, 3: 2, 0: 3}[rank]
    received = [torch.zeros(2), torch.zeros(3, dtype=torch.complex64), torch.zeros(4, dtype=torch.bool)]
    sent = [torch.full((2,), 1.0 * rank), torch.full((3,), 1j * rank), torch.full((4,), bool(rank))]
    requests = [dist.isend(tensor, right, group, tag=n) for n, tensor in enumerate(sent)]
    sources = [dist.recv(tensor, left, group, tag=n) for n, tensor in enumerate(received)]
    for request in requests:
        request.wait()
    assert sources == [left] * 3
    assert values(received) == [[left] * 2, [1j * left] * 3, [bool(left)] * 4]

    exchanged = torch.zeros(5, dtype=torch.int64)
    batch = [
        dist.P2POp(dist.irecv, exchanged, left, everybody),
        dist.P2POp(dist.isend, torch.full((5,), rank), right, everybody),
    ]
    for request in dist.batch_isend_irecv(batch):
        request.wait()
    assert exchanged.tolist() == [left] * 5

    objects, sent_objects = [None, None], ["text", {"key": [1, 2]}]
    if rank == 0:
        dist.send_object_list(sent_objects, 3, group)
    if rank == 3:
        assert dist.recv_object_list(objects, 0, group) == 0
        assert objects == sent_objects


def an_asynchronous_barrier_does_not_wait_at_its_call(rank, group, everybody):
    token = torch.zeros(1)
    if rank == 0:
        work = dist.barrier(everybody, async_op=True)
        dist.send(token, 1, everybody)
        work.wait()
    else:
        if rank == 1:
            dist.recv(token, 0, everybody)
        dist.barrier(everybody)


def a_monitored_barrier_names_who_is_missing_and_leaves_the_group_usable(rank, group, everybody):
    said = ""
    if rank != 1:
        with pytest.raises(RuntimeError) as caught:
            everybody.monitored_barrier(timedelta(seconds=0.5), rank == 0)
        said = str(caught.value)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=everybody)
    assert tensor.item() == 4.0
    if rank == 0:
        assert said == "[Rank 0]: Ranks 1 failed to pass monitoredBarrier in 500 ms"
    if rank == 2:
        assert "Rank 2 successfully reached monitoredBarrier, but received errors" in said


SCENARIOS = (
    messages_of_any_source_come_once_in_the_order_of_their_source_and_name_it,
    messages_of_one_rank_to_receives_from_any_are_had_by_asking_for_them,
    a_source_can_be_named_after_none_was, a_rank_sends_to_itself, ranks_and_tags_may_be_integers_of_numpy,
    messages_and_objects_arrive_in_a_sub_group,
    an_asynchronous_barrier_does_not_wait_at_its_call,
    a_monitored_barrier_names_who_is_missing_and_leaves_the_group_usable,
)  # fmt: skip
