"""Layouts as a question of ``testbed plan``: its options, and how it is answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from testbed.errors import UsageError
from testbed.options.arguments import parse_limit, split_names
from testbed.options.groups import refuse
from testbed.output.table import progress, seconds
from testbed.tasks.bounds import bounded

if TYPE_CHECKING:
    from testbed.options.planning import QuestionOptions, SweepOptions
    from testbed.planning.layouts.search import Search
    from testbed.result import Result


@dataclass(frozen=True)
class LayoutOptions:
    """Options for the best layout of a training.

    Attributes:
        layouts: Which layout is best: data, tensor, pipeline, … parallel.
        seq: Tokens of a sequence.
        tokens_per_step: Of all ranks: 4M (4 × 1024²), or a number.
        memory: Of a GPU; by default what its device has.
        framework: What takes time and memory besides: as nanotron does, measured; or nothing.
        only: Only such layouts, as in tp=1,2 or zero=0,1.
        measured: Measured steps as CSV: columns of axes (others as by default), and seconds or
            tokens_per_second_per_gpu; all figures are corrected by them.
        imbalance: Experts: tokens of the busiest rank over the mean, or the law that shares are drawn from
            (a script's: the law); several with commas.
        confirm: Of a script: the best N in full, too.
    """

    PANEL: ClassVar = "Layouts"

    layouts: Annotated[bool, typer.Option("--layouts")] = False
    seq: Annotated[int, typer.Option(min=1, max=2**24, metavar="N")] = 8192
    tokens_per_step: Annotated[str, typer.Option(metavar="N")] = "4M"
    memory: Annotated[str | None, typer.Option(metavar="SIZE")] = None
    framework: Literal["nanotron", "ideal"] = "nanotron"
    only: Annotated[list[str] | None, typer.Option(metavar="AXIS=VALUE,…")] = None
    measured: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    imbalance: Annotated[str | None, typer.Option(metavar="X|power-law:A,…")] = None
    confirm: Annotated[int, typer.Option(min=0, max=100, metavar="N")] = 0

    def place(self, asked: QuestionOptions) -> dict[str, Any]:
        """Return network, ranks, sequences of a step, device and its memory, as `Search` names them.

        Raises:
            UsageError: something is not said, or does not divide.
        """
        from sim.units import parse_size

        if asked.ideal:
            raise UsageError("--ideal and --layouts ask different things: give --framework ideal")
        network, ranks = asked.place("--layouts", "--device")
        tokens = parse_size(self.tokens_per_step, "--tokens-per-step")
        if tokens < self.seq or tokens % self.seq:
            raise UsageError(
                f"--tokens-per-step {self.tokens_per_step}: expected a multiple of --seq {self.seq}, such as "
                f"{max(1, tokens // self.seq) * self.seq}"
            )
        memory = 0 if self.memory is None else parse_size(self.memory, "--memory")
        if self.memory is not None and not memory:
            raise UsageError(f"--memory {self.memory}: expected what a GPU has, such as 80GB")
        sequences, device = tokens // self.seq, asked.device or ""
        given = {"network": network, "ranks": ranks, "seq": self.seq, "sequences": sequences}
        return {**given, "device": device, "memory_bytes": memory}


def layouts_of(
    model: Path | None,
    arguments: list[str],
    asked: QuestionOptions,
    options: LayoutOptions,
    sweeps: SweepOptions,
    time_limit: str | None,
) -> Result:
    """Return the best layouts of a model, what each family costs, and what to measure first.

    Raises:
        UsageError: something is not said, or cannot be read.
    """
    from testbed.planning.layouts.belief import Belief, believed, read_measured
    from testbed.planning.layouts.search import Found, run
    from testbed.report.layouts import layouts_result

    if model is not None and model.suffix == ".py":
        return _of_script(model, arguments, asked, options, sweeps, time_limit)
    if model is None or model.suffix != ".toml":
        raise UsageError("--layouts: expected a model, such as llama-70b.toml, or a script, behind options")
    if options.confirm:
        raise UsageError(f"--confirm: {model} is a model, which nothing runs in full; give its script")
    if arguments:
        raise UsageError(f"{model} {' '.join(arguments)}: expected the model's file alone")
    search = _search(model, asked, options)
    excluded = Counter[str]()
    layouts = list(search.layouts(excluded))
    measured = read_measured(options.measured, search) if options.measured is not None else {}
    if not layouts:
        reasons = ", ".join(f"{count} for {reason}" for reason, count in excluded.items())
        which = "no layout that --only leaves" if search.only else "no layout"
        raise UsageError(
            f"{search.name}: {which} fits {search.ranks} ranks of {search.network}: "
            f"{reasons or 'none divides'}"
        )
    found: list[Found] = []
    with bounded(parse_limit(time_limit)) as stop, progress(len(layouts)) as advance:
        run(search, layouts, advance, found, workers=sweeps.workers, scheduler=sweeps.scheduler)
    stop.check(found, len(layouts), "layout")
    belief = believed(Belief.before(), found, measured)
    return stop.ended(layouts_result(search, excluded, found, belief, measured))


def _of_script(
    script: Path,
    arguments: list[str],
    asked: QuestionOptions,
    options: LayoutOptions,
    sweeps: SweepOptions,
    time_limit: str | None,
) -> Result:
    """Return the best layouts of a script, composed of its own layers.

    Raises:
        UsageError: something is not said, or the script has no options for its layout.
    """
    from sim import load_network
    from sim.files.device_file import load_device
    from testbed.planning.layouts.composition import Found, composed, confirm, evaluate, parts_of, wanted
    from testbed.planning.layouts.layout import Imbalance
    from testbed.planning.layouts.script import Part, Step
    from testbed.planning.layouts.script_layout import ScriptLayout, script_layouts
    from testbed.planning.layouts.search import device_of
    from testbed.report.script_layouts import script_layouts_result
    from testbed.tasks.spread import cores, results

    routings = [None] if options.imbalance is None else split_names(options.imbalance, "--imbalance")
    for routing in filter(None, routings):
        if not Imbalance.parse(routing).exponent:
            raise UsageError(
                f"--imbalance {routing}: {script} sends its tokens itself: expected power-law:A, such as "
                "power-law:1.2"
            )
    given = {"--only": options.only, "--measured": options.measured}
    refuse(given, f"{{}} is for a model's file; {script} is run: leave it out")
    where = options.place(asked)
    network, ranks, sequences = where["network"], where["ranks"], where["sequences"]
    device = device_of(network, load_network(network).topology(ranks), where["device"])
    memory = where["memory_bytes"] or load_device(device).memory_bytes
    layouts = script_layouts(script, arguments, ranks, options.seq, sequences, routings)
    if not layouts:
        raise UsageError(f"{script}: no layout of {ranks} ranks divides {sequences} sequences")

    parts = parts_of(layouts, network, ranks, device)
    found, full = dict[ScriptLayout, Step | str](), dict[ScriptLayout, Step | str]()
    known = dict[Part, Found]()
    spread = partial(
        results, scheduler=sweeps.scheduler, modules=("collectives.virtual", "testbed.planning.scripts")
    )

    def workers(items: Sequence[object]) -> int:
        return sweeps.workers or min(cores(), max(1, len(items)))

    with bounded(parse_limit(time_limit)) as stop:
        with progress(len(layouts)) as advance:
            while needed := wanted(parts, known):
                for part, recorded in spread(evaluate, needed, workers=workers(needed)):
                    known[part] = recorded
                    for layout in [own for own in layouts if own not in found]:
                        step = composed(layout, parts[layout], known)
                        if step is not None:
                            found[layout] = step
                            advance(f"{layout}: {step if isinstance(step, str) else seconds(step.seconds)}")
        steps = {own: step for own, step in found.items() if isinstance(step, Step) and step.fits(memory)}
        best = sorted(steps, key=lambda own: steps[own].seconds)[: options.confirm]
        whole = [Part(own, network, ranks, device) for own in best]
        with progress(len(whole)) as advance:
            for layout, ran in spread(confirm, whole, workers=workers(whole)):
                full[layout] = ran
                advance(f"{layout} in full: {ran if isinstance(ran, str) else seconds(ran.seconds)}")
    stop.check(found, len(layouts), "layout")
    tokens = sequences * options.seq
    return stop.ended(script_layouts_result(str(script), network, tokens, memory, found, full))


def _search(model: Path, asked: QuestionOptions, options: LayoutOptions) -> Search:
    """Return the question.

    Raises:
        UsageError: something is not said, or does not divide.
    """
    from testbed.planning.layouts.layout import EVEN, Imbalance
    from testbed.planning.layouts.search import Search
    from testbed.planning.layouts.transformer import read_model

    where = options.place(asked)
    name, transformer = read_model(model)
    given = [EVEN] if options.imbalance is None else split_names(options.imbalance, "--imbalance")
    search = Search(
        transformer,
        **where,
        framework=options.framework,
        only=tuple(_held(options.only or ()).items()),
        imbalances=tuple(dict.fromkeys(str(Imbalance.parse(own)) for own in given)),
        name=name,
    )
    if options.imbalance is not None and not transformer.experts:
        raise UsageError(f"--imbalance is of experts, and {name} has none: leave it out")
    return search


def _held(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values to which ``--only`` holds axes; those of an axis that is given twice add up.

    Raises:
        UsageError: there is no such axis, or it has no such value.
    """
    from testbed.planning.layouts.layout import WORDS
    from testbed.planning.layouts.search import AXES

    held: dict[str, tuple[str, ...]] = {}
    for text in texts:
        axis, equals, said = text.partition("=")
        if axis not in AXES or axis == "imbalance" or not equals:
            axes = ", ".join(own for own in AXES if own != "imbalance")
            raise UsageError(f"--only {text}: expected AXIS=VALUE,… with an axis of {axes}")
        values, words = tuple(own.strip() for own in said.split(",")), WORDS.get(axis, ())
        if not all(own in words if words else own.isdecimal() for own in values):
            raise UsageError(f"--only {text}: expected {axis} of {', '.join(words) or 'numbers, as in 1,2'}")
        held[axis] = held.get(axis, ()) + values
    return held
