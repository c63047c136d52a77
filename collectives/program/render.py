"""Programs drawn as a rank × step grid.

``c>r`` sends chunk c to rank r, ``c+r`` reduces chunk c from r, ``c<r`` overwrites it with what
r sends, ``c=s`` copies chunk s onto it, ``c+=s`` reduces it in; ``2-5`` is a range of chunks, ``s0``
the first scratch chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from collectives.program.program import Algorithm, Local, Operation, Recv, RecvReduce, Send, Step

MAX_WIDTH = 100
MAX_OPERATIONS = 4
"""Columns of the grid in an error, and operations of one of its cells."""

_SIGN = {Send: ">", RecvReduce: "+", Recv: "<"}


def draw_operation(operation: Operation, num_chunks: int) -> str:
    """Return *operation*, on a buffer of *num_chunks* chunks, in the notation of this module."""
    chunks = _range(operation.chunk, operation.num_chunks, num_chunks)
    if isinstance(operation, Local):
        sign = "+=" if operation.reduces else "="
        return f"{chunks}{sign}{_range(operation.source, operation.num_chunks, num_chunks)}"
    return f"{chunks}{_SIGN[type(operation)]}{operation.peer}"


def spell_operation(operation: Operation) -> str:
    """Return *operation* as its author wrote it, for example ``RecvReduce(peer=1, chunk=0)``."""
    first = f"source={operation.source}" if isinstance(operation, Local) else f"peer={operation.peer}"
    length = "" if operation.num_chunks == 1 else f", num_chunks={operation.num_chunks}"
    return f"{type(operation).__name__}({first}, chunk={operation.chunk}{length})"


def spell_message(step: int, source: int, destination: int, nbytes: int) -> str:
    """Return a message in words, for example ``step 2: rank 3 sends 4096 bytes to rank 4``."""
    return f"step {step}: rank {source} sends {nbytes} bytes to rank {destination}"


def draw(
    algorithm: Algorithm,
    world_size: int,
    *,
    ranks: Iterable[int] | None = None,
    steps: range | None = None,
    mark: tuple[int, int] | None = None,
    max_operations: int | None = None,
) -> str:
    """Return the grid of *algorithm*: a row per step, a column per rank.

    *ranks* and *steps* restrict it to a part; *mark*, a (rank, step), is set in brackets; of a cell
    with more than *max_operations*, the others are counted.
    """
    columns = list(range(world_size) if ranks is None else ranks)
    window = range(10**9) if steps is None else steps
    programs = [_part(algorithm.steps(rank, world_size), window) for rank in columns]
    num_chunks = algorithm.num_chunks(world_size)
    num_rows = max((len(program) for program in programs), default=0)
    header = ["", *(f"rank {rank}" for rank in columns)]
    rows = [header]
    for row in range(num_rows):
        step = window.start + row
        cells = [
            _cell(
                program[row] if row < len(program) else (),
                num_chunks,
                marked=mark == (rank, step),
                max_operations=max_operations,
            )
            for rank, program in zip(columns, programs, strict=True)
        ]
        rows.append([f"step {step}", *cells])
    return _align(rows)


def draw_around(algorithm: Algorithm, world_size: int, rank: int, step: int, *, marked: bool = True) -> str:
    """Return the grid around one cell, in brackets if it is *marked*: as many ranks as fit on a line."""
    peers = {rank, (rank - 1) % world_size, (rank + 1) % world_size}
    (row,) = _part(algorithm.steps(rank, world_size), range(step, step + 1)) or [()]
    peers.update(op.peer for op in row if not isinstance(op, Local) and 0 <= op.peer < world_size)
    nearest = sorted(peers, key=lambda other: (other != rank, abs(other - rank)))
    grid = ""
    for count in range(min(8, len(nearest)), 0, -1):
        grid = draw(
            algorithm,
            world_size,
            ranks=sorted(nearest[:count]),
            steps=range(max(0, step - 2), step + 3),
            mark=(rank, step) if marked else None,
            max_operations=MAX_OPERATIONS,
        )
        if max(map(len, grid.splitlines())) <= MAX_WIDTH:
            break
    return grid


def _part(steps: Iterator[Step], window: range) -> list[Step]:
    """Return those of *steps* in *window*, up to where the program fails, if it does."""
    found: list[Step] = []
    with suppress(Exception):
        found.extend(islice(steps, window.start, window.stop))
    return found


def _range(chunk: int, length: int, num_chunks: int) -> str:
    mark, first = ("", chunk) if chunk < num_chunks else ("s", chunk - num_chunks)
    return f"{mark}{first}" if length == 1 else f"{mark}{first}-{first + length - 1}"


def _cell(step: Step, num_chunks: int, *, marked: bool, max_operations: int | None) -> str:
    text = " ".join(draw_operation(operation, num_chunks) for operation in step[:max_operations]) or "·"
    if max_operations is not None and len(step) > max_operations:
        text += f" … {len(step) - max_operations} more"
    return f"[{text}]" if marked else text


def _align(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
