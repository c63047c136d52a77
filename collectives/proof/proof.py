"""Proof of an algorithm, without data, for one world size.

A proof shows that messages match, that nothing deadlocks, that no two operations of a step
conflict (`collectives.proof.symbolic_run` runs the programs against each other), that every contribution
arrives exactly once wherever the collective demands it (`collectives.program.contracts`), that the
algorithm costs what its author declares, and that its array form is the same program.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

import numpy as np

from collectives.program import Algorithm, Local, Operation, Step
from collectives.program.contracts import CONTRACTS
from collectives.program.program import moved
from collectives.program.render import spell_operation
from collectives.proof.symbolic_run import SymbolicRun


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved of one algorithm at one world size.

    Attributes:
        algorithm: its name.
        collective: the contract it fulfils.
        world_size: number of ranks.
        num_chunks: equal parts into which it divides the buffer.
        num_steps: longest chain of dependent messages.
        num_messages: messages sent by all ranks together.
        max_bytes_sent_fraction: bytes sent by the busiest rank, over those of the buffer.
        min_bytes_sent_fraction: what no algorithm for this collective can go below.
        array_form: the array form was there, and equals the programs of the single ranks.
        cost_declared: the author declared a cost, and it is this one.
    """

    algorithm: str
    collective: str
    world_size: int
    num_chunks: int
    num_steps: int
    num_messages: int
    max_bytes_sent_fraction: float
    min_bytes_sent_fraction: float
    array_form: bool
    cost_declared: bool


def prove(chosen: Algorithm, world_size: int, root: int = 0) -> Proof:
    """Prove an algorithm for *world_size* ranks, or raise with the evidence.

    Args:
        chosen: the algorithm, with all its parameters.
        world_size: number of ranks, at least 1.
        root: the root of a rooted collective.

    Raises:
        ProgramError: the program is wrong; the message shows where.
        NotSupportedError: the program refuses this world size.
        ValueError: *world_size* or *root* is out of range.
    """
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    if not 0 <= root < world_size:
        raise ValueError(f"root must be a rank from 0 to {world_size - 1}, got {root}")
    if "root" in chosen.parameter_names():
        chosen = chosen.with_parameters(root=root)

    contract = CONTRACTS[chosen.collective]
    run = SymbolicRun(chosen, world_size, contract, root)
    run.finish()
    _check_contents(run)
    num_steps = max(run.depth)
    fraction = Fraction(max(run.chunks_sent), run.num_chunks)
    _check_cost(run, num_steps, fraction)
    if chosen.array_form:
        _check_array_form(run)

    return Proof(
        algorithm=str(chosen),
        collective=contract.name,
        world_size=world_size,
        num_chunks=run.num_chunks,
        num_steps=num_steps,
        num_messages=run.num_messages,
        max_bytes_sent_fraction=float(fraction),
        min_bytes_sent_fraction=float(contract.min_bytes_sent_fraction(world_size)),
        array_form=chosen.array_form,
        cost_declared=chosen.cost(world_size) is not None,
    )


def estimate_work(algorithm: Algorithm, world_size: int) -> int:
    """Return about how many operations a proof goes through, from the programs of three ranks.

    A step counts as one operation more, and so do 8 chunks that are held or moved: they take as
    long.  A program that fails or refuses is for the proof to report, so what it yields before counts.
    """
    ranks = {0, world_size // 2, world_size - 1}
    num_operations = num_chunks = 0
    with suppress(Exception):
        num_chunks = algorithm.num_chunks(world_size) + algorithm.num_scratch_chunks(world_size)
        num_chunks *= len(ranks)
        for rank in ranks:
            for step in algorithm.steps(rank, world_size):
                num_operations += 1 + len(step)
                num_chunks += sum([operation.num_chunks for operation in step])
    return world_size * (num_operations + num_chunks // 8) // len(ranks)


def _check_contents(run: SymbolicRun) -> None:
    """Check that every rank ends with what the collective demands."""
    for rank, held in enumerate(run.held):
        for place in run.places(rank):
            wanted = run.contract.after(place)
            content = held[place.chunk]
            if wanted is None or content == run.contents.of(*wanted):
                continue

            step = run.last_write[rank].get(place.chunk)
            if step is None:
                got = "is never written"
            elif run.contents.spoiled(content):
                step = run.first_spoiled.get((rank, place.chunk), step)
                got = f"holds {run.contents.describe(content)} (since step {step})"
            else:
                got = f"holds {run.contents.describe(content)} (last written in step {step})"

            expected = run.contents.describe(run.contents.of(*wanted))
            raise run.error(
                f"rank {rank}, chunk {place.chunk} {got}\n  expected: {expected}, each exactly once",
                at=(rank, step or 0),
                marked=step is not None,
            )


def _check_cost(run: SymbolicRun, num_steps: int, fraction: Fraction) -> None:
    """Check the declared cost."""
    declared = run.algorithm.cost(run.world_size)
    if declared is None:
        return
    for name, claimed, counted in (
        ("num_steps", declared.num_steps, num_steps),
        ("max_bytes_sent_fraction", declared.max_bytes_sent_fraction, fraction),
    ):
        if claimed != counted:
            raise run.error(f"the declared cost is wrong: {name} is declared as {claimed}, counted {counted}")


def _check_array_form(run: SymbolicRun) -> None:
    """Check that the array form, taken apart, is the program of every single rank."""
    rows = run.algorithm.steps_over_ranks(run.world_size)
    for number, (row, *steps) in enumerate(zip_longest(rows, *run.steps)):
        taken = _take_apart(row, run.world_size)
        for rank, step in enumerate(steps):
            if taken[rank] != step:
                raise run.error(
                    f"the array form differs from the program of rank {rank} in step {number}\n"
                    f"  array form: {_spell(taken[rank])}\n  program:    {_spell(step)}",
                    at=(rank, number),
                )


def _spell(step: Step | None) -> str:
    return "no such step" if step is None else ", ".join(map(spell_operation, step)) or "nothing"


def _take_apart(row: Step | None, world_size: int) -> Sequence[Step | None]:
    """Return what *row*, a step of the array form, says of each rank."""
    if row is None:
        return [None] * world_size
    taken: list[list[Operation]] = [[] for _ in range(world_size)]
    for operation in row:
        first = operation.source if isinstance(operation, Local) else operation.peer
        values = (operation.when, first, operation.chunk, operation.num_chunks)
        columns = (np.broadcast_to(value, world_size).tolist() for value in values)
        for operations, when, *place in zip(taken, *columns, strict=True):
            if when:
                operations.append(moved(operation, *place))
    return [tuple(operations) for operations in taken]
