"""An independent reading of the rules in `collectives.program.program`, as naive as possible, with numbers.

A chunk holds an integer in which every contribution, of one rank to one chunk, has a digit of its
own; reducing is adding.  None is what nobody has put there.  Used to check `verify`.
"""

from collections import defaultdict, deque
from typing import Any, NamedTuple

from collectives.program import Local, Send

Numbers = list[list[int | None]]
Programs = list[list[tuple[Any, ...]]]

_DIGIT_BITS = 40
_EQUAL_PARTS = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")


class Setting(NamedTuple):
    """A collective on a buffer of *num_chunks* chunks, and scratch beside it."""

    collective: str
    world_size: int
    num_chunks: int
    num_scratch: int = 0
    root: int = 0

    def digit(self, rank: int, chunk: int) -> int:
        return 1 << _DIGIT_BITS * (rank * self.num_chunks + chunk)

    def sum(self, chunk: int) -> int:
        return sum(self.digit(rank, chunk) for rank in range(self.world_size))

    def part(self, chunk: int) -> int:
        return chunk // (self.num_chunks // self.world_size)

    def given(self) -> Numbers:
        """Return what the ranks hold before."""
        scratch = [None] * self.num_scratch
        return [
            [
                self.digit(rank, chunk) if self._gives(rank, chunk) else None
                for chunk in range(self.num_chunks)
            ]
            + scratch
            for rank in range(self.world_size)
        ]

    def _gives(self, rank: int, chunk: int) -> bool:
        if self.collective in ("all_gather", "gather"):
            return rank == self.part(chunk)
        if self.collective in ("broadcast", "scatter"):
            return rank == self.root
        return True

    def is_fulfilled(self, held: Numbers) -> bool:
        """Return whether the ranks hold what the collective demands."""
        return all(
            wanted in (None, held[rank][chunk])
            for rank in range(self.world_size)
            for chunk in range(self.num_chunks)
            for wanted in [self._wanted(rank, chunk)]
        )

    def _wanted(self, rank: int, chunk: int) -> int | None:
        match self.collective:
            case "all_reduce":
                return self.sum(chunk)
            case "reduce":
                return self.sum(chunk) if rank == self.root else None
            case "broadcast":
                return self.digit(self.root, chunk)
            case "reduce_scatter":
                return self.sum(chunk) if rank == self.part(chunk) else None
            case "all_gather":
                return self.digit(self.part(chunk), chunk)
            case "gather":
                return self.digit(self.part(chunk), chunk) if rank == self.root else None
            case "scatter":
                return self.digit(self.root, chunk) if rank == self.part(chunk) else None
            case "all_to_all":
                per_part = self.num_chunks // self.world_size
                return self.digit(self.part(chunk), rank * per_part + chunk % per_part)
        raise ValueError(self.collective)


def fulfils(programs: Programs, setting: Setting) -> bool:
    """Run the ranks' steps on numbers; return whether they keep the rules and fulfil the collective."""
    held = setting.given()
    if not all(
        _keeps_the_rules(step, rank, setting) for rank, steps in enumerate(programs) for step in steps
    ):
        return False
    next_step = [0] * setting.world_size
    arrived = [None] * setting.world_size
    sends = defaultdict(deque)
    receives = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(programs):
            if arrived[rank] is None and next_step[rank] < len(steps):
                arrived[rank] = _post(steps[next_step[rank]], rank, held[rank], sends, receives)
                moved = True
        for (source, destination), queue in sends.items():
            waiting = receives[source, destination]
            while queue and waiting:
                (sent, number, values), (received, position) = queue.popleft(), waiting.popleft()
                if sent.num_chunks != received.num_chunks or _shifts(sent.chunk, received.chunk, setting):
                    return False
                _arrived(arrived, source)[number] = []
                _arrived(arrived, destination)[position] = values
                moved = True
        for rank, steps in enumerate(programs):
            done = arrived[rank]
            if done is not None and len(done) == len(steps[next_step[rank]]):
                _land(steps[next_step[rank]], held[rank], done)
                arrived[rank] = None
                next_step[rank] += 1
                moved = True
    return next_step == [len(steps) for steps in programs] and setting.is_fulfilled(held)


def _keeps_the_rules(step: tuple[Any, ...], rank: int, setting: Setting) -> bool:
    writers = defaultdict(list)
    for operation in step:
        ranges = [operation.chunk]
        if isinstance(operation, Local):
            ranges.append(operation.source)
            if _shifts(operation.source, operation.chunk, setting):
                return False
        elif operation.peer == rank or not 0 <= operation.peer < setting.world_size:
            return False
        for first in ranges:
            inside = first >= 0 and first + operation.num_chunks <= setting.num_chunks
            in_scratch = (
                setting.num_chunks <= first
                and first + operation.num_chunks <= setting.num_chunks + setting.num_scratch
            )
            if operation.num_chunks < 1 or not (inside or in_scratch):
                return False
        if not isinstance(operation, Send):
            for chunk in range(operation.chunk, operation.chunk + operation.num_chunks):
                writers[chunk].append(operation)
    return all(len(several) == 1 or all(one.reduces for one in several) for several in writers.values())


def _shifts(source: int, chunk: int, setting: Setting) -> bool:
    num_parts = setting.world_size if setting.collective in _EQUAL_PARTS else 1
    return (source - chunk) % (setting.num_chunks // num_parts) != 0


def _post(
    step: tuple[Any, ...], rank: int, held: list[int | None], sends, receives
) -> dict[int, list[int | None]]:
    done = {}
    for number, operation in enumerate(step):
        if isinstance(operation, Local):
            done[number] = held[operation.source : operation.source + operation.num_chunks]
        elif isinstance(operation, Send):
            values = held[operation.chunk : operation.chunk + operation.num_chunks]
            sends[rank, operation.peer].append((operation, number, values))
        else:
            receives[operation.peer, rank].append((operation, number))
    return done


def _arrived(arrived: list[dict[int, list[int | None]] | None], rank: int) -> dict[int, list[int | None]]:
    found = arrived[rank]
    assert found is not None
    return found


def _land(step: tuple[Any, ...], held: list[int | None], done: dict[int, list[int | None]]) -> None:
    for number, operation in enumerate(step):
        for chunk, value in enumerate(done[number], start=operation.chunk):
            before = held[chunk]
            if operation.reduces:
                value = added(before, value)
            held[chunk] = value


def added(first: int | None, second: int | None) -> int | None:
    """Return the sum; of what nobody has put there, nothing."""
    return None if first is None or second is None else first + second
