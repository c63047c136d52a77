"""Rules of Gloo, held against Gloo: what is refused, and what comes out wrong."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from collectives.torch_backend.backend_rules import MESSAGE, refusal

pytestmark = pytest.mark.distributed

ROWS, COLUMNS = 4, 2
LAYOUTS: dict[str, Callable[[int, torch.dtype], torch.Tensor]] = {
    "contiguous": lambda rows, dtype: torch.zeros(rows, COLUMNS, dtype=dtype),
    "transposed": lambda rows, dtype: torch.zeros(COLUMNS, rows, dtype=dtype).t(),
    "strided": lambda rows, dtype: torch.zeros(rows, 2 * COLUMNS, dtype=dtype)[:, ::2],
}
DTYPES = [torch.float32, torch.int16, torch.bool, torch.uint16, torch.float8_e4m3fn, torch.complex64]

Make = Callable[[int], torch.Tensor]
"""Makes a tensor of so many rows."""

Call = Callable[[Make, torch.Tensor, int], list[torch.Tensor]]
"""Carries a collective out on tensors that hold given values, and returns what then holds the result."""


def in_place(call: Callable[[torch.Tensor], None]) -> Call:
    def carried_out(make, values, rank):
        tensor = make(ROWS).copy_(values)
        call(tensor)
        return [tensor]

    return carried_out


def scatter(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    given = [make(ROWS).copy_(values) for _ in range(2)] if rank == 0 else None
    output = make(ROWS)
    dist.scatter(output, given)
    return [output]


def reduce_scatter(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    output, given = make(ROWS), [make(ROWS).copy_(values) for _ in range(2)]
    dist.reduce_scatter(output, given)
    return [output]


def reduce_scatter_single(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    output, given = make(ROWS // 2), make(ROWS).copy_(values)
    dist.reduce_scatter_single(output, given)
    return [output]


def all_gather(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    parts, given = [make(ROWS) for _ in range(2)], make(ROWS).copy_(values)
    dist.all_gather(parts, given)
    return parts


def all_gather_single(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    output, given = make(2 * ROWS), make(ROWS).copy_(values)
    dist.all_gather_single(output, given)
    return [output]


def gather(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    parts, given = [make(ROWS) for _ in range(2)] if rank == 0 else None, make(ROWS).copy_(values)
    dist.gather(given, parts)
    return parts or []


def all_to_all(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    parts, given = [make(ROWS) for _ in range(2)], [make(ROWS).copy_(values) for _ in range(2)]
    dist.all_to_all(parts, given)
    return parts


def all_to_all_single(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    output, given = make(ROWS), make(ROWS).copy_(values)
    dist.all_to_all_single(output, given)
    return [output]


def message(make: Make, values: torch.Tensor, rank: int) -> list[torch.Tensor]:
    """Send, where Gloo refuses to do so on both sides, before anything is on its way."""
    tensor = make(ROWS).copy_(values)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    return [tensor]


CALLS: dict[str, Call] = {
    "all_reduce": in_place(dist.all_reduce), "broadcast": in_place(lambda tensor: dist.broadcast(tensor, 0)),
    "reduce": in_place(lambda tensor: dist.reduce(tensor, 0)), "scatter": scatter,
    "reduce_scatter": reduce_scatter, "reduce_scatter_single": reduce_scatter_single,
    "all_gather": all_gather, "all_gather_single": all_gather_single, "gather": gather,
    "all_to_all": all_to_all, "all_to_all_single": all_to_all_single, MESSAGE: message,
}  # fmt: skip


def carried_out(rank: int, world_size: int, collective: str, layout: str, dtype: torch.dtype):
    """Return what comes out, None where Gloo refuses; and what the rules say."""
    values = (torch.arange(ROWS * COLUMNS).view(ROWS, COLUMNS) + 100 * rank * (dtype != torch.bool)).to(dtype)
    given = []

    def make(rows):
        given.append(LAYOUTS[layout](rows, dtype))
        return given[-1]

    try:
        results = CALLS[collective](make, values, rank)
    except (RuntimeError, ValueError):
        return None, refusal("gloo", collective, given)
    if collective == "reduce" and rank != 0:
        results = []
    shown = [result.to(torch.complex64).contiguous().flatten().tolist() for result in results]
    return shown, refusal("gloo", collective, given)


@pytest.mark.parametrize("collective", CALLS)
def test_what_gloo_refuses_or_gets_wrong_is_what_the_rules_say(pool, collective):
    def outcome(layout, dtype):
        return pool.run(carried_out, 2, collective, layout, dtype)

    by_layout = [(layout, torch.float32) for layout in LAYOUTS]
    for layout, dtype in [*by_layout, *(("contiguous", own) for own in DTYPES)]:
        right = outcome("contiguous", torch.float32)
        found = outcome(layout, dtype)
        is_right = all(shown is not None for shown, _ in found)
        if dtype is torch.float32:
            is_right = [shown for shown, _ in found] == [shown for shown, _ in right]
        assert is_right == all(said is None for _, said in found), (layout, dtype, found)


SHAPES = [(2, 2), (4,), (1, 2, 2)]
WITH_SHAPES = {
    "all_gather": lambda part, other: dist.all_gather([other, other.clone()], part),
    "reduce_scatter": lambda part, other: dist.reduce_scatter(other, [part, part]),
    "all_to_all": lambda part, other: dist.all_to_all([other, other.clone()], [part, part]),
    "all_gather_single": lambda part, other: dist.all_gather_single(torch.cat([other, other]), part),
    "reduce_scatter_single": lambda part, other: dist.reduce_scatter_single(part, torch.cat([other, other])),
}


def taken(rank: int, world_size: int, collective: str, shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Return whether Gloo takes a part of two rows beside tensors of *shape*, and whether the rules do."""
    part, other = torch.zeros(SHAPES[0]), torch.zeros(shape)
    tensors = [part, other]
    if collective in ("all_gather_single", "reduce_scatter_single"):
        tensors = [torch.cat([other, other]), part]
        tensors = tensors if collective == "all_gather_single" else tensors[::-1]
    try:
        WITH_SHAPES[collective](part, other)
    except (RuntimeError, ValueError):
        return False, refusal("gloo", collective, tensors) is None
    return True, refusal("gloo", collective, tensors) is None


@pytest.mark.parametrize("collective", WITH_SHAPES)
def test_shapes_that_gloo_takes_are_those_that_the_rules_do(pool, collective):
    for shape in SHAPES:
        for gloo, rules in pool.run(taken, 2, collective, shape):
            assert gloo == rules, shape
