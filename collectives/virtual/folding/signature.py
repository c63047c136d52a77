"""Signature of a rank: what its thread has issued so far, without what tells it from others by name alone.

Two ranks with equal signatures have launched kernels of equal durations on the same streams, recorded and
awaited the same events in the same order, and called collectives of equal sizes in groups that were made
together, with the same objects where these are known.  Names, and which of the sibling groups it is, make no
difference to what takes how long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import TypeAlias

from collectives.virtual.folding.partitions import Partitions
from collectives.virtual.folding.probes import Alike
from collectives.virtual.group_calls.calls import CallHandle
from collectives.virtual.streams.score import (
    Call,
    HostWait,
    HostWork,
    Item,
    Launch,
    Mark,
    Record,
    Score,
    StreamWait,
)

Sign: TypeAlias = tuple[object, ...]
"""What stands for one item of a score."""

Signature: TypeAlias = tuple[Sign, ...]


def signature_of(score: Score, partitions: Partitions) -> Signature:
    """Return the signature of *score*, of which nothing has been dropped."""
    return tuple(_sign(item, partitions) for item in score.items)


def first_difference(one: Signature, other: Signature) -> int | None:
    """Return where two signatures differ first; None where they are equal."""
    for number, (own, others) in enumerate(zip_longest(one, other)):
        if own != others:
            return number
    return None


def alike_in(signatures: Mapping[int, Signature], agree: Callable[[Signature, Signature], bool]) -> Alike:
    """Return ranks by what they have issued: those are together that *agree* with the first of them."""
    alike: list[list[int]] = []
    for rank, signature in signatures.items():
        same = next((ranks for ranks in alike if agree(signatures[ranks[0]], signature)), None)
        if same is None:
            alike.append([rank])
        else:
            same.append(rank)
    return tuple(map(tuple, alike))


def agree_so_far(one: Signature, other: Signature) -> bool:
    """Return whether two signatures are equal up to where the shorter one ends."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def only_objects_differ(one: Signature, other: Signature, number: int) -> bool:
    """Return whether both have a call at *number*, to which they give other objects and nothing else."""
    if number >= min(len(one), len(other)):
        return False
    return one[number][0] == "call" and one[number][:-1] == other[number][:-1]


def spell(signature: Signature, number: int) -> str:
    """Return what stands at *number*, in words."""
    if number >= len(signature):
        return "nothing more"
    kind, *details = signature[number]
    return f"{kind} {', '.join(map(str, details))}"


def _sign(item: Item, partitions: Partitions) -> Sign:
    match item:
        case Launch():
            return "replayed kernel" if item.replayed else "kernel", item.stream, item.duration_ps, item.kind
        case HostWork():
            return "work of the host", item.duration_ps
        case Record():
            return "record", item.stream, item.event
        case StreamWait():
            return "stream waits", item.stream, item.event
        case HostWait():
            return "host waits", item.event
        case Call():
            return "call", item.stream, *_facts(item, partitions)
        case Mark():
            return "mark", item.name


def _facts(item: Call, partitions: Partitions) -> Iterator[object]:
    yield item.name
    if isinstance(item.call, CallHandle):
        hosts, ordinal, facts = item.call.hosts, item.call.ordinal, item.call.facts
        yield from (partitions.of(hosts, ordinal[0]).name, ordinal[1], str(facts.call), facts.splits)
        yield item.call.objects
