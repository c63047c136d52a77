"""Shared memory: more messages than there is room for, in any order, and what it refuses."""

from __future__ import annotations

import platform

import pytest
import torch

from collectives import NotSupportedError
from collectives.communicators.connection import connect
from tests.distributed.pool import WorkerPool

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(("num_messages", "count"), [(300, 3), (20, 1 << 20)])
def test_messages_beyond_the_room_for_them_may_be_received_last_first(
    num_messages: int, count: int, pool: WorkerPool
) -> None:
    pool.run(_last_first, 2, num_messages, count)


def _last_first(rank: int, world_size: int, num_messages: int, count: int) -> None:
    communicator = connect(algorithm="ring", transport="shm", timeout=30)
    tags = range(num_messages)
    if rank == 0:
        works = [communicator.send(torch.full((count,), 1.0 * t), 1, tag=t, async_op=True) for t in tags]
        for work in works:
            work.wait()
    else:
        received = torch.empty(count)
        for tag in reversed(tags):
            communicator.recv(received, 0, tag=tag)
            assert received.eq(tag).all()


def test_steps_in_pieces_that_overwrite_what_they_send_keep_it(pool: WorkerPool) -> None:
    for total in pool.run(_in_pieces, 3):
        assert total == [6.0] * 3


def _in_pieces(rank: int, world_size: int) -> list[float]:
    totals = []
    for algorithm in ("recursive_doubling", "tree", "direct"):
        tensor = torch.full(((5 << 20) + 3,), rank + 1.0)
        connect(algorithm=algorithm, transport="shm", timeout=30).all_reduce(tensor)
        totals.append(tensor.unique().item())
    return totals


def test_what_has_no_shared_memory_is_refused_by_name(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = pool.run(_refusals, 2)[0]

    assert "there is no transport 'smh'; expected 'shm', or None" in said[0]
    assert "transport shm has no collectives of its own" in said[1]
    assert "transport shm has no tensors on cuda" in said[2]
    from collectives.transports.shared_memory.segment import check_machine

    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(NotSupportedError, match="this is Linux on aarch64: use gloo"):
        check_machine()


def _refusals(rank: int, world_size: int) -> list[str]:
    said = []
    for options in (
        {"transport": "smh"},
        {"transport": "shm", "algorithm": "native"},
        {"transport": "shm", "device": "cuda"},
    ):
        with pytest.raises(NotSupportedError) as refusal:
            connect(**options)
        said.append(str(refusal.value))
    return said
