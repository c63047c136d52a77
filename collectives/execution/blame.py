"""Desync report: what the ranks' reports, laid side by side, say about a failure, and whose fault it is.

PyTorch calls a failure in which the ranks have not made the same calls a desync.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from collectives.errors import CollectiveError, CollectiveTimeoutError, MismatchError
from collectives.execution.call import Call, Lane


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of the call that a rank was in, which are numbered from 1 for each pair of ranks.

    Attributes:
        sent: by receiver, how many it has sent.
        awaited: by sender, the number of the first that it waits for.
    """

    sent: Mapping[int, int] = field(default_factory=dict)
    awaited: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank was doing when a collective failed.

    Attributes:
        call: the call that it was in.
        doing: where in it it stood, in words.
        recent: the last calls that it has made, which may be later than ``call``.
        messages: of that call, as far as the transport knows them.
    """

    call: Call
    doing: str
    recent: tuple[Call, ...] = ()
    messages: Messages = Messages()

    def at(self, places: Sequence[int]) -> Report:
        """Return this report with the ranks of its calls numbered as *places* says, by rank."""
        sent, awaited = (
            {places[peer]: number for peer, number in of_peers.items()}
            for of_peers in (self.messages.sent, self.messages.awaited)
        )
        recent = tuple(call.at(places) for call in self.recent)
        return replace(self, call=self.call.at(places), recent=recent, messages=Messages(sent, awaited))

    def calls(self, lane: Lane = None) -> dict[int, Call]:
        """Return the calls in *lane* that are known of this rank, by sequence number."""
        return {call.sequence: call for call in (*self.recent, self.call) if call.lane == lane}

    def reached(self, lane: Lane) -> int:
        """Return the number in *lane* of the call that the rank was in, else of its last; -1 for none."""
        return self.call.sequence if self.call.lane == lane else max(self.calls(lane), default=-1)

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        recent = tuple(Call.from_fields(call) for call in fields["recent"])
        messages = {
            name: {int(peer): number for peer, number in of_peers.items()}
            for name, of_peers in fields["messages"].items()
        }
        return Report(Call.from_fields(fields["call"]), fields["doing"], recent, Messages(**messages))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who is to blame for a failure, in words."""

    kind: type[CollectiveError]
    text: str


def judge(reports: Mapping[int, Report | None], gone: Mapping[int, str] | None = None) -> Verdict:
    """Return who is to blame, as far as the ranks' reports tell.

    Calls that differ are certain evidence, so the first of them comes first; then the ranks that
    gave no report; then, if all did, messages that were sent and have not arrived; then ranks that
    stand at an earlier call than others.  A message concerns only its two ranks.

    Args:
        reports: of all ranks; ``None`` for a rank that gave none.
        gone: ranks that are known not to be waiting in these calls, if any, with what became of each in
            words or nothing; they then are to blame.
    """
    gone = gone or {}
    given = {rank: report for rank, report in reports.items() if report is not None}
    waited_in = {report.call.lane for rank, report in given.items() if rank not in gone}
    concerned = {rank for lane in waited_in for rank in _ranks_of(lane, reports)}
    silent = sorted(concerned & gone.keys()) or [
        rank for rank in reports if rank in concerned and rank not in given
    ]
    different = _first_difference(given)
    if different:
        no_report = f"; no report from {spell_ranks(silent)}" if silent else ""
        return Verdict(MismatchError, different + no_report)
    if silent:
        fates = dict.fromkeys(gone[rank] for rank in silent if gone.get(rank))
        why = f": {'; '.join(fates)}" if fates else _WHY
        return Verdict(CollectiveTimeoutError, f"{spell_ranks(silent)} did not take part{why}")
    lost = _lost(given)
    if lost:
        return Verdict(CollectiveTimeoutError, _spell_lost(lost))
    behind = [_ranks_behind(lane, given) for lane in _in_order(waited_in)]
    if any(behind):
        return Verdict(CollectiveTimeoutError, "; ".join(filter(None, behind)))
    return Verdict(CollectiveTimeoutError, "every rank called it, yet its messages did not arrive")


_WHY = ": killed, stalled, or never called it"


def _in_order(lanes: Collection[Lane]) -> list[Lane]:
    """Return *lanes* with those of messages first, as a rank that waits in one calls no collective."""
    return sorted(lanes, key=lambda lane: (lane is None, lane or ()))


def _ranks_of(lane: Lane, ranks: Collection[int]) -> Collection[int]:
    """Return which of all *ranks* take part in the calls of *lane*."""
    return ranks if lane is None else lane[:2]


def _ranks_behind(lane: Lane, reports: Mapping[int, Report]) -> str:
    """Return which ranks stand at an earlier call of *lane* than others, in words, or nothing."""
    reached = {rank: reports[rank].reached(lane) for rank in _ranks_of(lane, reports)}
    latest = max(reached, key=lambda rank: reached[rank])
    behind = [rank for rank in reached if reached[rank] < reached[latest]]
    if not behind:
        return ""
    what = "" if lane is None else f" in {reports[latest].calls(lane)[reached[latest]]}"
    return f"{spell_ranks(behind)} did not take part{what}{_WHY}"


def _lost(reports: Mapping[int, Report]) -> list[tuple[int, int]]:
    """Return the pairs of ranks of which one has sent in a collective what the other still waits for."""
    return [
        (sender, receiver)
        for receiver, report in reports.items()
        for sender, number in report.messages.awaited.items()
        if report.call.lane is None
        and sender in reports
        and _has_sent(reports[sender], receiver, number, report)
    ]


def _has_sent(sender: Report, receiver: int, number: int, waiting: Report) -> bool:
    """Return whether *sender* has sent message *number* of the call that its *receiver* is *waiting* in."""
    reached = sender.reached(None)
    if sender.call.lane is None and reached == waiting.call.sequence:
        return sender.messages.sent.get(receiver, 0) >= number
    return reached > waiting.call.sequence


def _spell_lost(pairs: Sequence[tuple[int, int]]) -> str:
    """Return in words that messages between *pairs*, from the first to the second, were lost, and where."""
    shown = ", ".join(f"from rank {sender} to rank {receiver}" for sender, receiver in pairs[:_MANY])
    more = f" and {len(pairs) - _MANY} more" if len(pairs) > _MANY else ""
    common = set.intersection(*(set(pair) for pair in pairs))
    whose = f"the network of rank {min(common)}" if len(common) == 1 else "the network between them"
    return f"messages were sent and did not arrive, {shown}{more}: look at {whose}"


def diagnose(
    rank: int, own: Report, reports: Mapping[int, Report | None], cause: str, verdict: Verdict
) -> CollectiveError:
    """Return the error that *rank* raises: who is to blame, and what each rank was doing.

    Args:
        rank: the rank that raises.
        own: its own report.
        reports: those of all ranks; ``None`` for a rank that gave none.
        cause: how the failure showed, for example ``timed out after 30 s``.
        verdict: who is to blame; see `judge`.
    """
    lines = [f"rank {rank}: {own.call} {cause}; {verdict.text}"]
    for other, report in sorted(reports.items()):
        lines.append(f"  rank {other}: " + (f"in {report.call}, {report.doing}" if report else "no report"))
    return verdict.kind("\n".join(lines))


def raise_again(failure: CollectiveError | None) -> None:
    """Raise, if there is one, the *failure* of an earlier collective on behalf of one that follows."""
    if failure is not None:
        raise type(failure)(f"an earlier collective of this group has failed: {failure}")


def _first_difference(reports: Mapping[int, Report]) -> str:
    """Return which ranks made which calls where the calls of a lane first differ, or nothing."""
    lanes = {call.lane for report in reports.values() for call in (*report.recent, report.call)}
    for lane in _in_order(lanes):
        calls = {rank: reports[rank].calls(lane) for rank in _ranks_of(lane, reports) if rank in reports}
        for sequence in sorted(set().union(*calls.values())):
            different = _difference(
                {rank: known[sequence] for rank, known in calls.items() if sequence in known}
            )
            if different:
                return different
    return ""


def _difference(calls: Mapping[int, Call]) -> str:
    """Return which ranks made which *calls* of one number, or nothing if they are equal."""
    ranks = defaultdict(list)
    for rank, call in calls.items():
        ranks[call].append(rank)
    if len(ranks) < 2:
        return ""
    usual = max(ranks, key=lambda call: len(ranks[call]))
    others = sorted(rank for call, callers in ranks.items() if call != usual for rank in callers)
    if len(ranks[usual]) > len(others):
        return f"{spell_ranks(others)} called something else: {calls[others[0]]}, the others {usual}"
    return "the ranks called different things: " + ", ".join(
        f"{spell_ranks(callers)} {call}" for call, callers in ranks.items()
    )


K = TypeVar("K")


def ranks_by(kinds: Mapping[int, K]) -> dict[K, list[int]]:
    """Return the ranks of each kind, given that of each rank."""
    ranks: dict[K, list[int]] = {}
    for rank, kind in kinds.items():
        ranks.setdefault(kind, []).append(rank)
    return ranks


def spell_ranks(ranks: Collection[int]) -> str:
    """Return *ranks* in words, such as ``ranks 0, 2``; of many, those in a row as ``0-62``."""
    if len(ranks) <= _MANY:
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, sorted(ranks)))
    rows: list[list[int]] = []
    for rank in sorted(ranks):
        if rows and rank == rows[-1][-1] + 1:
            rows[-1].append(rank)
        else:
            rows.append([rank])
    return "ranks " + ", ".join(f"{row[0]}-{row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)


_MANY = 8
