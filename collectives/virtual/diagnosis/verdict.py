"""Verdict on a run that goes no further: who waits where in the user's code, and for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from collectives.execution.blame import ranks_by, spell_ranks
from collectives.execution.call import Call
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.virtual.diagnosis.places import place_of
from collectives.virtual.iterations import Iterations
from collectives.virtual.notices import Notices
from collectives.virtual.time_outs import Pauses
from collectives.virtual.world import VirtualWorld
from sim.cluster import Cluster, RankThread
from sim.units import format_time


class Diagnosis:
    """What can be said of the ranks of a cluster beyond what the cluster knows."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def attach(self) -> None:
        """Let the cluster say it in its errors."""
        self.cluster.remark = self.remark
        self.cluster.where = lambda: list(self.places())
        self.cluster.explain = lambda: [*self.verdicts(), *self.mistakes()]

    def remark(self, rank_thread: RankThread) -> str:
        """Return in which iteration a rank is, once some rank has finished one, and its latest long pause."""
        finished = Iterations.of(self.cluster).finished
        iteration = f", in iteration {finished[rank_thread.rank]}" if any(finished) else ""
        return iteration + Pauses.of(self.cluster).remark(rank_thread.rank)

    def places(self) -> Iterator[str]:
        """Yield which ranks wait at which line of the user's code."""
        ranks_at = ranks_by({own.rank: place_of(own) for own in self.cluster.ranks if not own.has_finished})
        ranks_at.pop("", None)
        for place, ranks in ranks_at.items():
            yield f"{spell_ranks(ranks)} at {place}"

    def verdicts(self) -> Iterator[str]:
        """Yield, for every group in which ranks wait, whom they wait for in vain, and why."""
        world = VirtualWorld.of(self.cluster)
        world.group_calls.note_waiting()
        meeting_points = world.meeting_points
        waiting = {
            key: meeting_point for key, meeting_point in meeting_points.items() if meeting_point.waiting
        }
        in_messages = _in_messages(waiting.values())
        wrong = judge_messages(in_messages)
        if wrong:
            yield wrong
        groups: defaultdict[Hashable, list[MeetingPoint]] = defaultdict(list)
        for meeting_point in waiting.values():
            if not wrong or any(call.lane is None for call in meeting_point.waiting.values()):
                groups[tuple(meeting_point.hosts)].append(meeting_point)
        for alike in groups.values():
            if len(alike) > 1:
                yield _of_other_names(alike)
            else:
                yield alike[0].verdict(self.fate)

    def mistakes(self) -> Iterator[str]:
        """Yield what else has been found wrong, which may have led there."""
        for text in Notices.of(self.cluster).mistakes:
            yield f"note: {text}"

    def fate(self, rank: int) -> str:
        """Return what became of a rank that does not wait where others wait for it."""
        rank_thread = self.cluster.thread_of(rank)
        if rank_thread is None:
            return "does as another rank"
        if rank_thread.is_dead:
            return f"killed at {format_time(rank_thread.now_ps())}"
        if rank_thread.has_finished:
            return f"finished at {format_time(rank_thread.now_ps())}, without calling it"
        return "waits for something else"


def _in_messages(meeting_points: Iterable[MeetingPoint]) -> dict[int, Call]:
    """Return the messages that ranks wait in, by rank, with the ranks' numbers in the run."""
    return {
        meeting_point.hosts[rank]: call.at(meeting_point.hosts)
        for meeting_point in meeting_points
        for rank, call in meeting_point.waiting.items()
        if call.lane is not None
    }


def _of_other_names(meeting_points: Sequence[MeetingPoint]) -> str:
    """Return what is wrong where the same ranks wait in several groups, each of them all."""
    parts = [
        f"{spell_ranks([one.hosts[rank] for rank in one.waiting])} in {next(iter(one.waiting.values()))}"
        for one in meeting_points
    ]
    return (
        f"{'; '.join(parts)}: in different groups of the same ranks; every rank must make and use the same "
        "groups in the same order, and make those, too, that it is not in"
    )


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
