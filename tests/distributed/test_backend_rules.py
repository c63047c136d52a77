"""Rules of Gloo, held against Gloo: what is refused, and what comes out wrong."""

import pytest
import torch
import torch.distributed as dist

from collectives.torch_backend.backend_rules import MESSAGE, refusal

pytestmark = pytest.mark.distributed

ROWS, COLUMNS = 4, 2
LAYOUTS = {
    "contiguous": lambda rows, dtype: torch.zeros(rows, COLUMNS, dtype=dtype),
    "transposed": lambda rows, dtype: torch.zeros(COLUMNS, rows, dtype=dtype).t(),
    "strided": lambda rows, dtype: torch.zeros(rows, 2 * COLUMNS, dtype=dtype)[:, ::2],
}
DTYPES = [torch.float32, torch.int16, torch.bool, torch.uint16, torch.float8_e4m3fn, torch.complex64]


def in_place(call):
    def carried_out(make, values, rank):
        tensor = make(ROWS).copy_(values)
        call(tensor)
        return [tensor]

    return carried_out


def exchanged(call, outputs, inputs, only_root=""):
    """Return what carries *call* out, into tensors of so many rows, of others; rank 0 alone may have some."""

    def carried_out(make, values, rank):
        at = None if rank and only_root == "inputs" else [make(rows).copy_(values) for rows in inputs]
        to = None if rank and only_root == "outputs" else [make(rows) for rows in outputs]
        call(to, at)
        return to or []

    return carried_out


def message(make, values, rank):
    """Send, where Gloo refuses to do so on both sides, before anything is on its way."""
    tensor = make(ROWS).copy_(values)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    return [tensor]


ONE, TWO = [ROWS], [ROWS, ROWS]
CALLS = {
    "all_reduce": in_place(dist.all_reduce),
    "broadcast": in_place(lambda tensor: dist.broadcast(tensor, 0)),
    "reduce": in_place(lambda tensor: dist.reduce(tensor, 0)),
    "scatter": exchanged(lambda to, at: dist.scatter(to[0], at), ONE, TWO, "inputs"),
    "reduce_scatter": exchanged(lambda to, at: dist.reduce_scatter(to[0], at), ONE, TWO),
    "reduce_scatter_single": exchanged(
        lambda to, at: dist.reduce_scatter_single(to[0], at[0]), [ROWS // 2], ONE
    ),
    "all_gather": exchanged(lambda to, at: dist.all_gather(to, at[0]), TWO, ONE),
    "all_gather_single": exchanged(lambda to, at: dist.all_gather_single(to[0], at[0]), [2 * ROWS], ONE),
    "gather": exchanged(lambda to, at: dist.gather(at[0], to), TWO, ONE, "outputs"),
    "all_to_all": exchanged(dist.all_to_all, TWO, TWO),
    "all_to_all_single": exchanged(lambda to, at: dist.all_to_all_single(to[0], at[0]), ONE, ONE),
    MESSAGE: message,
}


def carried_out(rank, world_size, collective, layout, dtype):
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


def taken(rank, world_size, collective, shape):
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


def averaged(rank, world_size, dtype):
    """Return whether Gloo averages *dtype*, and whether the rules say so."""
    tensor = torch.ones(2).to(dtype)
    is_known = refusal("gloo", "all_reduce", [tensor], "avg") is None
    try:
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
    except RuntimeError:
        return False, is_known
    return True, is_known


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_that_gloo_averages_are_those_that_the_rules_say(pool, dtype):
    for gloo, rules in pool.run(averaged, 2, dtype):
        assert gloo == rules
