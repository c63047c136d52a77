"""``testbed fuzz``: runs drawn from seeds, with faults, and judged by oracles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import UsageError
from testbed.options.arguments import (
    IsModule,
    Scheduler,
    ScriptArguments,
    TimeLimit,
    parse_limit,
    parse_ranks,
    split_names,
)
from testbed.options.command import command
from testbed.options.groups import refuse
from testbed.output.table import Advance, progress
from testbed.result import Interrupted, Result
from testbed.tasks.bounds import terminated_in_order

if TYPE_CHECKING:
    from testbed.fuzzing.campaign import Subject, Tally
    from testbed.fuzzing.draw import ProgramSpace, Space

EXAMPLES = """\b
Examples:
  testbed fuzz --ranks 2-8 --seeds 10000 train.py
  testbed fuzz --seed 4711 train.py
  testbed fuzz --faults delay,slow --time-limit 60s train.py --epochs 1
  testbed fuzz ring,tree --seeds 100000
  testbed fuzz my_algorithms.py:my_ring --ranks 2-6
  testbed fuzz all --seeds 1000000 --time-limit 20s
"""

MAX_RANKS = 1024


@dataclass(frozen=True)
class DrawOptions:
    """Options for what is drawn.

    Attributes:
        ranks: World sizes to draw from: 2-8.  [2-4; programs 2-6]
        network: Networks to draw from; may be repeated.
        algorithm: Algorithms of all-reduce to draw from; may be repeated.
        compute: Models of computation to draw from (see run).
        faults: Faults to draw from, or none; by default all.
    """

    ranks: Annotated[str | None, typer.Option(metavar="LIST")] = None
    network: Annotated[list[str] | None, typer.Option(metavar="NAME|FILE")] = None
    algorithm: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None
    compute: Annotated[list[str] | None, typer.Option(metavar="MODEL")] = None
    faults: Annotated[str | None, typer.Option(metavar="NAME,…")] = None

    def space(self, script: str, argv: list[str], is_module: bool) -> Space:
        """Return what runs of *script* are drawn from.

        Raises:
            UsageError: a fault that is none, or world sizes that cannot be read.
        """
        from testbed.fuzzing.draw import Space
        from testbed.fuzzing.faults import FAULTS

        given = {"networks": self.network, "algorithms": self.algorithm, "computes": self.compute}
        return Space(
            script,
            tuple(argv),
            self._ranks("2-4", 1),
            faults=self._faults(tuple(FAULTS)),
            is_module=is_module,
            **{name: tuple(value) for name, value in given.items() if value},
        )

    def program_space(self, what: str) -> ProgramSpace:
        """Return what runs of the programs are drawn from that *what* names.

        Raises:
            UsageError: an option that is for scripts alone, or as for scripts.
            UnknownAlgorithmError, AlgorithmFileError: there is no such program.
        """
        from testbed.fuzzing.draw import FAULTS_OF_PROGRAMS, ProgramSpace

        for_scripts = {"--algorithm": self.algorithm, "--compute": self.compute}
        refuse(for_scripts, f"{{}} is for scripts; {what} names programs")
        networks = {"networks": tuple(self.network)} if self.network else {}
        names = _programs(what)
        return ProgramSpace(names, self._ranks("2-6", 2), faults=self._faults(FAULTS_OF_PROGRAMS), **networks)

    def _ranks(self, default: str, least: int) -> tuple[int, ...]:
        ranks = tuple(parse_ranks(self.ranks or default))
        if ranks[0] < least or ranks[-1] > MAX_RANKS:
            raise UsageError(f"--ranks {self.ranks}: expected {least} to {MAX_RANKS}")
        return ranks

    def _faults(self, known: tuple[str, ...]) -> tuple[str, ...]:
        text = self.faults
        faults = known if text is None else () if text == "none" else tuple(map(str.strip, text.split(",")))
        for fault in faults:
            if fault not in known:
                raise UsageError(f"--faults {fault}: expected none, or some of {', '.join(known)}")
        return faults


@dataclass(frozen=True)
class SeedOptions:
    """Options for which seeds are tried, for how long, and where.

    Attributes:
        seeds: How many: 0 to N - 1.
        seed: This one alone, again.
        workers: Processes; by default one per core.
    """

    seeds: Annotated[int, typer.Option(min=1, max=10**9, metavar="N")] = 100
    seed: Annotated[int | None, typer.Option(min=0, max=2**63, metavar="N")] = None
    time_limit: TimeLimit = None
    workers: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N")] = None
    scheduler: Scheduler = None

    @property
    def range(self) -> range:
        """The seeds to be tried."""
        return range(self.seeds) if self.seed is None else range(self.seed, self.seed + 1)


@command
def fuzz(
    what: Annotated[str, typer.Argument(metavar="SCRIPT|ALGORITHM,…|all")],
    arguments: ScriptArguments = None,
    *,
    draws: DrawOptions,
    seeds: SeedOptions,
    module: IsModule = False,
) -> Result:
    """Try a script, or programs, under faults and orders of events that are drawn from seeds.

    Each run is held to the same run without faults: what only changes time or order must not change a result;
    whatever else happens, a run ends as without it or in an error that names the culprit. A violation is made
    smaller, and printed as a test for pytest. It ends with 1 also where nothing was checked.
    Options come before SCRIPT; all that follows it is the script's.

    Args:
        what: An ordinary torchrun script; or programs without one: names, FILE.py:FUNCTION, or all.
    """
    subject = _subject(what, arguments or [], draws, module)
    from testbed.fuzzing.campaign import explore, fuzzing_result

    number = len(seeds.range)
    with terminated_in_order(), progress(number) as advance:
        tally = explore(
            subject.judge_batch,
            seeds.range,
            batch_size=max(1, min(subject.batch_size, number // 8)),
            time_limit=parse_limit(seeds.time_limit),
            workers=1 if number == 1 else seeds.workers,
            scheduler=seeds.scheduler,
            watch=partial(_show, advance),
            modules=subject.modules,
        )
    smallest = None
    if tally.violated and not tally.interrupted:
        with progress() as advance:
            advance(f"making seed {tally.violated[0].draw.seed} smaller")
            smallest = subject.shrunk(tally.violated[0])
    result = fuzzing_result(what, tally, smallest)
    if tally.interrupted is not None:
        raise Interrupted(result, tally.interrupted)
    return result


def _subject(what: str, arguments: list[str], draws: DrawOptions, is_module: bool) -> Subject:
    """Return what is to be tried: a script, if it is one by its name, or programs."""
    if is_module or (what.endswith(".py") and ":" not in what):
        from testbed.fuzzing.scripts import Scripts
        from testbed.scripts.script import check_script

        check_script(what, is_module=is_module)
        return Scripts(draws.space(what, arguments, is_module))
    if arguments:
        raise UsageError(f"{what}: programs take no arguments, got {' '.join(arguments)}")
    from testbed.fuzzing.programs import Programs

    return Programs(draws.program_space(what))


def _show(advance: Advance, tally: Tally) -> None:
    wrong = f", {len(tally.violated)} violations" if tally.violated else ""
    advance(f"{tally.runs} runs, {tally.rate:.1f} per second{wrong}", tally.runs)


def _programs(what: str) -> tuple[tuple[str, str], ...]:
    """Return the programs that *what* lists, as they are found again, and what each carries out.

    A name stands for every collective that it ships for; a file for one.
    """
    from collectives.algorithms import ALGORITHMS
    from collectives.catalogue.resolve import names_a_file, resolve_for_every_collective

    if what == "all":
        return tuple((str(algorithm), algorithm.collective) for algorithm in ALGORITHMS)
    return tuple(
        (text if names_a_file(text) else str(own), own.collective)
        for text in split_names(what, "the argument")
        for own in resolve_for_every_collective(text)
    )
