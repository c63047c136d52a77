"""Timing of collectives on a shaped network: all hosts begin at one moment of their machine's clock.

The clock of all hosts is that of the machine, so nothing has to travel for them to begin together, and the
time of a collective is that from the moment named until its last host is done, as it is in a simulation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.bench.payload import Payload, num_parts
from testbed.truth.shaped.hosts import HostError, Hosts

if TYPE_CHECKING:
    from testbed.truth.shaped.host import Host

ITEM_SIZE = 4
"""Bytes of an element: float32."""
_LEAD_SECONDS = 3e-3
"""How long before its moment a collective is announced."""
_PREPARE_SECONDS = 120.0


@dataclass(frozen=True)
class Call:
    """One collective of some hosts.

    Attributes:
        collective: its name.
        algorithm: ``native`` or the name of one of ours.
        nbytes: size of the buffer, as nccl-tests counts it; a multiple of what `fitting` returns.
        members: the hosts that take part; empty: all.
    """

    collective: str
    algorithm: str
    nbytes: int
    members: tuple[int, ...] = ()


def fitting(nbytes: int, collective: str, world_size: int) -> int:
    """Return the largest size up to *nbytes* of which each part has whole elements."""
    unit = ITEM_SIZE * num_parts(collective, world_size)
    return max(1, nbytes // unit) * unit


def time_calls(
    hosts: Hosts, calls: Sequence[Call], *, repetitions: int, timeout: float = 60.0
) -> list[list[float]]:
    """Return the seconds that each of *calls* took in each repetition; all begin together.

    Each is carried out once before, on numbers that are checked.

    Raises:
        HostError: a host failed, or an element came out wrong.
    """
    members = [call.members or tuple(range(len(hosts))) for call in calls]
    wrong = sum(hosts.ask(_prepare, tuple(calls), timeout=_PREPARE_SECONDS))
    if wrong:
        names = ", ".join(f"{call.collective} {call.algorithm}" for call in calls)
        raise HostError(f"{names}: {wrong} elements came out wrong")
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(repetitions):
        moment = time.monotonic() + _LEAD_SECONDS
        ends = hosts.ask(_carry_out, moment, timeout=timeout)
        for seconds, own in zip(taken, members, strict=True):
            seconds.append(max(ends[host] for host in own) - moment)
    return taken


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
        key = f"{call.algorithm} {members} {call.collective}"
        if key not in host.kept:
            host.kept[key] = connect(group, _choice(call))
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


def _carry_out(host: Host, moment: float) -> float:
    """Carry out what is prepared at *moment*; return when it was done."""
    if "call" not in host.kept:
        return moment
    payload, communicator = host.kept["call"]
    time.sleep(max(0.0, moment - time.monotonic()))
    payload.call(communicator)
    return time.monotonic()
