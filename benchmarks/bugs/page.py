"""Page of results: `docs/bugs.md`, and the verdicts that it is made of, which are kept in results.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from benchmarks.bugs.pairs import CLASSES, FOLDER, ROOT, Pair, all_pairs
from benchmarks.bugs.processes import ABORTS, ENDS, FAILS, HANGS, TIMEOUT_SECONDS
from benchmarks.bugs.verdict import Verdict
from collectives.formats.whole_file import write_whole

RESULTS = FOLDER / "results.json"
PAGE = ROOT / "docs" / "bugs.md"

TITLES = {"testbed": "testbed run", "gloo": "torch over Gloo", "detail": "the same with DETAIL"}

Results: TypeAlias = Mapping[str, Mapping[str, Verdict]]
"""Verdicts by tool and by the name of a pair."""

_HEAD = f"""\
# Bugs: what finds them

<!-- Written by `python -m benchmarks.bugs --with testbed,gloo,detail`; change benchmarks/bugs/. -->

{{count}} pairs of small torch scripts, one wrong and one right, that differ in a mistake. The classes are
those of the MPI Bugs Initiative (Laurent, Saillard and Quinson, "The MPI Bugs Initiative: a framework for
MPI verification tools evaluation", Correctness 2021), as far as torch.distributed has what they are about,
and those of data-parallel training. The docstring of each wrong script in
[benchmarks/bugs/wrong](../benchmarks/bugs/wrong), and in [examples/mistakes](../examples/mistakes), says
what a tool has to name: the rank at fault and the line.

- `testbed run`: simulated, in virtual time, in one process, with what the column *check* names turned on:
  `replicas` is `testbed run --check replicas`, `same` is `testbed same --ranks 1,2,4`, `orders` is
  `testbed run --orders all`, `races` is `testbed run --check races`. Scripts on `cuda` run with
  `--compute h100`.
- torch over Gloo: measured, as many processes of torch 2.13 for CPUs on one machine, over the loopback,
  ended as torchrun does when one has failed. The time-out of groups is {TIMEOUT_SECONDS} s; torch's own is
  half an hour. The scripts are short: a rank that is through ends and closes its connections, so others fail
  that would hang for as long as it lived.
- DETAIL: the same with `TORCH_DISTRIBUTED_DEBUG=DETAIL`. Both leave out scripts on `cuda`, as they have none.

A tool *finds* a mistake if it says of the wrong script that something is wrong; with torch, that is any
error, be it a time-out's. A *false alarm* is that it says so of the right one. It *names the rank* if it
names ranks at fault and no others with them; of torch that is also the rank that fails first, which
torchrun tells. It *names the line* if that is in what it says, as in a traceback. Where all ranks are at
fault there is no rank to name.

The pairs were written first, and those who wrote them then wrote checks for what was missed: `testbed run`
with `--check replicas` had found 69 of the first 100. So the table says that nothing of this list is missed,
and not which share of all mistakes is found. Races on a GPU came last, and their pairs after their check.
"""

_ON_DETAIL = """\
In torch 2.13 for CPUs, the construction of torch's `DistributedDataParallel` is killed by SIGSEGV under
DETAIL over Gloo (`_ddp_init_helper` of torch/nn/parallel/distributed.py), in right scripts as in wrong
ones, with our package loaded or not. All its false alarms here are that.
"""


def write_results(verdicts: Results) -> None:
    """Add *verdicts* to those that are kept, and write the page."""
    kept = {tool: dict(own) for tool, own in read_results().items()}
    for tool, own in verdicts.items():
        kept.setdefault(tool, {}).update(own)
    names = [pair.name for pair in all_pairs()]
    document = {
        tool: {name: kept[tool][name].to_json() for name in names if name in kept[tool]}
        for tool in TITLES
        if tool in kept
    }
    write_whole(RESULTS, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    write_whole(PAGE, page(read_results()))


def read_results() -> dict[str, dict[str, Verdict]]:
    """Return the verdicts that are kept."""
    if not RESULTS.exists():
        return {}
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {
        tool: {name: Verdict(**verdict) for name, verdict in own.items()} for tool, own in document.items()
    }


def page(results: Results) -> str:
    """Return the text of the page."""
    pairs = all_pairs()
    lines = [_HEAD.format(count=len(pairs)), *_summary(results), "", _ON_DETAIL]
    for kind, meaning in CLASSES.items():
        own = [pair for pair in pairs if pair.kind == kind]
        lines += [f"## {kind.capitalize()}", f"{meaning.capitalize()}.", "", *_table(own, results), ""]
    return "\n".join(lines).rstrip() + "\n"


def _summary(results: Results) -> Iterator[str]:
    """Yield the table of what each tool finds in all."""
    columns = ("", "found", "false alarms", "goes through", "hangs", "fails", "aborts", "names rank", "line")
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for tool, own in results.items():
        verdicts = list(own.values())
        endings = Counter(one.ending for one in verdicts)
        shown = (ENDS, HANGS, FAILS, ABORTS) if tool != "testbed" else ()
        yield (
            f"| {TITLES[tool]} | {sum(one.hit for one in verdicts)} of {len(verdicts)} "
            f"| {sum(one.false_alarm for one in verdicts)} | "
            + " | ".join([str(endings[ending]) for ending in shown] or ["–"] * 4)
            + f" | {_share([one.names_rank for one in verdicts])} "
            f"| {_share([one.names_line for one in verdicts])} |"
        )


def _share(named: Sequence[bool | None]) -> str:
    asked = [one for one in named if one is not None]
    return f"{sum(asked)} of {len(asked)}"


def _table(pairs: Sequence[Pair], results: Results) -> Iterator[str]:
    """Yield the table of one class."""
    yield f"| mistake | check | {' | '.join(TITLES[tool] for tool in results)} |"
    yield f"|---|---|{'---|' * len(results)}"
    for pair in pairs:
        cells = [_cell(tool, own[pair.name]) if pair.name in own else "–" for tool, own in results.items()]
        says = pair.says.replace("|", "\\|")
        yield f"| {_link(pair)}: {says} | {pair.check} | {' | '.join(cells)} |"


def _link(pair: Pair) -> str:
    return f"[{pair.name}](../{pair.wrong.relative_to(ROOT)})"


def _cell(tool: str, verdict: Verdict) -> str:
    """Return what a tool makes of a pair, in words."""
    if tool == "testbed":
        ending = "found" if verdict.hit else "not found"
    else:
        ending = "goes through" if verdict.ending == ENDS else verdict.ending
    named = [
        what for what, is_named in (("rank", verdict.names_rank), ("line", verdict.names_line)) if is_named
    ]
    alarm = "; the right one too" if verdict.false_alarm else ""
    return f"{ending}{': ' if named and verdict.hit else ''}{', '.join(named) if verdict.hit else ''}{alarm}"
