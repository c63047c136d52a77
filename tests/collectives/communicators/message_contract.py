"""Contract of every transport about messages from one rank to another.

Scenarios as in `transport_contract`.
"""

import random
import time

import pytest
import torch

from collectives.communicators.communicator import Communicator
from tests.collectives.transports.transport_contract import DTYPES, part, whole


def pass_on(communicator: Communicator, sent: torch.Tensor, received: torch.Tensor, tag: int = 0) -> None:
    """Send to the right and receive from the left, in an order that works even if sending waits."""
    p, rank = communicator.world_size, communicator.rank
    if p == 1:
        return
    if rank % 2:
        communicator.recv(received, (rank - 1) % p, tag)
    communicator.send(sent, (rank + 1) % p, tag)
    if not rank % 2:
        communicator.recv(received, (rank - 1) % p, tag)


def let_rank_0_go_first(communicator: Communicator) -> None:
    """Return on the other ranks only after rank 0 has called, and most likely waits for what is next."""
    for peer in range(1, communicator.world_size):
        if communicator.rank == 0:
            communicator.send(torch.ones(1), peer, tag=9)
        elif communicator.rank == peer:
            communicator.recv(torch.ones(1), 0, tag=9)
            time.sleep(0.02)


def messages_bring_every_dtype_and_size(communicator: Communicator):
    left = (communicator.rank - 1) % communicator.world_size
    for count in (0, 1, 7, 1000):
        for dtype in DTYPES:
            received = part(communicator.rank, count, dtype)
            pass_on(communicator, part(communicator.rank, count, dtype), received)
            assert torch.equal(received, part(left, count, dtype)), (count, dtype)


def messages_take_any_strides(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    sent, received = torch.full((), float(rank)).expand(3, 4), torch.full((4, 6), -1.0)
    pass_on(communicator, sent, received[:, ::2].t())
    if p > 1:
        assert torch.equal(received[:, ::2], torch.full((4, 3), float((rank - 1) % p)))
    assert torch.equal(received[:, 1::2], torch.full((4, 3), -1.0))

    one, into = torch.full((2,), float(rank))[::2][:1], torch.full((2,), float(rank))[::2][:1]
    pass_on(communicator, one, into)
    assert into.item() == (rank - 1) % p


def messages_under_one_tag_arrive_in_order(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    if p > 1 and rank == 0:
        for work in [communicator.send(torch.full((5,), n), 1, tag=n // 4, async_op=True) for n in range(8)]:
            work.wait()
    if rank == 1:
        received = [torch.full((5,), -1) for _ in range(8)]
        works = [communicator.recv(tensor, 0, n // 4, async_op=True) for n, tensor in enumerate(received)]
        for work in reversed(works):
            work.wait()
        assert [tensor[0].item() for tensor in received] == list(range(8))


def a_peer_that_is_no_other_rank_is_refused(communicator: Communicator):
    for call in (communicator.send, communicator.recv):
        for peer in (-1, communicator.world_size):
            with pytest.raises(ValueError, match="peer must be a rank from 0"):
                call(torch.ones(1), peer)
        with pytest.raises(ValueError, match="cannot send to itself"):
            call(torch.ones(1), communicator.rank)


def messages_under_other_tags_may_be_received_first(communicator: Communicator):
    if communicator.world_size == 1 or communicator.rank > 1:
        return
    if communicator.rank == 0:
        works = [communicator.send(torch.full((9,), tag), 1, tag, async_op=True) for tag in (3, 2, 1)]
        works[0].wait()
        for work in works:
            work.wait()
    else:
        for tag in (1, 2, 3):
            received = torch.zeros(9, dtype=torch.int64)
            communicator.recv(received, 0, tag)
            assert torch.equal(received, torch.full((9,), tag))


def a_message_does_not_hold_up_a_collective(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    total, received = torch.ones(1000), torch.zeros(10)
    sending = communicator.send(torch.ones(10), 1, async_op=True) if rank == 0 < p - 1 else None
    communicator.all_reduce(total)
    if rank == 1:
        communicator.recv(received, 0)
        assert torch.equal(received, torch.ones(10))
    if sending is not None:
        sending.wait()
    assert torch.equal(total, torch.full((1000,), float(p)))


def a_collective_that_rank_0_has_begun_does_not_hold_up_its_messages(communicator: Communicator):
    """It waits for a message, or for one to be received, before it waits for the collective."""
    p, rank = communicator.world_size, communicator.rank
    for rank_0_sends in (False, True):
        total, received = torch.ones(1000), torch.zeros(10)
        begun = communicator.all_reduce(total, async_op=True) if rank == 0 else None
        let_rank_0_go_first(communicator)
        if begun is None:
            communicator.all_reduce(total)
        for peer in range(1, p):
            source, destination = (0, peer) if rank_0_sends else (peer, 0)
            if rank == source:
                communicator.send(torch.full((10,), float(peer)), destination)
            elif rank == destination:
                communicator.recv(received, source)
                assert torch.equal(received, torch.full((10,), float(peer)))
        if begun is not None:
            begun.wait()
        assert torch.equal(total, torch.full((1000,), float(p)))


def a_collective_that_nobody_has_joined_does_not_hold_up_messages(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    tensor, received = torch.full((1000,), float(rank)), torch.zeros(10)
    if rank == 0:
        work = communicator.broadcast(tensor, 0, async_op=True)
        for peer in range(1, p):
            communicator.recv(received, peer)
            work.is_completed()
            communicator.send(received + 1, peer)
        work.wait()
    else:
        communicator.send(torch.full((10,), float(rank)), 0)
        communicator.recv(received, 0)
        communicator.broadcast(tensor, 0)
        assert torch.equal(received, torch.full((10,), rank + 1.0))
    assert torch.equal(tensor, torch.zeros(1000))


def asking_whether_a_message_is_complete_does_not_wait(communicator: Communicator):
    received = torch.zeros(10)
    if communicator.rank == 0 < communicator.world_size - 1:
        first = communicator.send(torch.ones(10), 1, tag=1, async_op=True)
        assert not first.is_completed()
        communicator.send(torch.full((10,), 2.0), 1, tag=2)
        while not first.is_completed():
            communicator.clock.charge("poll")
    if communicator.rank == 1:
        for tag in (2, 1):
            work = communicator.recv(received, 0, tag, async_op=True)
            while not work.is_completed():
                communicator.clock.charge("poll")
            assert torch.equal(received, torch.full((10,), float(tag)))


def lanes_may_be_started_and_awaited_in_any_order(communicator: Communicator):
    """Everybody knows the plan; each rank starts its lanes interleaved as it likes."""
    p, rank = communicator.world_size, communicator.rank
    for round_ in range(6):
        plan = random.Random(round_)
        lanes = {None: [plan.randrange(400) for _ in range(3)]}
        for source, destination, tag in [(s, d, t) for s in range(p) for d in range(p) for t in (0, 5)]:
            if source != destination and plan.random() < 0.6:
                lanes[source, destination, tag] = [plan.randrange(400) for _ in range(plan.randrange(1, 4))]
        mine = {lane: counts for lane, counts in lanes.items() if lane is None or rank in lane[:2]}
        own = random.Random(100 * round_ + rank)
        order = [lane for lane, counts in mine.items() for _ in counts]
        own.shuffle(order)
        works, checks = [], []
        for lane in order:
            count = mine[lane].pop(0)
            if lane is None:
                tensor, expected = part(rank, count, torch.float32), whole(p, count, torch.float32)
                works.append(communicator.all_reduce(tensor, async_op=True))
            else:
                source, destination, tag = lane
                expected = part(source + tag + len(mine[lane]), count, torch.float32)
                tensor = expected.clone() if rank == source else torch.full((count,), -1.0)
                call, peer = (
                    (communicator.send, destination) if rank == source else (communicator.recv, source)
                )
                works.append(call(tensor, peer, tag, async_op=True))
            checks.append((tensor, expected))
            if own.random() < 0.3:
                own.choice([communicator.poll, own.choice(works).is_completed])()
        for work in own.sample(works, len(works)):
            work.wait()
        for tensor, expected in checks:
            assert torch.equal(tensor, expected)


SCENARIOS = (
    messages_bring_every_dtype_and_size, messages_take_any_strides, messages_under_one_tag_arrive_in_order,
    a_peer_that_is_no_other_rank_is_refused,
)  # fmt: skip
SCENARIOS_WITHOUT_WAITING = (
    messages_under_other_tags_may_be_received_first, a_message_does_not_hold_up_a_collective,
    a_collective_that_rank_0_has_begun_does_not_hold_up_its_messages,
    a_collective_that_nobody_has_joined_does_not_hold_up_messages,
    asking_whether_a_message_is_complete_does_not_wait, lanes_may_be_started_and_awaited_in_any_order,
)  # fmt: skip
"""Those that demand that starting an operation does not wait for its peer."""
