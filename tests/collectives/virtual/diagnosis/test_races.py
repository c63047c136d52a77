"""Races of streams, as pairs: what is wrong is found with its line, and what is right says nothing."""

import inspect
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import NotSupportedError
from collectives.virtual import Roofline, run
from collectives.virtual.diagnosis.races import Races
from sim import load_network

RANKS = 2
NETWORK = load_network("switch-100g").topology(RANKS)

Script = Callable[[int], object]
WRONG: dict[str, Script] = {}
RIGHT: dict[str, Script] = {}


def wrong(fn: Script) -> Script:
    WRONG[fn.__name__] = fn
    return fn


def right(fn: Script) -> Script:
    RIGHT[fn.__name__] = fn
    return fn


def ones(count: int = 1024) -> torch.Tensor:
    return torch.ones(count, device="cuda")


@wrong
def reduced_and_read(rank: int) -> None:
    dist.init_process_group("nccl")
    total = ones()
    work = dist.all_reduce(total, async_op=True)
    total.mul(2)  # race: wait for it first
    work.wait()


@right
def reduced_and_awaited(rank: int) -> None:
    dist.init_process_group("nccl")
    total = ones()
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    total.mul(2)


@wrong
def overwritten_while_reduced(rank: int) -> None:
    dist.init_process_group("nccl")
    part, whole = ones(), ones(RANKS * 1024)
    work = dist.all_gather_single(whole, part, async_op=True)
    part.zero_()  # race: wait for it first
    work.wait()


@right
def overwritten_once_gathered(rank: int) -> None:
    dist.init_process_group("nccl")
    part, whole = ones(), ones(RANKS * 1024)
    work = dist.all_gather_single(whole, part, async_op=True)
    part.mul(2)  # reads what the call reads
    work.wait()
    part.zero_()


@wrong
def waited_for_on_another_stream(rank: int) -> None:
    dist.init_process_group("nccl")
    total, side = ones(), torch.cuda.Stream()
    work = dist.all_reduce(total, async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    total.mul(2)  # race: wait() of what it returns


@right
def waited_for_on_another_stream_that_is_awaited(rank: int) -> None:
    dist.init_process_group("nccl")
    total, side = ones(), torch.cuda.Stream()
    work = dist.all_reduce(total, async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    torch.cuda.current_stream().wait_stream(side)
    total.mul(2)


@wrong
def reduced_before_it_is_computed(rank: int) -> None:
    dist.init_process_group("nccl")
    total, side = ones(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total.mul_(2)
    dist.all_reduce(total)  # race: let the stream that issues the call wait
    torch.cuda.current_stream().wait_stream(side)


@right
def reduced_once_it_is_computed(rank: int) -> None:
    dist.init_process_group("nccl")
    total, side = ones(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total.mul_(2)
        total.record_stream(side)
        dist.all_reduce(total)
    torch.cuda.current_stream().wait_stream(side)
    total.mul(2)


@wrong
def side_stream_begins_too_early(rank: int) -> None:
    values, side = ones(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        values.mul(2)  # race: let the stream wait
    torch.cuda.synchronize()


@right
def side_stream_begins_after_an_event(rank: int) -> None:
    values, side = ones(), torch.cuda.Stream()
    event = torch.cuda.Event()
    event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        values.mul(2)
    torch.cuda.synchronize()


@wrong
def event_recorded_too_early(rank: int) -> None:
    values, side, event = ones(), torch.cuda.Stream(), torch.cuda.Event()
    event.record()
    values.mul_(2)
    side.wait_event(event)
    with torch.cuda.stream(side):
        values.sum()  # race: let the stream wait
    torch.cuda.synchronize()


@right
def host_waits_between(rank: int) -> None:
    values, side = ones(), torch.cuda.Stream()
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(side):
        values.mul_(2)
    side.synchronize()
    values.mul_(2)


@wrong
def copied_and_read_on_the_host(rank: int) -> None:
    values = ones()
    there = values.to("cpu", non_blocking=True)
    there.sum()  # race: let the host wait
    torch.cuda.synchronize()


@right
def copied_and_awaited_on_the_host(rank: int) -> None:
    values = ones()
    there = values.to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    there.sum()


@wrong
def copied_and_listed_on_the_host(rank: int) -> None:
    values, there = ones(4), torch.empty(4).pin_memory()
    there.copy_(values, non_blocking=True)
    there.tolist()  # race: let the host wait


@right
def copied_with_the_host_waiting(rank: int) -> None:
    ones(4).cpu().tolist()
    there = torch.empty(4).pin_memory()
    there.copy_(ones(4), non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    event.synchronize()
    there.tolist()


@wrong
def pinned_memory_filled_anew(rank: int) -> None:
    batch = torch.empty(1024).pin_memory()
    batch.fill_(1)
    batch.to("cuda", non_blocking=True)
    batch.fill_(2)  # race: let the host wait


@right
def pageable_memory_filled_anew(rank: int) -> None:
    batch = torch.empty(1024)
    batch.fill_(1)
    batch.to("cuda", non_blocking=True)
    batch.fill_(2)


@wrong
def read_by_the_host_from_another_stream(rank: int) -> None:
    values, side = ones(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        values.mul_(2)
    values.sum().item()  # race: let the stream wait


@right
def read_by_the_host_after_all(rank: int) -> None:
    values, side = ones(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        values.mul_(2)
    torch.cuda.synchronize()
    values.sum().item()


@wrong
def freed_while_another_stream_reads(rank: int) -> None:
    side = torch.cuda.Stream()
    values = ones()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        values.sum()
    del values
    torch.ones(1024, device="cuda")  # race: call record_stream
    torch.cuda.synchronize()


@right
def recorded_on_the_stream_that_reads(rank: int) -> None:
    side = torch.cuda.Stream()
    values = ones()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        values.sum()
    values.record_stream(side)
    del values
    ones()
    torch.cuda.synchronize()


@right
def freed_once_the_other_stream_has_read(rank: int) -> None:
    side = torch.cuda.Stream()
    values = ones()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        values.sum()
    del values
    torch.cuda.current_stream().wait_stream(side)
    ones()


@wrong
def two_groups_write_one_buffer(rank: int) -> None:
    dist.init_process_group("nccl")
    other, total = dist.new_group(), ones()
    first = dist.all_reduce(total, async_op=True)
    second = dist.all_reduce(total, group=other, async_op=True)  # race: wait for it first
    first.wait()
    second.wait()


@right
def parts_of_one_buffer_at_once(rank: int) -> None:
    dist.init_process_group("nccl")
    other, total = dist.new_group(), ones()
    first = dist.all_reduce(total[:512], async_op=True)
    second = dist.all_reduce(total[512:], group=other, async_op=True)
    first.wait()
    second.wait()
    total.sum()


@right
def wrapped_on_another_stream(rank: int) -> None:
    dist.init_process_group("nccl")
    with torch.cuda.stream(torch.cuda.Stream()):
        model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    model(ones(64)).sum().backward()


@wrong
def changed_on_another_stream_before_a_model_is_wrapped(rank: int) -> None:
    dist.init_process_group("nccl")
    total, side = ones(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total.mul_(2)
    DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    total.sum()  # race: let the stream wait first


def beside_a_side_stream(write: Script, read: Script) -> None:
    """Let *write* change a matrix on another stream, and *read* look at it on the default one."""
    side, matrix = torch.cuda.Stream(), torch.zeros(64, 64, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        write(matrix)
    read(matrix)
    torch.cuda.synchronize()


@wrong
def columns_in_common(rank: int) -> None:
    beside_a_side_stream(
        lambda matrix: matrix[:, :8].fill_(1),
        lambda matrix: matrix[:, 4:12].sum(),  # race: let the stream wait first
    )


@wrong
def a_row_and_a_column(rank: int) -> None:
    beside_a_side_stream(
        lambda matrix: matrix[3].fill_(1),
        lambda matrix: matrix[:, 5].sum(),  # race: let the stream wait first
    )


@right
def columns_side_by_side(rank: int) -> None:
    beside_a_side_stream(lambda matrix: matrix[:, :8].fill_(1), lambda matrix: matrix[:, 8:].sum())


def copied_to_pinned() -> torch.Tensor:
    return torch.empty(1024, pin_memory=True).copy_(ones(), non_blocking=True)


@wrong
def saved_while_it_is_copied(rank: int) -> None:
    host = copied_to_pinned()
    torch.save(host, io.BytesIO())  # race: let the host wait first


@right
def saved_once_it_is_copied(rank: int) -> None:
    host = copied_to_pinned()
    torch.cuda.synchronize()
    torch.save(host, io.BytesIO())


@wrong
def reduced_over_gloo_while_it_is_copied(rank: int) -> None:
    dist.init_process_group("gloo")
    host = copied_to_pinned()
    dist.all_reduce(host)  # race: let the host wait first


@wrong
def reduced_over_gloo_while_it_is_copied_away(rank: int) -> None:
    dist.init_process_group("gloo")
    host = torch.ones(1024, pin_memory=True)
    device = host.to("cuda", non_blocking=True)
    dist.all_reduce(host)  # race: let the host wait first
    device.sum()


@right
def reduced_over_gloo_once_it_is_copied(rank: int) -> None:
    dist.init_process_group("gloo")
    host = copied_to_pinned()
    torch.cuda.current_stream().synchronize()
    dist.all_reduce(host)
    host.to("cuda", non_blocking=True).sum()


def found(script: Script, fake: bool) -> tuple[str, ...]:
    races = Races()
    run(script, RANKS, NETWORK, compute=Roofline("h100"), fake=fake, races=races)
    return races.texts


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_race_is_found_at_its_line(name, fake):
    lines, first = inspect.getsourcelines(WRONG[name])
    number, line = next((first + i, line) for i, line in enumerate(lines) if "# race: " in line)
    remedy = line.partition("# race: ")[2].strip()

    texts = found(WRONG[name], fake)

    assert len(texts) == 1
    assert texts[0].startswith(f"{Path(__file__).name}:{number}: ranks 0, 1: ")
    assert remedy in texts[0]


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", sorted(RIGHT))
def test_what_is_ordered_is_no_race(name, fake):
    assert found(RIGHT[name], fake) == ()


def test_races_need_a_gpu_as_the_model_of_computation():
    with pytest.raises(NotSupportedError, match="such as h100"):
        run(side_stream_begins_too_early, RANKS, NETWORK, races=Races())
