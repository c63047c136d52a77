"""Messages that programs send."""

from collections.abc import Iterable, Iterator

from collectives.program import Algorithm, Send


def sends(
    algorithm: Algorithm, world_size: int, ranks: Iterable[int] | None = None
) -> Iterator[tuple[int, int, Send]]:
    """Yield rank, step and operation of all that *ranks* send, or all of them."""
    for rank in range(world_size) if ranks is None else ranks:
        for number, step in enumerate(algorithm.steps(rank, world_size)):
            for operation in step:
                if isinstance(operation, Send):
                    yield rank, number, operation
