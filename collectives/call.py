"""Which collective a rank has called, and what the ranks' calls say about a failure.

Every call of a communicator has a sequence number and a fingerprint.  The fingerprint decides
the channel of its messages, so messages of calls that differ never meet: a mismatch cannot
corrupt data, it becomes a wait.  When a wait ends in failure, the ranks' reports, laid side by
side, name the culprit (`diagnose`).
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from collectives.errors import CollectiveError, CollectiveTimeoutError, MismatchError


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
    """What one rank was doing when a collective failed: its call, and where in it it stood."""

    call: Call
    doing: str

    def to_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({"call": asdict(self.call), "doing": self.doing})

    @staticmethod
    def from_json(text: str) -> Report:
        """Return the report that `to_json` wrote."""
        fields = json.loads(text)
        return Report(Call(**fields["call"]), fields["doing"])


def diagnose(
    rank: int,
    own: Report,
    reports: Mapping[int, Report | None],
    cause: str,
    gone: Collection[int] = (),
) -> CollectiveError:
    """Return the error that *rank* raises: who is to blame, and what each rank was doing.

    Args:
        rank: the rank that raises.
        own: its own report.
        reports: those of all ranks; ``None`` for a rank that gave none.
        cause: how the failure showed, for example ``timed out after 30 s``.
        gone: ranks that are known to be over, if any; they then are to blame.
    """
    calls = {other: report.call for other, report in reports.items() if report is not None}
    latest = max(call.sequence for call in [own.call, *calls.values()])
    current = Counter(call for call in calls.values() if call.sequence == latest)
    usual = current.most_common(1)[0][0] if current else own.call
    different = [other for other, call in calls.items() if call.sequence == latest and call != usual]
    absent = list(gone) or [
        other for other in reports if other not in calls or calls[other].sequence < latest
    ]
    kind: type[CollectiveError] = CollectiveTimeoutError
    if absent:
        verdict = f"{_ranks(absent)} did not take part: killed, stalled, or never called it"
    elif different:
        kind = MismatchError
        verdict = f"{_ranks(different)} called something else"
    else:
        verdict = "every rank called it, yet its messages did not arrive"
    lines = [f"rank {rank}: {own.call} {cause}; {verdict}"]
    for other, report in sorted(reports.items()):
        lines.append(f"  rank {other}: " + (f"in {report.call}, {report.doing}" if report else "no report"))
    return kind("\n".join(lines))


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} " + ", ".join(map(str, sorted(ranks)))
