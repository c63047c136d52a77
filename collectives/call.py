"""Which collective a rank has called, and what the ranks' calls say about a failure.

Every call of a communicator has a sequence number and a fingerprint.  The fingerprint decides
the channel of its messages, so messages of calls that differ never meet: a mismatch cannot
corrupt data, it becomes a wait.  When a wait ends in failure, the ranks' reports, laid side by
side, name the culprit (`judge`).
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from collectives.errors import CollectiveError, CollectiveTimeoutError, MismatchError

NUM_RECENT = 16
"""How many calls a report names: enough to find where the ranks began to differ."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a collective: equal on all ranks, or the program is wrong."""

    sequence: int
    collective: str
    algorithm: str
    count: int
    dtype: str
    op: str = ""
    root: int | None = None

    def channel(self) -> int:
        """Return the channel of this call's messages: 30 bits, the same in every process."""
        return zlib.crc32(json.dumps(asdict(self)).encode()) & 0x3FFF_FFFF

    def __str__(self) -> str:
        details = [self.algorithm, f"{self.count} × {self.dtype}"]
        if self.op:
            details.append(self.op)
        if self.root is not None:
            details.append(f"root {self.root}")
        return f"{self.collective} #{self.sequence} ({', '.join(details)})"


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank was doing when a collective failed.

    Attributes:
        call: the collective that it was in.
        doing: where in it it stood, in words.
        recent: the last calls that it has made, which may be later than ``call``.
    """

    call: Call
    doing: str
    recent: tuple[Call, ...] = ()

    def calls(self) -> dict[int, Call]:
        """Return the calls that are known of this rank, by sequence number."""
        return {call.sequence: call for call in (*self.recent, self.call)}

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        recent = tuple(Call(**call) for call in fields["recent"])
        return Report(Call(**fields["call"]), fields["doing"], recent)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who is to blame for a failure, in words."""

    kind: type[CollectiveError]
    text: str


def judge(reports: Mapping[int, Report | None], gone: Collection[int] = ()) -> Verdict:
    """Return who is to blame, as far as the ranks' reports tell.

    Calls that differ are certain evidence, so the first of them comes first; then the ranks that
    gave no report; then, if all did, those that stand at an earlier call than others.

    Args:
        reports: of all ranks; ``None`` for a rank that gave none.
        gone: ranks that are known to be over, if any; they then are to blame.
    """
    given = {rank: report for rank, report in reports.items() if report is not None}
    silent = sorted(gone) or [rank for rank in reports if rank not in given]
    latest = max((report.call.sequence for report in given.values()), default=0)
    behind = [rank for rank, report in given.items() if report.call.sequence < latest]
    different = _first_difference(given)
    if different:
        no_report = f"; no report from {spell_ranks(silent)}" if silent else ""
        return Verdict(MismatchError, different + no_report)
    absent = silent or behind
    if absent:
        text = f"{spell_ranks(absent)} did not take part: killed, stalled, or never called it"
        return Verdict(CollectiveTimeoutError, text)
    return Verdict(CollectiveTimeoutError, "every rank called it, yet its messages did not arrive")


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
    """Return which ranks made which calls where the calls first differ, or nothing."""
    calls = {rank: report.calls() for rank, report in reports.items()}
    for sequence in sorted(set().union(*calls.values())):
        ranks = defaultdict(list)
        for rank, known in calls.items():
            if sequence in known:
                ranks[known[sequence]].append(rank)
        if len(ranks) > 1:
            usual = max(ranks, key=lambda call: len(ranks[call]))
            others = sorted(rank for call, callers in ranks.items() if call != usual for rank in callers)
            if len(ranks[usual]) > len(others):
                odd = calls[others[0]][sequence]
                return f"{spell_ranks(others)} called something else: {odd}, the others {usual}"
            return "the ranks called different things: " + ", ".join(
                f"{spell_ranks(callers)} {call}" for call, callers in ranks.items()
            )
    return ""


def spell_ranks(ranks: Collection[int]) -> str:
    """Return *ranks* in words, such as ``ranks 0, 2``."""
    return f"rank{'s' * (len(ranks) > 1)} " + ", ".join(map(str, sorted(ranks)))
