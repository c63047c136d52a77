"""Timing of collectives on a shaped network: all hosts begin at one moment of their machine's clock.

The clock of all hosts is that of the machine, so nothing has to travel for them to begin together.  The time
of a collective is that from when its last host has begun, which a busy processor may delay, until the last
is done.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from benchmarks.lab.shaped.hosts import HostError, Hosts
from testbed.benchmarking.payload import Payload, num_parts

if TYPE_CHECKING:
    from benchmarks.lab.shaped.host import Host

Span: TypeAlias = tuple[float, float]
"""When something began and ended, by the machine's clock."""
ITEM_SIZE = 4
"""Bytes of an element: float32."""
_LEAD_SECONDS = 3e-3
"""How long before its moment a collective is announced."""
_SECONDS = 120.0


@dataclass(frozen=True)
class Call:
    """One collective of some hosts.

    Attributes:
        collective: its name.
        algorithm: ``native`` or the name of one of ours.
        nbytes: size of the buffer, as nccl-tests counts it; a multiple of what `fitting` returns.
        members: the hosts that take part; empty: all.
        timeout: seconds that our programs may take; None: as long as any collective.
    """

    collective: str
    algorithm: str
    nbytes: int
    members: tuple[int, ...] = ()
    timeout: float | None = None


def fitting(nbytes: int, collective: str, world_size: int) -> int:
    """Return the smallest size from *nbytes* on of which each part has whole elements."""
    unit = ITEM_SIZE * num_parts(collective, world_size)
    return -(-nbytes // unit) * unit


def time_calls(
    hosts: Hosts, calls: Sequence[Call], *, repetitions: int, meanwhile: Meanwhile | None = None
) -> list[list[float]]:
    """Return the seconds that each of *calls* took in each repetition; all begin together.

    Each is carried out once before, on numbers that are checked.

    Args:
        hosts: of the network.
        calls: of which a host takes part in one at most.
        repetitions: how often.
        meanwhile: what is done to the network while they run, and how that is undone.

    Raises:
        HostError: a host failed, or an element came out wrong.
    """
    wrong = sum(hosts.ask(_prepare, tuple(calls), timeout=_SECONDS))
    if wrong:
        names = ", ".join(f"{call.collective} {call.algorithm}" for call in calls)
        raise HostError(f"{names}: {wrong} elements came out wrong")

    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(repetitions):
        with contextlib.ExitStack() as changed:
            spans = begin(hosts, _carry_out, meanwhile=meanwhile, changed=changed)
        for seconds, call in zip(taken, calls, strict=True):
            members = call.members or range(len(hosts))
            seconds.append(duration(spans[host] for host in members))
    return taken


@dataclass(frozen=True)
class Meanwhile:
    """What is done to a network while a collective runs.

    Attributes:
        after: seconds from the beginning.
        do: it.
        undo: it, once the collective is over.
    """

    after: float
    do: Callable[[], None]
    undo: Callable[[], None]


def begin(
    hosts: Hosts,
    function: Callable[[Host], None],
    *,
    meanwhile: Meanwhile | None = None,
    changed: contextlib.ExitStack | None = None,
) -> list[Span]:
    """Let all hosts carry out *function* at one moment; return when each began and ended.

    Raises:
        HostError: a host failed.
    """
    moment = time.monotonic() + _LEAD_SECONDS
    hosts.tell(_at, moment, function)
    if meanwhile is not None:
        time.sleep(max(0.0, moment + meanwhile.after - time.monotonic()))
        meanwhile.do()
        if changed is not None:
            changed.callback(meanwhile.undo)
    return hosts.answered(timeout=_SECONDS)


def _at(host: Host, moment: float, function: Callable[[Host], None]) -> Span:
    """Carry out *function* at *moment*; return when it began and ended."""
    time.sleep(max(0.0, moment - time.monotonic()))
    begun = time.monotonic()
    function(host)
    return begun, time.monotonic()


def duration(spans: Iterable[Span]) -> float:
    """Return the seconds from when the last host has begun until the last is done."""
    begun, ended = zip(*spans, strict=True)
    return float(max(ended) - max(begun))


def _prepare(host: Host, calls: tuple[Call, ...]) -> int:
    """Get ready for the one of *calls* in which this host takes part; return how many elements were wrong."""
    import torch

    from collectives.communicators.connection import connect

    host.kept.pop("call", None)
    everyone = tuple(range(host.num_hosts))
    for call in calls:
        members = call.members or everyone
        group = host.group(members)
        if host.rank not in members:
            continue
        key = f"{call.algorithm} {members} {call.collective} {call.timeout}"
        if key not in host.kept:
            host.kept[key] = connect(group, _choice(call), timeout=call.timeout)
        count = call.nbytes // ITEM_SIZE // num_parts(call.collective, len(members))
        place: Any = {"rank": members.index(host.rank), "world_size": len(members)}
        payload = Payload(call.collective, count, torch.float32, **place)
        wrong = payload.count_wrong(host.kept[key])
        payload.clear()
        host.kept["call"] = payload, host.kept[key]
        return wrong
    return 0


def _choice(call: Call) -> Any:
    return call.algorithm if call.algorithm == "native" else {call.collective: call.algorithm}


def _carry_out(host: Host) -> None:
    """Carry out what is prepared."""
    if "call" in host.kept:
        payload, communicator = host.kept["call"]
        payload.call(communicator)
