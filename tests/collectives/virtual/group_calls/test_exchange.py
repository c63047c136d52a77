"""Exchange of data: whose threads are awaited, what folded ranks give, what is not known."""

import pytest
import simpy
import torch

from collectives.catalogue.selectors import fixed
from collectives.communicators.requests import Request
from collectives.errors import NotSupportedError
from collectives.virtual.folding.classes import Classes, RankClass
from collectives.virtual.group_calls.exchange import Exchanges

HOSTS = (0, 1, 2, 3)
RING = fixed("ring")


def exchanges_of(*folded):
    exchanges = Exchanges(simpy.Environment(), Classes(folded))
    for rank in HOSTS:
        exchanges.classes.partitions.announce(rank, HOSTS)
    return exchanges


def all_reduce(tensor):
    return Request("all_reduce", tensor.numel(), tensor.dtype, output=tensor, op="sum")


def join(exchanges, rank, request):
    return exchanges.join(HOSTS, (0, 0), rank, request, request.call("ring"), RING)


def test_results_are_there_when_the_last_thread_has_called():
    exchanges, tensors = exchanges_of(), [torch.full((5,), float(rank)) for rank in HOSTS]

    calls = []
    for rank in HOSTS:
        assert not any(call.is_there for call in calls)
        calls.append(join(exchanges, rank, all_reduce(tensors[rank])))

    assert all(call.is_there and call.is_known for call in calls)
    assert [tensor.tolist() for tensor in tensors] == [[6.0] * 5] * 4


def test_who_has_not_called_is_named():
    exchanges = exchanges_of()
    request = all_reduce(torch.ones(5))
    for rank in (0, 2):
        join(exchanges, rank, all_reduce(torch.ones(5)))

    assert exchanges.absent(HOSTS, (0, 0), request.call("ring")) == [1, 3]


def test_a_folded_rank_gives_what_its_representative_gives():
    exchanges = exchanges_of(RankClass((1, 2, 3)))
    first, second = torch.full((2,), 10), torch.full((2,), 1)

    calls = [join(exchanges, 0, all_reduce(first)), join(exchanges, 1, all_reduce(second))]

    assert all(call.is_there for call in calls)
    assert first.tolist() == second.tolist() == [13, 13]


def test_a_probe_is_awaited_until_its_representative_speaks_for_it():
    folded = RankClass((1, 2, 3), probes=[3])
    exchanges = exchanges_of(folded)
    tensors = [torch.full((2,), 1) for _ in range(2)]

    calls = [join(exchanges, rank, all_reduce(tensor)) for rank, tensor in enumerate(tensors)]
    awaited = not any(call.is_there for call in calls)
    folded.merge([3])
    exchanges.representatives_changed()

    assert awaited
    assert all(call.is_there for call in calls)
    assert tensors[0].tolist() == [4, 4]


def test_what_depends_on_an_unknown_value_is_not_known():
    exchanges = exchanges_of(RankClass((1, 2, 3)))
    known = torch.ones(5)

    calls = [
        join(exchanges, 0, all_reduce(known)),
        join(exchanges, 1, all_reduce(torch.ones(5, device="meta"))),
    ]

    assert [call.is_there for call in calls] == [True, True]
    assert not any(call.is_known for call in calls)
    assert known.tolist() == [1.0] * 5


def test_a_broadcast_depends_on_its_root_alone():
    exchanges = exchanges_of(RankClass((1, 2, 3)))
    tensors = [torch.arange(3), torch.zeros(3, dtype=torch.int64)]

    for rank, tensor in enumerate(tensors):
        call = join(exchanges, rank, Request("broadcast", 3, torch.int64, output=tensor, root=0))

    assert call.is_known
    assert tensors[1].tolist() == [0, 1, 2]


def test_a_folded_rank_that_would_have_to_give_something_else_is_refused():
    exchanges = exchanges_of(RankClass((0, 1, 2, 3)))
    request = Request("scatter", 8, torch.float32, output=torch.zeros(2), root=2)

    call = join(exchanges, 0, request)

    assert isinstance(call.error, NotSupportedError)
    with pytest.raises(NotSupportedError, match="run with fold off"):
        raise call.error


def test_a_sender_waits_for_nobody_and_may_reuse_its_buffer():
    exchanges, sent, received = exchanges_of(), torch.arange(3), torch.zeros(3, dtype=torch.int64)

    sending = join(exchanges, 0, Request("message", 3, torch.int64, given=sent, lane=(0, 1, 0)))
    sent.zero_()
    receiving = join(exchanges, 1, Request("message", 3, torch.int64, output=received, lane=(0, 1, 0)))

    assert sending.is_there
    assert receiving.is_there
    assert received.tolist() == [0, 1, 2]
