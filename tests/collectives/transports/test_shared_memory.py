"""Shared memory: more messages than there is room for, in any order, and what it refuses."""

import json
import os
import platform
import random
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore

from collectives import NotSupportedError, Recv, Send, connect
from collectives.program.chunking import Buffer, Chunking
from collectives.transports.shared_memory import segment
from tests.distributed.hosts import as_if_on_host
from tests.processes import not_outliving

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize(("num_messages", "count"), [(300, 3), (20, 1 << 20)])
def test_messages_beyond_the_room_for_them_may_be_received_last_first(num_messages, count, pool):
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


@pytest.mark.costly
def test_steps_in_pieces_that_overwrite_what_they_send_keep_it(pool):
    for total in pool.run(_in_pieces, 3):
        assert total == [6.0] * 3


def _in_pieces(rank: int, world_size: int) -> list[float]:
    totals = []
    for algorithm in ("recursive_doubling", "tree", "direct"):
        tensor = torch.full(((5 << 20) + 3,), rank + 1.0)
        connect(algorithm=algorithm, transport="shm", timeout=30).all_reduce(tensor)
        totals.append(tensor.unique().item())
    return totals


def test_tensors_in_shared_memory_give_the_same_bits_as_others(pool):
    assert pool.run(_lent, 3) == [True] * 3


def _lent(rank: int, world_size: int) -> bool:
    late = random.Random(rank)
    generator = torch.Generator().manual_seed(rank)
    same = []
    names = "direct direct:segments=3 one_shot ring tree bucket double_binary_tree"
    for algorithm in names.split():
        communicator = connect(algorithm=algorithm, transport="shm", timeout=30)
        shared = communicator.zeros(900_001, torch.float32)
        for _ in range(3):
            shared.copy_(torch.randn(900_001, generator=generator))
            other = shared.clone()
            time.sleep(late.choice((0, 0.002)))
            work = communicator.all_reduce(shared, async_op=True)
            communicator.all_reduce(other)
            work.wait()
            same.append(torch.equal(shared, other))
    return all(same)


def test_what_is_lent_is_not_overwritten_before_it_is_read(pool):
    assert pool.run(_overwritten_while_lent, 3) == [2.0, 0.0, 2.0]


def _overwritten_while_lent(rank: int, world_size: int) -> float:
    """Send what another rank, which is late, has not yet read when something else comes there."""
    communicator = connect(algorithm="ring", transport="shm", timeout=30)
    transport = communicator.launcher.transport
    data = communicator.zeros(700_000, torch.float32).fill_(rank)
    buffer = Buffer(Chunking(len(data), 1, 4), data)
    steps = {0: [Send(1, 0), Recv(2, 0)], 1: [Recv(0, 0)], 2: [Send(0, 0)]}[rank]
    if rank == 1:
        time.sleep(0.2)  # in which what is wrong may overwrite it; nothing is wrong if it does not
    with transport.turn:
        for operation in steps:
            transport.post((operation,), buffer, 5).wait(45)
        rest = transport.drain(5)
        if rest is not None:
            rest.wait(45)
    assert len(data.unique()) == 1
    return float(data[0])


def test_memory_is_given_back_with_the_tensor_that_has_it(pool):
    first, second, fits = pool.run(_twice_of_one_memory, 1)[0]

    assert first == second
    assert not fits


def _twice_of_one_memory(rank: int, world_size: int) -> tuple[int, int, bool]:
    communicator = connect(transport="shm")
    tensor = communicator.zeros(1000, torch.int16)
    first = tensor.data_ptr()
    del tensor
    second = communicator.zeros(900, torch.float32).data_ptr()
    return first, second, communicator.launcher.memory(1 << 40) is not None


def test_what_has_no_shared_memory_is_refused_by_name(pool):
    said = pool.run(_refusals, 2)[0]

    assert "there is no transport 'smh'; expected 'shm', or None" in said[0]
    assert "transport shm has no collectives of its own" in said[1]
    assert "transport shm has no tensors on cuda" in said[2]


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


@pytest.mark.parametrize(
    ("lack", "said"),
    [
        ("order of stores", "this is Linux on aarch64: use gloo"),
        ("host", "by which ranks know their host, cannot be read (No such file or directory): use gloo"),
        ("peer", "is not here: it has ended, or the ranks are in several containers"),
    ],
)
def test_what_one_rank_lacks_is_refused_on_all_at_once_and_done_without_by_default(lack, said, pool):
    first, second, third = pool.run(_one_lacks, 3, lack)

    assert first == third == (f"rank 1 refuses: {second[0]}", "native")
    assert said in second[0]


def _one_lacks(rank: int, world_size: int, lack: str) -> tuple[str, str]:
    with pytest.MonkeyPatch.context() as patch:
        if rank == 1 and lack == "order of stores":
            patch.setattr(platform, "machine", lambda: "aarch64")
        elif rank == 1 and lack == "host":
            patch.setattr(segment, "_BOOT", Path("/nowhere"))
        elif rank == 1:
            patch.setattr(os, "pidfd_open", _not_there)
        with pytest.raises(NotSupportedError) as refusal:
            connect(transport="shm")
        return str(refusal.value), connect().carrier


def _not_there(process: int) -> int:
    raise ProcessLookupError(f"no process {process}")


def test_ranks_of_several_hosts_take_programs_for_them(pool):
    chosen = pool.run(_chosen_on_hosts, 4)

    assert chosen[0] == ["hierarchical:ranks_per_node=2", "ring", "recursive_doubling"]
    assert all(own == chosen[0] for own in chosen)


def _chosen_on_hosts(rank: int, world_size: int) -> list[str]:
    chosen = []
    for host in (rank // 2, rank % 2, 0):
        with as_if_on_host(host):
            launcher = connect(transport="shm").launcher
            chosen.append(str(launcher.selector.select("all_reduce", 1 << 20)))
    return chosen


def test_ranks_that_are_all_on_hosts_of_their_own_are_refused(pool):
    assert all("these are on 3 hosts: use gloo" in said for said in pool.run(_alone_on_hosts, 3))


def _alone_on_hosts(rank: int, world_size: int) -> str:
    with as_if_on_host(rank), pytest.raises(NotSupportedError) as refusal:
        connect(transport="shm")
    return str(refusal.value)


def end(process):
    process.kill()
    process.wait()


@pytest.mark.parametrize("opens", [False, True])
def test_a_process_that_ends_before_it_shares_memory_is_named_and_nobody_waits_for_it(monkeypatch, opens):
    """Whether it ends before its memory has been opened or after."""
    store, descriptor, real = HashStore(), os.memfd_create("of rank 1"), segment._opened
    os.ftruncate(descriptor, segment.SIZE)
    with not_outliving(subprocess.Popen(["sleep", "60"], pass_fds=[descriptor], text=True)) as process:
        made = [segment._host(), process.pid, descriptor, os.fstat(descriptor).st_ino]
        store.set("segment/made/1", json.dumps(made))

        @contextmanager
        def opened_as_it_ends(peer, there):
            if peer == 1 and not opens:
                end(process)
            with real(peer, there) as opened:
                if peer == 1:
                    end(process)
                yield opened

        monkeypatch.setattr(segment, "_opened", opened_as_it_ends)
        with pytest.raises(NotSupportedError, match="the process of rank 1 has ended"):
            segment.Segment(store, "segment", 0, 2, timeout=5.0)
    os.close(descriptor)

    assert json.loads(store.get("segment/mapped/refused"))[0] == 0
