"""Result of a fuzzing campaign: how many runs ended how, what was wrong, and the smallest test of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from testbed.fuzzing.campaign import Judged, Tally
from testbed.output.table import counted
from testbed.result import Part, Result, Rows, Text, asked, found, warning

MODEL = (
    "a run for each seed, with what it draws, in virtual time, beside the same run without faults; "
    "computation takes no time unless --compute says so"
)

COLUMNS = (*asked("ended"), *found("runs", "meaning"))

_MEANING = {
    "finished": "ended as without faults",
    "RankError": "ended in an error on a rank",
    "DeadlockError": "ended in a verdict on who waits for whom",
    "LinkFailedError": "ended with the messages named that were lost with a link",
    "waits for the dead": "ended with ranks that wait for one that was killed",
    "refused": "declined by the script or the program",
}


def fuzzing_result(what: str, tally: Tally, smallest: Judged | None) -> Result:
    """Return what came of a campaign.

    Args:
        what: the script or the programs.
        tally: what came of its runs.
        smallest: the first violation, made as small as it stays wrong.
    """
    rows = ((ended, number, _meaning(ended)) for ended, number in tally.endings.most_common())
    return Result(
        question=f"What goes wrong with {what} under faults and orders of events that are drawn from seeds?",
        answer=_answer(tally),
        method="simulated",
        model=MODEL,
        rows=Rows.of(COLUMNS, rows),
        asked=("what",),
        body={"what": what, **_as_json(tally), "smallest": None if smallest is None else smallest.to_json()},
        parts=[
            *_tally_parts(what, tally),
            *map(_violation, tally.violated),
            *([] if smallest is None else _shrunk(smallest)),
        ],
        failure="" if tally.exit_code else None,
    )


def _answer(tally: Tally) -> str:
    """Return in a sentence what came of a campaign."""
    if not tally.checked:
        return "Nothing was checked."
    runs = counted(tally.checked, "run")
    lost = ", and some seeds were not judged" if tally.lost else ""
    if tally.violated:
        seeds = ", ".join(str(judged.draw.seed) for judged in tally.violated)
        return f"{counted(len(tally.violated), 'violation')} in {runs}, of seeds {seeds}{lost}."
    return f"Nothing goes wrong in {runs}{lost}."


def _tally_parts(what: str, tally: Tally) -> Iterator[Part]:
    """Yield how many runs ended how."""
    lines = [f"{counted(tally.runs, 'run')} of {what} in {tally.seconds:.1f} s, {tally.rate:.1f} per second"]
    lines += [f"  {number:>9} {_meaning(ended)}" for ended, number in tally.endings.most_common()]
    lines += [f"            {reason.splitlines()[0]}" for reason in tally.refusals]
    yield Text(lines)
    yield warning(*(f"  not judged: {seeds}" for seeds in tally.lost), gap=False)
    if tally.stopped:
        yield Text([f"Stopped: {tally.stopped}."], gap=False)
    if not tally.checked:
        yield warning("Nothing was checked.", gap=False)
    elif tally.violated:
        yield warning(counted(len(tally.violated), "violation"), gap=False)
    else:
        yield Text(["0 violations"], gap=False)


def _meaning(ended: str) -> str:
    return _MEANING.get(ended, f"ended in {ended}")


def _violation(judged: Judged) -> Text:
    """Return what is wrong with one run, and how it is repeated."""
    lines = [f"  {oracle}: {wrong}" for oracle, wrong in judged.violations.items()]
    for name, value in judged.draw.to_json().items():
        if name == "faults":
            lines += [f"  fault        {fault}" for fault in value]
        elif name != "seed" and value is not None:
            lines.append(f"  {name:<12} {value}")
    return Text(lines, title=f"seed {judged.draw.seed}:")


def _shrunk(smallest: Judged) -> Iterator[Part]:
    """Yield the smallest violation as a test."""
    yield Text([f"seed {smallest.draw.seed}, made as small as it stays wrong, for pytest:"])
    yield Text([smallest.test.removesuffix("\n")])


def _as_json(tally: Tally) -> dict[str, Any]:
    """Return the tally as JSON types."""
    return {
        "runs": tally.runs,
        "checked": tally.checked,
        "seconds": tally.seconds,
        "runs_per_second": tally.rate,
        "endings": dict(tally.endings),
        "refusals": list(tally.refusals),
        "lost": tally.lost,
        "stopped": tally.stopped or None,
        "violations": [judged.to_json() for judged in tally.violated],
    }
