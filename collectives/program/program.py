"""An algorithm is a program: for each rank, the steps it takes, and nothing else.

A program is a generator function ``program(rank, world_size, *, parameters…)`` that yields
*steps*.  A step is a tuple of *operations* that are posted together and completed together:

    Send(peer, chunk)         the chunk, as it was when the step began, goes to ``peer``
    Recv(peer, chunk)         what ``peer`` sends replaces the chunk when the step ends
    RecvReduce(peer, chunk)   what ``peer`` sends is reduced into the chunk when the step ends
    Copy(source, chunk)       chunk ``source``, as it was when the step began, replaces ``chunk``
    Reduce(source, chunk)     the same chunk ``source`` is reduced into ``chunk`` when the step ends

The buffer is divided into equal *chunks*, by default one per rank; ``num_chunks`` on an
operation is the length of the range that starts at ``chunk``.  Messages between two ranks
match in the order in which they are posted, a transfer starts when both sides have posted it,
and two operations of one step may write the same chunk only if both reduce; they then apply in
the order listed.

A program may ask for *scratch chunks*: room of its own, numbered on from the last chunk of the
buffer, that holds nothing at the start.  Scratch chunk ``num_chunks + i`` is as long as chunk i, in
turn over and over.

A program names no tensor, no transport, no clock and no framework.  Because it is data it can
be executed over any transport, proved without data, costed, timed for all ranks at once,
and drawn, and none of these needs a second description of the algorithm.

**Array form.**  A program whose arithmetic also works when ``rank`` is the array
``arange(world_size)`` (as a `collectives.program.rank_array.RankArray`) says so (``array_form=True``) and is
then called once for the whole cluster.  It uses plain operators (``% ^ & //``), never branches on
``rank``, and says with ``when=`` (a bool, or a mask over ranks) which ranks take part in an
operation.  Fields of operations are typed as the ``int`` and ``bool`` that they are for one rank; in
array form each may be an array over ranks instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from operator import index
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, TypeGuard

import numpy as np

from collectives.errors import NotExactError, NotSupportedError, ProgramError
from collectives.program.rank_array import RankArray
from collectives.program.thread_blocks import ThreadBlocks


@dataclass(frozen=True, slots=True)
class Transfer:
    """One side of a message: ``num_chunks`` chunks, from ``chunk`` on, to or from rank ``peer``.

    ``channel`` is the connection that carries it, one number for all ranks; the sender's counts.  It decides
    nothing but the way through a network that hashes connections (see `sim.topology.routing.hashing`).
    """

    reduces: ClassVar[bool] = False

    peer: int
    chunk: int
    num_chunks: int = 1
    when: bool = True
    channel: int = field(default=0, repr=False)


class Send(Transfer):
    """Send ``num_chunks`` chunks, starting at ``chunk``, to rank ``peer``."""

    __slots__ = ()


class Recv(Transfer):
    """Replace ``num_chunks`` chunks, starting at ``chunk``, by what rank ``peer`` sends."""

    __slots__ = ()


class RecvReduce(Transfer):
    """Reduce what rank ``peer`` sends into ``num_chunks`` chunks, starting at ``chunk``."""

    __slots__ = ()
    reduces = True


@dataclass(frozen=True, slots=True)
class Local:
    """What a rank does by itself with ``num_chunks`` chunks, from ``source`` to ``chunk``."""

    reduces: ClassVar[bool] = False

    source: int
    chunk: int
    num_chunks: int = 1
    when: bool = True


class Copy(Local):
    """Replace ``num_chunks`` chunks, starting at ``chunk``, by those that start at ``source``."""

    __slots__ = ()


class Reduce(Local):
    """Reduce the ``num_chunks`` chunks that start at ``source`` into those that start at ``chunk``."""

    __slots__ = ()
    reduces = True


MAX_STEPS = 1_000_000
"""Steps of one rank after which a program counts as endless."""

_END = object()

Operation: TypeAlias = Send | Recv | RecvReduce | Copy | Reduce
Step: TypeAlias = tuple[Operation, ...]
Program: TypeAlias = Callable[..., Iterator[Step]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an algorithm claims to cost; the proof checks it.

    ``num_steps`` is the longest chain of dependent messages (the factor of α);
    ``max_bytes_sent_fraction`` is what the busiest rank sends, over the bytes of the buffer.
    """

    num_steps: int
    max_bytes_sent_fraction: Fraction


@dataclass(frozen=True)
class Algorithm:
    """A program together with what has to be known to run it.

    Attributes:
        name: as users write it, for example ``ring``.
        program: the generator function.
        collective: which contract the program fulfils (see ``collectives.program.contracts``).
        chunks_for: number of chunks as a function of the world size, and of those parameters of
            the program that it names as keywords.
        scratch_for: number of scratch chunks, as a function of the same kind.
        array_form: the program may be called once with ``rank = arange(world_size)``.
        declared_cost: cost as a function of the same kind, if the author states one; None where not.
        parameters: keyword-only arguments of the program that are bound.
        ranges: the values that parameters may have, where the author says: a range of whole numbers, or
            words.  A ``root`` is a rank, whatever is said.
        thread_blocks: that carry it out, where its file says so.
    """

    name: str
    program: Program
    collective: str = "all_reduce"
    chunks_for: Callable[..., int] = field(default=lambda world_size: world_size)
    scratch_for: Callable[..., int] = field(default=lambda world_size: 0)
    array_form: bool = False
    declared_cost: Callable[..., Cost | None] | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    ranges: Mapping[str, range | tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    thread_blocks: ThreadBlocks | None = None

    def __call__(self, rank: int, world_size: int, **parameters: Any) -> Iterator[Step]:
        """Yield the steps as the program does, so that programs can be built of others."""
        return self.program(rank, world_size, **{**self.parameters, **parameters})

    def steps(self, rank: int, world_size: int) -> Iterator[Step]:
        """Return the steps of one rank: plain ints, and only operations that it takes part in.

        Steps in which this rank does nothing are kept as ``()``, so that step numbers mean the
        same on all ranks.
        """
        return self._until_the_end(rank, world_size, _plain_step)

    def steps_over_ranks(self, world_size: int) -> Iterator[Step]:
        """Return the steps of all ranks at once; requires ``array_form``."""
        if not self.array_form:
            raise ValueError(f"{self.name} has no array form")
        ranks: Any = RankArray(world_size)
        return self._until_the_end(ranks, world_size, as_step)

    def _until_the_end(self, rank: Any, world_size: int, read: Callable[[Any], Step]) -> Iterator[Step]:
        """Yield what *read* makes of each step; what the author's code raises is a fault of the program."""
        number = 0
        self._check_root(world_size)
        try:
            program = iterator_of(self(rank, world_size))
            while (step := next(program, _END)) is not _END:
                step = read(step)
                if number >= MAX_STEPS:
                    raise ProgramError(
                        f"{self}: still not done after {MAX_STEPS} steps; does the program end?"
                    )
                yield step
                number += 1
        except (NotExactError, NotSupportedError, ProgramError):
            raise
        except Exception as error:
            who = f"rank {rank}" if isinstance(rank, int) else "all ranks at once"
            raise self._fault(world_size, f"{who}, step {number}: the program", error) from error

    def _count(self, function: Callable[..., int], what: str, world_size: int) -> int:
        self._check_root(world_size)
        number = function(world_size, **self.arguments_of(function))
        try:
            return index(number)
        except TypeError:
            raise ProgramError(
                f"{self}, {self.collective}, world size {world_size}: {what} is {number!r}; expected a number"
            ) from None

    def _fault(self, world_size: int, who: str, error: Exception) -> ProgramError:
        said = f"{who} raised {type(error).__name__}: {error}"
        return ProgramError(f"{self}, {self.collective}, world size {world_size}: {said}")

    def _check_root(self, world_size: int) -> None:
        root = self.parameters.get("root", 0)
        if not _is_whole(root) or not 0 <= root < world_size:
            raise NotSupportedError(f"{self}: root must be a rank from 0 to {world_size - 1}, got {root!r}")

    def num_chunks(self, world_size: int) -> int:
        """Return into how many equal parts the program divides the buffer."""
        return self._count(self.chunks_for, "the number of its chunks", world_size)

    def num_scratch_chunks(self, world_size: int) -> int:
        """Return how many chunks of scratch the program asks for on each rank."""
        return self._count(self.scratch_for, "the number of its scratch chunks", world_size)

    def cost(self, world_size: int) -> Cost | None:
        """Return what the author declares that it costs, if anything."""
        if self.declared_cost is None:
            return None
        return self.declared_cost(world_size, **self.arguments_of(self.declared_cost))

    def with_parameters(self, **parameters: Any) -> Algorithm:
        """Bind keyword-only arguments of the program.

        Raises:
            TypeError: the program has no such parameter; the message lists those it has.
            NotSupportedError: a value is outside the range that the author declares; the message says it.
        """
        accepted = self.parameter_names()
        for name in parameters:
            if name not in accepted:
                has = ", ".join(accepted) or "none"
                raise TypeError(f"algorithm {self.name} has no parameter {name!r}; it has: {has}")
            self._check_range(name, parameters[name])
        return replace(self, parameters=MappingProxyType({**self.parameters, **parameters}))

    def _check_range(self, name: str, value: Any) -> None:
        allowed = self.ranges.get(name)
        if allowed is None or value == _keywords_of(self.program)[name]:
            return
        if isinstance(allowed, range):
            expected = f"from {allowed[0]} to {allowed[-1]}"
            holds = _is_whole(value) and value in allowed
        else:
            expected, holds = f"one of {', '.join(allowed)}", value in allowed
        if not holds:
            raise NotSupportedError(f"{self.name}: {name} must be {expected}, got {value!r}")

    def arguments_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the parameters, bound or by default, that *function* names as keywords."""
        values = {**_keywords_of(self.program), **self.parameters}
        return {name: values[name] for name in _keywords_of(function)}

    def parameter_names(self) -> tuple[str, ...]:
        """Return the names of the program's keyword-only arguments."""
        return tuple(_keywords_of(self.program))

    def __str__(self) -> str:
        bound = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.name}:{bound}" if bound else self.name


@lru_cache(maxsize=1024)
def _keywords_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the keyword-only arguments of *function*, with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def algorithm(
    *,
    name: str | None = None,
    collective: str = "all_reduce",
    num_chunks: int | Callable[..., int] | None = None,
    scratch_chunks: int | Callable[..., int] = 0,
    array_form: bool = False,
    cost: Callable[..., Cost | None] | None = None,
    ranges: Mapping[str, range | tuple[str, ...]] | None = None,
) -> Callable[[Program], Algorithm]:
    """Declare, beside a program, what has to be known to run it (see `Algorithm`).

    ``num_chunks`` is a number, or a function of the world size; by default the world size.  It,
    ``scratch_chunks`` and ``cost`` may also depend on parameters of the program, which they name as
    keyword-only: ``num_chunks=lambda world_size, *, segments: segments``.  *ranges* are what values of
    parameters are refused outside of: ``{"segments": range(1, 4097), "order": ("far", "near")}``.
    """

    def function(number: int | Callable[..., int]) -> Callable[..., int]:
        return number if callable(number) else lambda world_size: number

    def declare(program: Program) -> Algorithm:
        return Algorithm(
            name=name or program.__name__,
            program=program,
            collective=collective,
            chunks_for=function((lambda world_size: world_size) if num_chunks is None else num_chunks),
            scratch_for=function(scratch_chunks),
            array_form=array_form,
            declared_cost=cost,
            ranges=MappingProxyType(dict(ranges or {})),
        )

    return declare


def as_step(step: Any) -> Step:
    """Return *step* as a tuple; a program may yield a lone operation for a step of one.

    Raises:
        TypeError: it is neither an operation nor a tuple of operations.
    """
    operations = step if isinstance(step, tuple) else (step,)
    for operation in operations:
        if not isinstance(operation, (Send, Recv, RecvReduce, Copy, Reduce)):
            raise TypeError(
                f"a step is a tuple of Send, Recv, RecvReduce, Copy and Reduce; got {operation!r}"
            )
    return operations


def iterator_of(steps: Any) -> Iterator[Any]:
    """Return *steps*, what a program returned, as an iterator.

    Raises:
        TypeError: it has no steps.
    """
    if isinstance(steps, Coroutine):
        steps.close()
    try:
        return iter(steps)
    except TypeError:
        raise TypeError(
            f"a program is a generator of steps, which it yields; this one returned {type(steps).__name__}"
        ) from None


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _plain_step(step: Any) -> Step:
    """Return *step* as one rank has it: plain ints, and only operations that it takes part in."""
    return tuple([_plain(operation) for operation in as_step(step) if operation.when])


def _plain(operation: Operation) -> Operation:
    """Return *operation* with Python ints, as programs may index tables that hold NumPy's."""
    first = operation.source if isinstance(operation, Local) else operation.peer
    chunk, num_chunks = operation.chunk, operation.num_chunks
    if type(first) is type(chunk) is type(num_chunks) is int and operation.when is True:
        return operation
    return moved(operation, *(_whole(value, operation) for value in (first, chunk, num_chunks)))


def moved(operation: Operation, first: Any, chunk: Any, num_chunks: Any, when: Any = True) -> Operation:
    """Return *operation* with another peer or source, *first*, and other chunks, on its channel."""
    if isinstance(operation, Local):
        return type(operation)(first, chunk, num_chunks, when)
    return type(operation)(first, chunk, num_chunks, when, operation.channel)


def _whole(value: Any, operation: Operation) -> int:
    """Return *value* as an int.

    Raises:
        TypeError: it is no whole number.
    """
    with suppress(TypeError, ValueError, OverflowError):
        if (number := int(value)) == value:
            return number
    raise TypeError(f"ranks and chunks are whole numbers, got {value!r} in {operation!r}")
