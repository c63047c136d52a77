"""Ranks that wait for each other's messages, where no rank is missing: what is wrong then, in words."""

from __future__ import annotations

from collections.abc import Mapping

from collectives.execution.call import Call


def judge_messages(waiting: Mapping[int, Call]) -> str:
    """Return what is wrong with the messages that ranks wait in, or nothing if it is something else.

    Args:
        waiting: by rank, the message that it waits in, as sender or receiver.
    """
    return _different_tags(waiting) or _circle(waiting)


def _different_tags(waiting: Mapping[int, Call]) -> str:
    for rank, call in waiting.items():
        if call.lane is not None and call.lane[0] == rank:
            source, destination, tag = call.lane
            received = waiting.get(destination)
            if (
                received is not None
                and received.lane is not None
                and received.lane[:2] == (source, destination)
                and received.lane[2] != tag
            ):
                return (
                    f"rank {source} sends to rank {destination} under tag {tag}, which receives from it "
                    f"under tag {received.lane[2]}; both must give the same tag"
                )
    return ""


def _circle(waiting: Mapping[int, Call]) -> str:
    """Return in words the circle of ranks each of which waits for the next, if there is one."""
    for first in waiting:
        chain = [first]
        while (after := _awaited_by(chain[-1], waiting)) is not None and after not in chain:
            chain.append(after)
        if after == first:
            links = ", ".join(
                f"rank {rank} {_doing(rank, waiting[rank])} rank {_awaited_by(rank, waiting)}"
                for rank in chain
            )
            return (
                f"ranks wait for each other in a circle: {links}; let one of them do the opposite first, "
                "or use batch_isend_irecv"
            )
    return ""


def _awaited_by(rank: int, waiting: Mapping[int, Call]) -> int | None:
    call = waiting.get(rank)
    if call is None or call.lane is None:
        return None
    source, destination, _ = call.lane
    return destination if rank == source else source


def _doing(rank: int, call: Call) -> str:
    return "sends to" if call.lane is not None and call.lane[0] == rank else "receives from"
