"""Report of a fuzzing campaign, on a terminal and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from testbed.fuzzing.campaign import Judged, Tally
from testbed.fuzzing.subjects import Shrunk
from testbed.output.table import counted

_MEANING = {
    "finished": "ended as without faults",
    "RankError": "ended in an error on a rank",
    "DeadlockError": "ended in a verdict on who waits for whom",
    "LinkFailedError": "ended with the messages named that were lost with a link",
    "waits for the dead": "ended with ranks that wait for one that was killed",
    "refused": "declined by the script or the program",
}


def print_tally(console: Console, tally: Tally, what: str) -> None:
    """Print how many runs ended how."""
    console.print(
        f"{counted(tally.runs, 'run')} of {what} in {tally.seconds:.1f} s, {tally.rate:.1f} per second",
        markup=False,
        soft_wrap=True,
    )
    for ended, number in tally.endings.most_common():
        console.print(f"  {number:>9} {_MEANING.get(ended, 'ended in ' + ended)}", markup=False)
    for reason in tally.refusals:
        console.print(f"            {reason.splitlines()[0]}", markup=False, soft_wrap=True)
    for seeds in tally.lost:
        console.print(f"  not judged: {seeds}", style="bold red", markup=False, soft_wrap=True)
    if tally.stopped:
        console.print(f"Stopped: {tally.stopped}.", markup=False, soft_wrap=True)
    verdict = counted(len(tally.violated), "violation") if tally.violated else "0 violations"
    if not tally.checked:
        verdict = "Nothing was checked."
    console.print(verdict, style="bold red" if tally.violated or not tally.checked else "green")


def print_violation(console: Console, judged: Judged) -> None:
    """Print what is wrong with one run, and how it is repeated."""
    console.print(f"\nseed {judged.draw.seed}:", style="bold", markup=False)
    for oracle, wrong in judged.violations.items():
        console.print(f"  {oracle}: {wrong}", markup=False, soft_wrap=True)
    for name, value in judged.draw.to_json().items():
        if name == "faults":
            for fault in value:
                console.print(f"  fault        {fault}", markup=False, soft_wrap=True)
        elif name != "seed" and value is not None:
            console.print(f"  {name:<12} {value}", markup=False, soft_wrap=True)


def print_shrunk(console: Console, shrunk: Shrunk) -> None:
    """Print the smallest violation as a test."""
    console.print(f"\nseed {shrunk.judged.draw.seed}, made as small as it stays wrong, for pytest:")
    console.print(f"\n{shrunk.test}", markup=False, soft_wrap=True, end="")


def tally_json(tally: Tally) -> dict[str, Any]:
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
