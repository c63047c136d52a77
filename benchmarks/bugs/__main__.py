"""Command line of the benchmark; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks.bugs.pairs import Pair, chosen_pairs
from benchmarks.bugs.verdict import Verdict
from benchmarks.bugs.virtual import verdict_of_testbed
from testbed.errors import UsageError
from testbed.output.table import progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs, print the table, and return 1 if a mistake is missed or a right script suspected."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bugs", description=__doc__)
    parser.add_argument("--only", metavar="NAME,…", help="these pairs")
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON")
    options = parser.parse_args(arguments)

    try:
        pairs = chosen_pairs(options.only)
    except UsageError as error:
        print(f"benchmarks.bugs: error: {error}", file=sys.stderr)
        return 2
    verdicts = {}
    with progress(len(pairs)) as advance:
        for pair in pairs:
            advance(pair.name)
            verdicts[pair.name] = verdict_of_testbed(pair)

    if options.json:
        print(json.dumps({name: verdict.to_json() for name, verdict in verdicts.items()}, indent=2))
    else:
        print_table(pairs, verdicts)
    return int(any(one.false_alarm or not one.hit for one in verdicts.values()))


def print_table(pairs: Sequence[Pair], verdicts: dict[str, Verdict]) -> None:
    """Print a row for each pair, and a last one that counts."""
    print(f"{'pair':28} {'class':26} hit  false alarm  rank  line  says")
    for pair in pairs:
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
