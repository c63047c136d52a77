"""Contract of every communicator about tensors of any dtype, layout, size and place in memory.

Scenarios as in `transport_contract`.
"""

from collections.abc import Callable, Iterator

import pytest
import torch

from collectives import Communicator, NotSupportedError
from collectives.communicators.reduction import REDUCE
from tests.collectives.transports.transport_contract import DTYPES, carried, part, whole

ALL_DTYPES = (*DTYPES, torch.complex128, torch.int32, torch.int8)

Layout = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]


def plain(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def with_gaps(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)[..., ::2]


def transposed(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])


LAYOUTS: tuple[Layout, ...] = (plain, with_gaps, transposed)


def cases(communicator: Communicator) -> Iterator[tuple[torch.dtype, int, Layout, Layout]]:
    """All dtypes, all pairs of layouts, all kinds of sizes, though not all of them with each other."""
    for n, dtype in enumerate(carried(communicator, ALL_DTYPES)):
        yield dtype, 4, LAYOUTS[n % 3], LAYOUTS[(n + 1) % 3]
    for given in LAYOUTS:
        for result in LAYOUTS:
            for size in (0, 1, 5):
                yield torch.float32, size, given, result


def laid_out(layout: Layout, values: torch.Tensor) -> torch.Tensor:
    return layout(tuple(values.shape), values.dtype).copy_(values)


def of_rank(communicator: Communicator, rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """What *rank* gives: row q is for rank q, where parts are given."""
    p = communicator.world_size
    return part(rank, p * size * 2, dtype).view(p, size, 2)


def check(results: list[tuple[torch.Tensor, torch.Tensor]], case) -> None:
    for result, expected in results:
        assert torch.equal(result, expected), (case, result, expected)


def collectives_move_every_dtype_layout_and_size(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    for number, case in enumerate(cases(communicator)):
        dtype, size, given, result = case
        root = number % p
        mine = [of_rank(communicator, other, size, dtype) for other in range(p)]
        results = []

        tensor = laid_out(given, mine[rank])
        communicator.broadcast(tensor, root)
        results.append((tensor, mine[root]))

        output = result((p, size, 2), dtype)
        communicator.all_gather(output, laid_out(given, mine[rank][0]))
        results.append((output, torch.stack([values[0] for values in mine])))

        output = result((p, size, 2), dtype)
        communicator.gather(output if rank == root else None, laid_out(given, mine[rank][0]), root)
        if rank == root:
            results.append((output, torch.stack([values[0] for values in mine])))

        output = result((size, 2), dtype)
        communicator.scatter(output, laid_out(given, mine[root]) if rank == root else None, root)
        results.append((output, mine[root][rank]))

        output = result((p, size, 2), dtype)
        communicator.all_to_all(output, laid_out(given, mine[rank]))
        results.append((output, torch.stack([values[rank] for values in mine])))
        check(results, case)


def collectives_reduce_every_dtype_layout_and_size(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    for number, case in enumerate(cases(communicator)):
        dtype, size, given, result = case
        root = number % p
        total = whole(p, p * size * 2, dtype).view(p, size, 2)
        mine = of_rank(communicator, rank, size, dtype)

        reduced = laid_out(given, mine)
        communicator.all_reduce(reduced)
        on_root = laid_out(given, mine)
        communicator.reduce(on_root, root)
        own, tensor = result((size, 2), dtype), laid_out(given, mine)
        communicator.reduce_scatter(own, tensor)

        results = [(reduced, total), (on_root, total if rank == root else mine)]
        check([*results, (own, total[rank]), (tensor, mine)], case)


def every_operation_on_every_dtype_reduces_or_is_refused(communicator: Communicator):
    p = communicator.world_size
    for dtype in carried(communicator, ALL_DTYPES):
        for op, reduce in REDUCE.items():
            given = [part(rank + 1, 6, dtype) for rank in range(p)]
            expected = given[0].clone()
            try:
                for other in given[1:]:
                    reduce(expected, other.clone())
                refused = op == "avg" and dtype == torch.bool
                if p == 1:
                    reduce(expected.clone(), expected.clone())
                if op == "avg" and not refused:
                    whole = not (dtype.is_floating_point or dtype.is_complex)
                    expected.div_(p, rounding_mode="trunc" if whole else None)
            except (RuntimeError, NotImplementedError):
                refused = True
            tensor = given[communicator.rank]
            if refused:
                with pytest.raises(NotSupportedError, match=r"torch has no|has no average"):
                    communicator.all_reduce(tensor, op)
            else:
                communicator.all_reduce(tensor, op)
                assert torch.equal(tensor, expected), (dtype, op)


def a_subclass_of_a_ranks_own_is_reduced_as_a_plain_tensor(communicator: Communicator):
    class Named(torch.Tensor):
        pass

    tensor = torch.ones(3).as_subclass(Named)

    communicator.all_reduce(tensor)

    assert type(tensor) is Named
    assert tensor.tolist() == [communicator.world_size] * 3


def input_and_output_may_share_memory(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    mine = [of_rank(communicator, other, 3, torch.float32) for other in range(p)]

    gathered = torch.zeros(p, 3, 2)
    gathered[rank] = mine[rank][0]
    communicator.all_gather(gathered, gathered[rank])

    on_root = torch.zeros(p, 3, 2)
    on_root[rank] = mine[rank][0]
    communicator.gather(on_root, on_root[rank], 0)

    reduced = mine[rank].clone()
    communicator.reduce_scatter(reduced[rank], reduced)

    scattered = mine[0].clone()
    communicator.scatter(scattered[rank], scattered if rank == 0 else None, 0)

    exchanged = mine[rank].clone()
    communicator.all_to_all(exchanged, exchanged)
    uneven = mine[rank].clone()
    communicator.all_to_all(uneven, uneven, [1] * p, [1] * p)

    lined_up = torch.stack([values[0] for values in mine])
    to_me = torch.stack([values[rank] for values in mine])
    check(
        [
            (gathered, lined_up),
            (on_root if rank == 0 else lined_up, lined_up),
            (reduced[rank], whole(p, p * 6, torch.float32).view(p, 3, 2)[rank]),
            (scattered[rank], mine[0][rank]),
            (exchanged, to_me),
            (uneven, to_me),
        ],
        "shared",
    )


def collectives_of_all_kinds_are_in_flight_at_once(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    for size in (0, 3, 200):
        mine = [of_rank(communicator, other, size, torch.float32) for other in range(p)]
        total = whole(p, p * size * 2, torch.float32).view(p, size, 2)
        reduced, sent, at_root = mine[rank].clone(), mine[rank].clone(), mine[rank].clone()
        gathered, exchanged, uneven = (torch.zeros(p, size, 2) for _ in range(3))
        own, scattered = torch.zeros(size, 2), torch.zeros(size, 2)
        works = [
            communicator.all_reduce(reduced, async_op=True),
            communicator.all_gather(gathered, mine[rank][0], async_op=True),
            communicator.reduce_scatter(own, mine[rank], async_op=True),
            communicator.broadcast(sent, p - 1, async_op=True),
            communicator.all_to_all(uneven, mine[rank], [1] * p, [1] * p, async_op=True),
            communicator.reduce(at_root, 0, async_op=True),
            communicator.all_to_all(exchanged, mine[rank], async_op=True),
            communicator.scatter(scattered, mine[0] if rank == 0 else None, 0, async_op=True),
        ]
        for work in works[rank:] + works[:rank]:
            work.wait()
        to_me = torch.stack([values[rank] for values in mine])
        check(
            [
                (reduced, total),
                (gathered, torch.stack([values[0] for values in mine])),
                (own, total[rank]),
                (sent, mine[p - 1]),
                (uneven, to_me),
                (at_root, total if rank == 0 else mine[rank]),
                (exchanged, to_me),
                (scattered, mine[0][rank]),
            ],
            size,
        )


def parts_of_any_size_are_exchanged(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    for case in cases(communicator):
        dtype, size, given, result = case
        sizes = [
            [(3 * source + destination + size) % 4 * size for destination in range(p)] for source in range(p)
        ]
        parts = [[part(source + destination, 2 * n, dtype).view(n, 2) for destination, n in enumerate(row)]
                 for source, row in enumerate(sizes)]  # fmt: skip
        input_splits, output_splits = sizes[rank], [row[rank] for row in sizes]
        tensor = laid_out(given, torch.cat(parts[rank]))
        output = result((sum(output_splits), 2), dtype)

        communicator.all_to_all(output, tensor, output_splits, input_splits)

        assert torch.equal(output, torch.cat([row[rank] for row in parts])), case


def gradients_do_not_flow_through(communicator: Communicator):
    tensor = torch.ones(3, requires_grad=True)
    communicator.all_reduce(tensor)
    assert tensor.grad_fn is None
    assert torch.equal(tensor.detach(), torch.full((3,), float(communicator.world_size)))


def splits_that_do_not_fit_their_tensor_are_refused(communicator: Communicator):
    p, rank = communicator.world_size, communicator.rank
    tensor = torch.zeros(2 * p, 3)
    too_long, negative, equal = [2] * (p + 1), [-1] * p, [2] * p
    wrong = (too_long, f"must be {p} sizes"), (negative, "got \\[-1"), ([1] * p, f"the sum {2 * p}")
    for splits, message in wrong:
        for output_splits, input_splits in ((splits, equal), (equal, splits)):
            with pytest.raises(ValueError, match=message):
                communicator.all_to_all(tensor.clone(), tensor, output_splits, input_splits)
    with pytest.raises(ValueError, match="alike but for"):
        communicator.all_to_all(torch.zeros(2 * p, 4), tensor, equal, equal)
    with pytest.raises(ValueError, match="of one size and dtype"):
        communicator.all_to_all(torch.zeros(2 * p, 4), tensor)
    if p > 1:
        uneven = [2] * p
        uneven[rank], uneven[rank - 1] = 3, 1
        with pytest.raises(ValueError, match=f"rank {rank} gives itself 3"):
            communicator.all_to_all(tensor.clone(), tensor, equal, uneven)
        with pytest.raises(ValueError, match="do not divide; give output_splits"):
            communicator.all_to_all(torch.zeros(2 * p + 1, 3), tensor, None, equal)


SCENARIOS = (
    collectives_move_every_dtype_layout_and_size, collectives_reduce_every_dtype_layout_and_size,
    every_operation_on_every_dtype_reduces_or_is_refused, input_and_output_may_share_memory,
    a_subclass_of_a_ranks_own_is_reduced_as_a_plain_tensor,
    collectives_of_all_kinds_are_in_flight_at_once, parts_of_any_size_are_exchanged,
    gradients_do_not_flow_through, splits_that_do_not_fit_their_tensor_are_refused,
)  # fmt: skip
