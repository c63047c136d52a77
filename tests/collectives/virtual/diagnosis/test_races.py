"""Races of streams, as pairs: what is wrong is found with its line, and what is right says nothing."""

import inspect
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from collectives.errors import NotSupportedError
from collectives.virtual import run
from collectives.virtual.diagnosis.accesses import overlap, region_of
from collectives.virtual.diagnosis.races import Races
from tests.collectives.virtual.clusters import on_gpus

RANKS = 2
Script = Callable[[bool, torch.cuda.Stream], object]
PAIRS: dict[str, Script] = {}
"""Scripts that are told whether to be right, and given a stream that has waited for nothing."""
RIGHT: dict[str, Script] = {}
"""Scripts that are right anyway."""


def pair(script: Script) -> Script:
    PAIRS[script.__name__] = script
    return script


def right(script: Script) -> Script:
    RIGHT[script.__name__] = script
    return script


def ones(count: int = 1024) -> torch.Tensor:
    return torch.ones(count, device="cuda")


def current() -> torch.cuda.Stream:
    return torch.cuda.current_stream()


def doubled_on(side: torch.cuda.Stream) -> torch.Tensor:
    """Return a tensor that *side* doubles once it is there."""
    values = ones()
    side.wait_stream(current())
    with torch.cuda.stream(side):
        values.mul_(2)
    return values


@pair
def reduced_and_read(is_right, side):
    total = ones()
    work = dist.all_reduce(total, async_op=True)
    if is_right:
        work.wait()
    total.mul(2)  # race: wait for it first
    work.wait()


@pair
def overwritten_while_gathered(is_right, side):
    part, whole = ones(), ones(RANKS * 1024)
    work = dist.all_gather_single(whole, part, async_op=True)
    part.mul(2)  # reads what the call reads
    if is_right:
        work.wait()
    part.zero_()  # race: wait for it first
    work.wait()


@pair
def waited_for_on_another_stream(is_right, side):
    total = ones()
    work = dist.all_reduce(total, async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    if is_right:
        current().wait_stream(side)
    total.mul(2)  # race: wait() of what it returns


@pair
def reduced_before_it_is_computed(is_right, side):
    total = doubled_on(side)
    total.record_stream(side)
    with torch.cuda.stream(side if is_right else current()):
        dist.all_reduce(total)  # race: let the stream that issues the call wait
    current().wait_stream(side)
    total.mul(2)


@pair
def side_stream_begins_too_early(is_right, side):
    values, event = ones(), torch.cuda.Event()
    event.record()
    if is_right:
        side.wait_event(event)
    with torch.cuda.stream(side):
        values.mul(2)  # race: let the stream wait


@pair
def event_recorded_too_early(is_right, side):
    values, event = ones(), torch.cuda.Event()
    event.record()
    values.mul_(2)
    if is_right:
        event.record()
    side.wait_event(event)
    with torch.cuda.stream(side):
        values.sum()  # race: let the stream wait


@right
def host_waits_between(is_right, side):
    values = ones()
    current().synchronize()
    with torch.cuda.stream(side):
        values.mul_(2)
    side.synchronize()
    values.mul_(2)


@pair
def copied_and_read_on_the_host(is_right, side):
    there = ones().to("cpu", non_blocking=True)
    if is_right:
        current().synchronize()
    there.sum()  # race: let the host wait


@pair
def copied_and_listed_on_the_host(is_right, side):
    ones(4).cpu().tolist()
    there, event = torch.empty(4).pin_memory(), torch.cuda.Event()
    there.copy_(ones(4), non_blocking=True)
    event.record()
    if is_right:
        event.synchronize()
    there.tolist()  # race: let the host wait


@pair
def pinned_memory_filled_anew(is_right, side):
    batch = torch.empty(1024) if is_right else torch.empty(1024).pin_memory()
    batch.fill_(1)
    batch.to("cuda", non_blocking=True)
    batch.fill_(2)  # race: let the host wait


@pair
def read_by_the_host_from_another_stream(is_right, side):
    values = doubled_on(side)
    if is_right:
        torch.cuda.synchronize()
    values.sum().item()  # race: let the stream wait


def freed_while_another_stream_reads(side, protect):
    values = ones()
    side.wait_stream(current())
    with torch.cuda.stream(side):
        values.sum()
    protect(values)
    del values


@pair
def freed_without_a_record(is_right, side):
    freed_while_another_stream_reads(side, lambda values: is_right and values.record_stream(side))
    torch.ones(1024, device="cuda")  # race: call record_stream


@right
def freed_once_the_other_stream_has_read(is_right, side):
    freed_while_another_stream_reads(side, lambda values: None)
    current().wait_stream(side)
    ones()


@pair
def two_groups_write_one_buffer(is_right, side):
    other, total = dist.new_group(), ones()
    part = total[512:] if is_right else total
    first = dist.all_reduce(total[:512], async_op=True)
    second = dist.all_reduce(part, group=other, async_op=True)  # race: wait for it first
    first.wait()
    second.wait()
    total.sum()


@right
def wrapped_on_another_stream(is_right, side):
    with torch.cuda.stream(side):
        model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    model(ones(64)).sum().backward()


@pair
def changed_on_another_stream_before_a_model_is_wrapped(is_right, side):
    total = doubled_on(side)
    DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    if is_right:
        current().wait_stream(side)
    total.sum()  # race: let the stream wait first


def matrix_filled_on(side, part):
    """Return a matrix of which *side* fills a *part*."""
    matrix = torch.zeros(64, 64, device="cuda")
    side.wait_stream(current())
    with torch.cuda.stream(side):
        matrix[part].fill_(1)
    return matrix


@pair
def columns_in_common(is_right, side):
    matrix = matrix_filled_on(side, (slice(None), slice(8)))
    matrix[:, 8 if is_right else 4 : 12].sum()  # race: let the stream wait first


@pair
def a_row_and_a_column(is_right, side):
    matrix = matrix_filled_on(side, 3)
    matrix[4:, 5].sum() if is_right else matrix[:, 5].sum()  # race: let the stream wait first


def copied_to_pinned() -> torch.Tensor:
    return torch.empty(1024, pin_memory=True).copy_(ones(), non_blocking=True)


@pair
def saved_while_it_is_copied(is_right, side):
    host = copied_to_pinned()
    if is_right:
        torch.cuda.synchronize()
    torch.save(host, io.BytesIO())  # race: let the host wait first


@pair
def reduced_over_gloo_while_it_is_copied(is_right, side):
    host = copied_to_pinned()
    if is_right:
        current().synchronize()
    dist.all_reduce(host)  # race: let the host wait first
    host.to("cuda", non_blocking=True).sum()


@pair
def reduced_over_gloo_while_it_is_copied_away(is_right, side):
    host = torch.ones(1024, pin_memory=True)
    device = host.to("cuda", non_blocking=True)
    if is_right:
        current().synchronize()
    dist.all_reduce(host)  # race: let the host wait first
    device.sum()


def found(script: Script, is_right: bool, fake: bool) -> tuple[str, ...]:
    def work(rank):
        dist.init_process_group("cpu:gloo,cuda:nccl")
        script(is_right, torch.cuda.Stream())
        torch.cuda.synchronize()

    races = Races()
    on_gpus(work, RANKS, fake=fake, races=races)
    return races.texts


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", PAIRS)
def test_a_race_is_found_at_its_line(name, fake):
    lines, first = inspect.getsourcelines(PAIRS[name])
    number, line = next((first + i, line) for i, line in enumerate(lines) if "# race: " in line)
    remedy = line.partition("# race: ")[2].strip()

    texts = found(PAIRS[name], False, fake)

    assert len(texts) == 1
    assert texts[0].startswith(f"{Path(__file__).name}:{number}: ranks 0, 1: ")
    assert remedy in texts[0]


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", [*PAIRS, *RIGHT])
def test_what_is_ordered_is_no_race(name, fake):
    assert found({**PAIRS, **RIGHT}[name], True, fake) == ()


def test_races_need_a_gpu_as_the_model_of_computation():
    with pytest.raises(NotSupportedError, match="such as h100"):
        run(lambda rank: None, RANKS, races=Races())


_DIMENSIONS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20)), max_size=3)


@st.composite
def _views(draw):
    """Draw a view, with or without gaps, of a storage of 256 numbers."""
    dimensions = draw(_DIMENSIONS)
    shape, strides = [length for length, _ in dimensions], [stride for _, stride in dimensions]
    return torch.empty(256).as_strided(shape, strides, draw(st.integers(0, 70)))


def _bytes_of(view: torch.Tensor) -> set[int]:
    places = torch.arange(256).as_strided(view.shape, view.stride(), view.storage_offset())
    return {4 * place + byte for place in places.flatten().tolist() for byte in range(4)}


@given(_views(), _views())
def test_two_views_overlap_where_they_have_bytes_in_common(one, other):
    regions = [region_of(view, 4 * view.storage_offset()) for view in (one, other)]

    assert overlap(*regions) == bool(_bytes_of(one) & _bytes_of(other))
    assert (regions[0].begin, regions[0].end - 1) == (min(_bytes_of(one)), max(_bytes_of(one)))


@given(st.integers(1, 2**20), st.integers(1, 64), st.integers(0, 64), st.integers(1, 64))
def test_columns_of_one_matrix_overlap_as_their_numbers_do(num_rows, width, begin, num_columns):
    matrix = torch.empty(num_rows, 256, device="meta")
    one = region_of(matrix[:, :width], 0)
    other = region_of(matrix[:, begin : begin + num_columns], 4 * begin)

    assert overlap(one, other) == (begin < width)
