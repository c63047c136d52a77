"""Command line of the benchmark; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.bugs.page import RESULTS, write_results
from benchmarks.bugs.pairs import Pair, chosen_pairs
from benchmarks.bugs.processes import Processes
from benchmarks.bugs.verdict import Verdict
from benchmarks.bugs.virtual import verdict_of_testbed
from testbed.errors import UsageError
from testbed.output.table import progress

TOOLS = ("testbed", "gloo", "detail")
"""``testbed run``, torch over Gloo, and the same with TORCH_DISTRIBUTED_DEBUG=DETAIL."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs, print the table, and return 1 if a mistake is missed or a right script suspected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bugs", description=__doc__)
    parser.add_argument("--only", metavar="NAME,…", help="these pairs")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    parser.add_argument(
        "--with",
        dest="tools",
        metavar="TOOL,…",
        help=f"what runs the pairs, of {', '.join(TOOLS)}; writes {RESULTS.name} and docs/bugs.md",
    )
    options = parser.parse_args(arguments)

    try:
        pairs = chosen_pairs(options.only)
        tools = _tools(options.tools)
    except UsageError as error:
        print(f"benchmarks.bugs: error: {error}", file=sys.stderr)
        return 2
    verdicts = _verdicts(pairs, tools)

    if options.tools is not None:
        write_results(verdicts)
    if options.json:
        found = {tool: {name: one.to_json() for name, one in own.items()} for tool, own in verdicts.items()}
        print(json.dumps(found, ensure_ascii=False))
    else:
        for tool, own in verdicts.items():
            print(f"{tool}\n")
            print_table(pairs, own)
    ours = verdicts.get("testbed", {}).values()
    return int(any(one.false_alarm or not one.hit for one in ours))


def _tools(text: str | None) -> tuple[str, ...]:
    """Return the tools named in *text*, divided by commas; None: testbed.

    Raises:
        UsageError: there is no such tool.
    """
    tools = ("testbed",) if text is None else tuple(name.strip() for name in text.split(","))
    unknown = set(tools) - set(TOOLS)
    if unknown:
        raise UsageError(f"--with: there are {', '.join(TOOLS)}, got {', '.join(sorted(unknown))}")
    return tools


def _verdicts(pairs: Sequence[Pair], tools: Sequence[str]) -> dict[str, dict[str, Verdict]]:
    """Return the verdicts on each of *tools*, by pair; the processes are started before a thread is."""
    verdicts: dict[str, dict[str, Verdict]] = {}
    with ExitStack() as stack, progress(len(pairs) * len(tools)) as advance:
        processes = stack.enter_context(Processes()) if set(tools) - {"testbed"} else None
        for tool in tools:
            judge = _judge(tool, processes)
            for pair in pairs:
                advance(f"{tool}: {pair.name}")
                if tool == "testbed" or not pair.needs_gpus:
                    verdicts.setdefault(tool, {})[pair.name] = judge(pair)
    return verdicts


def _judge(tool: str, processes: Processes | None) -> Callable[[Pair], Verdict]:
    if processes is None or tool == "testbed":
        return verdict_of_testbed
    debug = "DETAIL" if tool == "detail" else "OFF"
    return lambda pair: processes.verdict(pair, debug)


def print_table(pairs: Sequence[Pair], verdicts: dict[str, Verdict]) -> None:
    """Print a row for each pair, and a last one that counts."""
    print(f"{'pair':28} {'class':26} hit  false alarm  rank  line  says")
    for pair in pairs:
        if pair.name not in verdicts:
            continue
        one = verdicts[pair.name]
        print(
            f"{pair.name:28} {pair.kind:26} {_mark(one.hit):4} {_mark(one.false_alarm):12} "
            f"{_mark(one.names_rank):5} {_mark(one.names_line):5} {one.says[:100]}"
        )
    print(f"\n{summary(list(verdicts.values()))}")


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return how many mistakes are found, in words."""
    hits = sum(one.hit for one in verdicts)
    alarms = sum(one.false_alarm for one in verdicts)
    ranks = [one.names_rank for one in verdicts if one.names_rank is not None]
    lines = [one.names_line for one in verdicts if one.names_line is not None]
    return (
        f"{hits} of {len(verdicts)} mistakes found, {alarms} false alarms; the rank named in {sum(ranks)} of "
        f"{len(ranks)}, the line in {sum(lines)} of {len(lines)}"
    )


def _mark(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "–"}[value]


if __name__ == "__main__":
    sys.exit(main())
