"""``testbed fuzz``: runs drawn from seeds, with faults, and judged by oracles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError, reporting_errors
from testbed.options.arguments import parse_ranks
from testbed.options.groups import grouped
from testbed.output.folder import document
from testbed.output.table import Advance, print_json, progress, stdout_console

if TYPE_CHECKING:
    from testbed.fuzz.campaign import Tally
    from testbed.fuzz.draw import Space

EXAMPLES = """\b
Examples:
  testbed fuzz train.py --ranks 2-8 --seeds 10000
  testbed fuzz train.py --seed 4711
  testbed fuzz train.py --faults delay,slow --time-limit 60s -- --epochs 1
"""

MODEL = (
    "a run for each seed, with what it draws, in virtual time, beside the same run without faults; "
    "computation takes no time unless --compute says so"
)


@dataclass(frozen=True)
class DrawOptions:
    """Options for what is drawn."""

    ranks: Annotated[str, typer.Option(metavar="LIST", help="World sizes to draw from: 2-8, or 2,4.")] = "2-4"
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME|FILE", help="Networks to draw from; may be repeated."),
    ] = None
    algorithm: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Algorithms of all-reduce to draw from; may be repeated."),
    ] = None
    compute: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Models of computation to draw from (see run)."),
    ] = None
    faults: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Faults to draw from, or none; by default all."),
    ] = None

    def space(self, script: str, argv: list[str], is_module: bool) -> Space:
        """Return what runs of *script* are drawn from.

        Raises:
            UsageError: a fault that is none, or world sizes that cannot be read.
        """
        from testbed.fuzz.draw import Space
        from testbed.fuzz.faults import FAULTS

        given = {
            "networks": self.network,
            "algorithms": self.algorithm,
            "computes": self.compute,
        }
        faults = tuple(FAULTS) if self.faults is None else _names(self.faults)
        for fault in faults:
            if fault not in FAULTS:
                raise UsageError(f"--faults {fault}: expected none, or some of {', '.join(FAULTS)}")
        return Space(
            script,
            tuple(argv),
            tuple(parse_ranks(self.ranks)),
            faults=faults,
            is_module=is_module,
            **{name: tuple(value) for name, value in given.items() if value},
        )


@dataclass(frozen=True)
class SeedOptions:
    """Options for which seeds are tried, for how long, and where."""

    seeds: Annotated[int, typer.Option(min=1, max=10**9, metavar="N", help="How many: 0 to N - 1.")] = 100
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63, metavar="N", help="This one alone, again.")
    ] = None
    time_limit: Annotated[
        str | None, typer.Option(metavar="TIME", help="No new runs after that: 60s, 1h is 3600s.")
    ] = None
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, metavar="N", help="Processes; by default one per core.")
    ] = None
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler: tcp://10.0.0.1:8786.")
    ] = None

    @property
    def range(self) -> range:
        """The seeds to be tried."""
        return range(self.seeds) if self.seed is None else range(self.seed, self.seed + 1)

    @property
    def limit_seconds(self) -> float | None:
        """Seconds after which no new runs begin.

        Raises:
            UnitError: a time that cannot be read.
        """
        from sim.units import SECOND, parse_time

        return None if self.time_limit is None else parse_time(self.time_limit, "--time-limit") / SECOND


@reporting_errors
@grouped
def fuzz(
    what: Annotated[str, typer.Argument(metavar="SCRIPT", help="An ordinary torchrun script.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]…", help="What the script is given.")
    ] = None,
    *,
    draws: DrawOptions,
    seeds: SeedOptions,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is the name of a module, as for python -m.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Try a script under faults and orders of events that are drawn from seeds.

    Each run is held to the same run without faults: what only changes time or order must not change a result;
    whatever else happens, a run ends as without it or in an error that names the culprit.
    """
    from testbed.scripts.script import check_script

    check_script(what, is_module=module)
    space = draws.space(what, arguments or [], module)
    from testbed.fuzz.campaign import explore
    from testbed.fuzz.scripts import judge_seeds

    number = len(seeds.range)
    with progress(number) as advance:
        tally = explore(
            partial(judge_seeds, space=space),
            seeds.range,
            batch_size=max(1, min(10, number // 8)),
            time_limit=seeds.limit_seconds,
            workers=1 if number == 1 else seeds.workers,
            scheduler=seeds.scheduler,
            watch=partial(_show, advance),
        )
    _report(tally, what, as_json)
    if tally.violated:
        raise typer.Exit(1)


def _show(advance: Advance, tally: Tally) -> None:
    wrong = f", {len(tally.violated)} violations" if tally.violated else ""
    advance(f"{tally.runs} runs, {tally.rate:.1f} per second{wrong}", tally.runs)


def _report(tally: Tally, what: str, as_json: bool) -> None:
    from testbed.report.fuzzing import print_tally, print_violation, tally_json

    if as_json:
        print_json(document(method="simulated", model=MODEL, what=what, **tally_json(tally)))
        return
    console = stdout_console()
    print_tally(console, tally, what)
    for judged in tally.violated:
        print_violation(console, judged)


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(name.strip() for name in text.split(","))
