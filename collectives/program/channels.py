"""Channels: several copies of a program, each on its own slice of the buffer, all under way together.

One ring uses one link into each rank and one out of it.  Where ranks have more, or nodes have
several network cards, further rings in other orders use those too.  Channel c visits the ranks

    in nodes of several ranks   node by node, those inside each node rotated by c, so that every
                                channel enters and leaves nodes at other ranks, by other cards
    of a flat network           forwards if c is even, backwards if it is odd

and runs the program in that order on slice c of the buffer, or, where the buffer is one part per
rank, on slice c of each part.  The copies take their steps side by side: a step is complete when
that of every channel is.  Messages say their channel, as each has connections of its own.

Source: NCCL's channels; its search for orders (src/graph/search.cc) is replaced by the rule above.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import tee, zip_longest
from typing import Any

import numpy as np

from collectives.docstrings import docstring_of
from collectives.errors import NotSupportedError
from collectives.program.contracts import CONTRACTS
from collectives.program.placement import members_per_node
from collectives.program.program import Algorithm, Local, Operation, Step, as_step
from collectives.program.program_key import ProgramKey
from collectives.program.rank_array import Deferred, LazyArray, RankArray
from collectives.program.stand_in import standing_for

CHANNEL_PARAMETERS = ("channels", "ranks_per_node")

MAX_CHANNELS = 64
"""As many as NCCL has (MAXCHANNELS, src/include/device.h)."""


def in_channels(algorithm: Algorithm, channels: int) -> Algorithm:
    """Return *algorithm* on *channels* channels.

    It has the parameters ``channels`` and ``ranks_per_node``, by which it orders ranks, beside its
    own; ``ranks_per_node`` is bound by who knows it (see `collectives.program.placement`), and where nobody
    does, the network is taken to be flat.  It declares no cost.

    Raises:
        NotSupportedError: *channels* is no number from 1 to `MAX_CHANNELS`.
    """
    copied = _copied(ProgramKey.of(algorithm))
    return copied.with_parameters(channels=_checked(algorithm, channels))


@lru_cache(maxsize=64)
def _copied(inner: ProgramKey) -> Algorithm:
    """Return the algorithm with channels as a parameter; one program for all that are equal."""
    algorithm = inner.algorithm
    return replace(
        algorithm,
        program=standing_for(algorithm, _taking(algorithm, partial(_side_by_side, algorithm))),
        chunks_for=_taking(algorithm, partial(_num_chunks, algorithm)),
        scratch_for=_taking(algorithm, partial(_num_scratch_chunks, algorithm)),
        declared_cost=None,
        ranges={**algorithm.ranges, "channels": range(1, MAX_CHANNELS + 1)},
    )


def _side_by_side(
    algorithm: Algorithm, rank: int, world_size: int, *, channels: int, **parameters: Any
) -> Iterator[Step]:
    """Yield the steps of all channels together."""
    inner = _bound(algorithm, parameters)
    copies = [
        _Channel.of(inner, world_size, channels, number, parameters.get("ranks_per_node") or 1)
        for number in range(channels)
    ]
    ranks: Any = rank
    if isinstance(ranks, LazyArray):
        slices = _over_ranks(copies)
    else:
        slices = [channel.steps(rank) for channel in copies]
    for steps in zip_longest(*slices, fillvalue=()):
        yield tuple(operation for step in steps for operation in step)


def _num_chunks(algorithm: Algorithm, world_size: int, *, channels: int, **parameters: Any) -> int:
    return channels * _bound(algorithm, parameters).num_chunks(world_size)


def _num_scratch_chunks(algorithm: Algorithm, world_size: int, *, channels: int, **parameters: Any) -> int:
    inner = _bound(algorithm, parameters)
    chunks_per_part = inner.num_chunks(world_size) // CONTRACTS[inner.collective].num_parts(world_size)
    return -(-inner.num_scratch_chunks(world_size) // chunks_per_part) * chunks_per_part * channels


@dataclass(frozen=True)
class _Channel:
    """One copy of a program.

    Attributes:
        program: what is copied; it speaks of positions in the order where others speak of ranks.
        order: the rank at each position.
        number: which slice of a part is its own.
        channels: slices of a part.
        num_parts: parts of the buffer, each at the position of its rank.
        chunks_per_part: of the program.
    """

    program: Algorithm
    order: Any
    number: int
    channels: int
    num_parts: int
    chunks_per_part: int

    @classmethod
    def of(
        cls, program: Algorithm, world_size: int, channels: int, number: int, ranks_per_node: int
    ) -> _Channel:
        order = np.array(order_of_ranks(world_size, number, ranks_per_node))
        if "root" in program.parameter_names():
            root = program.parameters.get("root", 0)
            program = program.with_parameters(root=int(np.argsort(order)[root]))
        num_parts = CONTRACTS[program.collective].num_parts(world_size)
        chunks_per_part = program.num_chunks(world_size) // num_parts
        return cls(program, order, number, channels, num_parts, chunks_per_part)

    def steps(self, rank: int) -> Iterator[Step]:
        """Yield the steps of *rank*."""
        position = np.argsort(self.order)[rank]
        for step in self.program(position, len(self.order)):
            yield tuple(placed for operation in as_step(step) for placed in self._placed(operation))

    def _placed(self, operation: Operation) -> Iterator[Operation]:
        """Yield *operation* on the slice of this channel; chunk by chunk where each part has a slice."""
        places: dict[str, Any] = {"chunk": operation.chunk}
        if isinstance(operation, Local):
            places["source"] = operation.source
        else:
            peer = self.order[np.where(operation.when, operation.peer, 0)]
            operation = replace(operation, peer=peer, channel=self.number)
        if self.num_parts == 1:
            whole: Any = {name: self.chunk(first) for name, first in places.items()}
            yield replace(operation, **whole)
            return
        for n in range(int(np.max(operation.num_chunks))):
            placed: Any = {name: self.chunk(first + n) for name, first in places.items()}
            yield replace(operation, num_chunks=1, when=operation.when & (n < operation.num_chunks), **placed)

    def chunk(self, chunk: Any) -> Any:
        """Return the chunk of the whole buffer that is *chunk* of the program."""
        part, place = chunk // self.chunks_per_part, chunk % self.chunks_per_part
        if self.num_parts > 1:
            part = np.where(part < self.num_parts, self.order[part % self.num_parts], part)
        return (part * self.channels + self.number) * self.chunks_per_part + place


def _over_ranks(copies: Sequence[_Channel]) -> list[Iterator[Step]]:
    """Return the steps of all ranks of each of *copies*; what several run alike is run once, for all."""
    world_size = len(copies[0].order)
    alike = Counter(ProgramKey.of(channel.program) for channel in copies)
    positions: Any = RankArray(world_size)
    runs = {program: iter(tee(program.algorithm(positions, world_size), n)) for program, n in alike.items()}
    return [_OverRanks(own).steps(next(runs[ProgramKey.of(own.program)])) for own in copies]


class _OverRanks:
    """The steps of all ranks of a channel at once, by formula as far as the program has them.

    The program runs over positions, which are formulas for it; what a position has is moved to the rank that
    is there.  Peers that stay the same from step to step are moved once, chunks when somebody asks for them.
    """

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._position_of = np.argsort(channel.order)
        self._peers: dict[tuple[type[Operation], int], tuple[Any, Any]] = {}

    def steps(self, of_positions: Iterator[Any]) -> Iterator[Step]:
        """Yield the steps, given those of positions."""
        for step in of_positions:
            yield tuple(
                placed
                for number, operation in enumerate(as_step(step))
                for placed in self._placed(number, operation)
            )

    def _placed(self, number: int, operation: Operation) -> Iterator[Operation]:
        places: dict[str, Any] = {"chunk": operation.chunk}
        fields: dict[str, Any] = {"when": self._moved(operation.when)}
        if isinstance(operation, Local):
            places["source"] = operation.source
        else:
            fields |= {"peer": self._peer(number, operation), "channel": self._channel.number}
        length: Any = self._moved(operation.num_chunks)

        if self._channel.num_parts == 1:
            whole: Any = {name: self._chunk(first, 0) for name, first in places.items()}
            yield replace(operation, num_chunks=length, **whole, **fields)
            return
        when = fields.pop("when")
        for n in range(int(np.max(length))):
            placed: Any = {name: self._chunk(first, n) for name, first in places.items()}
            yield replace(operation, num_chunks=1, when=when & (n < length), **placed, **fields)

    def _peer(self, number: int, operation: Any) -> Any:
        """Return the ranks at the positions of peers; the same array as long as these stay."""
        peer = operation.peer
        known = self._peers.get((type(operation), number))
        if known is None or not _is_same(known[0], peer):
            order = self._channel.order
            moved = self._moved(order[np.clip(peer, 0, len(order) - 1)])  # who does nothing may have none
            known = self._peers[type(operation), number] = peer, moved
        return known[1]

    def _chunk(self, first: Any, further: int) -> Any:
        if isinstance(first, int):
            return self._channel.chunk(first + further)
        channel = self._channel
        place = (channel.number, channel.channels) if channel.chunks_per_part == 1 else None
        return Deferred(lambda: channel.chunk(self._moved(first) + further), place)

    def _moved(self, value: Any) -> Any:
        """Return what each rank has, of what each position has; a number stays."""
        moved = np.asarray(value)
        return moved[self._position_of] if moved.ndim else value


def _is_same(known: Any, value: Any) -> bool:
    if isinstance(known, RankArray):
        return known.same_as(value)
    return known is value or (not isinstance(value, RankArray) and np.array_equal(known, value))


def order_of_ranks(world_size: int, channel: int, ranks_per_node: int = 1) -> list[int]:
    """Return the order in which *channel* visits the ranks; the last node may be smaller."""
    if ranks_per_node == 1:
        return list(range(world_size))[:: -1 if channel % 2 else 1]
    order = []
    for first in range(0, world_size, ranks_per_node):
        size = min(ranks_per_node, world_size - first)
        order += [first + (place + channel) % size for place in range(size)]
    return order


def num_orders(ranks: Sequence[int], ranks_per_node: int) -> int:
    """Return in how many orders channels visit a group, as far as that makes a difference to links.

    Inside one node every rotation has the same neighbours.  Over several nodes there is one for each rank of
    a node, and where every rank is a node, or neighbours are apart, forwards and backwards.

    Args:
        ranks: which rank of the world each member of the group is.
        ranks_per_node: ranks of the world that fill a node, in order.
    """
    per_node = members_per_node(ranks, ranks_per_node)
    if per_node == 1:
        return min(2, len(ranks))
    return 1 if per_node >= len(ranks) else per_node


def _bound(algorithm: Algorithm, parameters: dict[str, Any]) -> Algorithm:
    own = algorithm.parameter_names()
    return algorithm.with_parameters(**{name: value for name, value in parameters.items() if name in own})


def _checked(algorithm: Algorithm, channels: object) -> int:
    if not isinstance(channels, int) or not 1 <= channels <= MAX_CHANNELS:
        raise NotSupportedError(f"{algorithm}: channels must be from 1 to {MAX_CHANNELS}, got {channels!r}")
    return channels


def _taking(algorithm: Algorithm, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, declared to take the parameters of *algorithm* and those of channels."""
    own = inspect.signature(algorithm.program).parameters
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    added = {"channels": 1, "ranks_per_node": None}
    parameters = [parameter for parameter in own.values() if parameter.name not in added]
    parameters += [
        own.get(name, inspect.Parameter(name, keyword_only, default=default))
        for name, default in added.items()
    ]

    def taking(*args: Any, **options: Any) -> Any:
        return function(*args, **options)

    taking.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    taking.__doc__ = docstring_of(algorithm.program)
    taking.__module__ = algorithm.program.__module__
    return taking
