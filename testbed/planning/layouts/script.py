"""Layouts of a script, composed of its own layers: folded runs with few layers, extrapolated to all.

A script that takes options for its layout (`OPTIONS`) is run without data in each of them, twice: with two
layers in every list of equal modules (`torch.nn.ModuleList`), and with three.  What a layer more takes of a
step, and holds, all others take, too.  A pipeline is run with twice as many micro-batches besides, as a
step is linear in these from as many as there are stages.  All else (overlap, messages, the schedule, the
optimizer) is what the runs did.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from testbed.errors import UsageError
from testbed.planning.scripts import ENDED_EARLY, run_unheard

OPTIONS = {"tp": "--tp", "pp": "--pp", "recompute": "--ac", "batch": "--batch", "seq": "--seq-len"}
"""Of scripts, by what they say; ``--ac`` is a switch, ``--batch`` is of sequences on each replica."""
MOST = 16
"""Ranks of tensor parallelism, and stages, that are tried at most."""
FEW, MORE = 2, 3
"""Layers of lists in runs that are recorded."""


@dataclass(frozen=True)
class ScriptLayout:
    """A script's layout.

    Attributes:
        script: its path.
        fixed: arguments that all its layouts have.
        dp: ranks among which the batch is divided, by the script's own means.
        tp: ranks among which layers are divided.
        pp: stages.
        recompute: ``none`` or ``full``.
        batch: sequences of a replica in a step.
    """

    script: str
    fixed: tuple[str, ...]
    dp: int
    tp: int = 1
    pp: int = 1
    recompute: str = "none"
    batch: int = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the script is given, in the order of its options."""
        given: list[str] = [*self.fixed]
        given += [OPTIONS["tp"], str(self.tp)] if self.tp > 1 else []
        given += [OPTIONS["pp"], str(self.pp)] if self.pp > 1 else []
        given += [OPTIONS["recompute"]] if self.recompute == "full" else []
        return (*given, OPTIONS["batch"], str(self.batch))

    def __str__(self) -> str:
        return " ".join(self.arguments)


@dataclass(frozen=True)
class Step:
    """What a step of a script takes.

    Attributes:
        seconds: of a steady iteration.
        compute_seconds: of that, computation.
        useful_seconds: what the model's arithmetic would take at the device's peak.
        peak_bytes: what a rank holds at most.
        layers: of the longest list of equal modules, as the script made it.
    """

    seconds: float
    compute_seconds: float
    useful_seconds: float
    peak_bytes: float
    layers: int

    def fits(self, memory: int | None) -> bool:
        """Return whether so many bytes of a GPU are enough; None: nobody says how many it has."""
        return memory is None or self.peak_bytes <= memory

    def towards(self, other: Step, times: float) -> Step:
        """Return what lies so many times the way from here to *other*."""

        def at(own: float, one: float) -> float:
            return own + times * (one - own)

        return Step(
            at(self.seconds, other.seconds),
            at(self.compute_seconds, other.compute_seconds),
            at(self.useful_seconds, other.useful_seconds),
            at(self.peak_bytes, other.peak_bytes),
            self.layers,
        )


def script_layouts(
    script: Path, arguments: Sequence[str], ranks: int, seq: int, sequences: int
) -> list[ScriptLayout]:
    """Return the layouts that a script has options for, each with *sequences* in a step of all ranks.

    Axes that *arguments* give already are held.

    Raises:
        UsageError: it has none, or no option for its batch; or the batch is given there.
    """
    known = _options_in(script)
    if OPTIONS["batch"] not in known or not {OPTIONS["tp"], OPTIONS["pp"]} & known:
        raise UsageError(
            f"{script}: expected options {OPTIONS['batch']} and {OPTIONS['tp']} or {OPTIONS['pp']}, by which "
            f"its layout can be chosen; found {', '.join(sorted(known)) or 'none'}"
        )
    fixed, held = _held(arguments)
    if chosen := [OPTIONS[axis] for axis in ("batch", "seq") if axis in held]:
        raise UsageError(f"{' '.join(chosen)}: give --tokens-per-step and --seq before {script} instead")
    fixed += [OPTIONS["seq"], str(seq)] if OPTIONS["seq"] in known else []
    powers = [str(1 << bit) for bit in range(MOST.bit_length())]
    values = [
        [held[axis]] if axis in held else powers if OPTIONS[axis] in known else ["1"] for axis in ("tp", "pp")
    ]
    again = ["full"] if "recompute" in held else ["none", "full"][: 1 + (OPTIONS["recompute"] in known)]
    found = []
    for tp, pp, recompute in product(map(int, values[0]), map(int, values[1]), again):
        dp, rest = divmod(ranks, tp * pp)
        if dp and not rest and sequences % dp == 0 and sequences // dp >= pp:
            found.append(ScriptLayout(str(script), tuple(fixed), dp, tp, pp, recompute, sequences // dp))
    return found


def _held(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments that choose no axis, and the values of the axes that others choose.

    Raises:
        UsageError: an axis has no number.
    """
    axes, rest, held = {option: axis for axis, option in OPTIONS.items()}, list[str](), dict[str, str]()
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        axis = axes.get(option)
        if axis is None:
            rest.append(word)
        elif axis == "recompute":
            held[axis] = "full"
        else:
            held[axis] = value if equals else next(words, "")
            if not held[axis].isdecimal() or int(held[axis]) < 1:
                raise UsageError(f"{option} {held[axis]}: expected a number above 0")
    return rest, held


@dataclass(frozen=True)
class Task:
    """A layout that is to be composed, or run in full.

    Attributes:
        layout: it.
        network: name or file.
        ranks: GPUs.
        compute: the device that computes.
        whole: whether all layers are run.
    """

    layout: ScriptLayout
    network: str
    ranks: int
    compute: str
    whole: bool = False


def evaluate(task: Task) -> tuple[ScriptLayout, Step | str]:
    """Return the layout of a task with its step, or with why there is none.

    Raises:
        UsageError: the script cannot be composed of its layers.
    """
    from sim.errors import SimulationError

    run = partial(recorded, layers=None) if task.whole else composed
    try:
        step = run(task.layout, network=task.network, ranks=task.ranks, compute=task.compute)
    except SimulationError as error:
        return task.layout, str(error).partition("\n")[0]
    return task.layout, step


def _options_in(script: Path) -> set[str]:
    """Return the options that a script declares with ``add_argument``."""
    try:
        tree = ast.parse(script.read_text(encoding="utf-8"), str(script))
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise UsageError(f"{script}: cannot be read as Python: {error}") from None
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = (
        argument.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    )
    return {own for own in given if isinstance(own, str) and own.startswith("--")}


def composed(layout: ScriptLayout, *, network: str, ranks: int, compute: str) -> Step:
    """Return a step of *layout* with all its layers and micro-batches, of runs with few.

    Raises:
        UsageError: the script finishes no second iteration, or has no list of equal modules.
        RankError: it fails.
    """
    batches = [layout.batch] if layout.pp == 1 else [layout.pp, 2 * layout.pp]
    batches = batches if layout.batch > batches[-1] else [layout.batch]
    of_batches = []
    for batch in batches:
        few, more = (
            recorded(replace(layout, batch=batch), layers, network=network, ranks=ranks, compute=compute)
            for layers in (FEW, MORE)
        )
        if not few.layers:
            raise UsageError(f"{layout.script}: expected a torch.nn.ModuleList of equal layers, found none")
        of_batches.append(few if few.layers <= FEW else few.towards(more, (few.layers - FEW) / (MORE - FEW)))
    if len(of_batches) == 1:
        return of_batches[0]
    first, second = of_batches
    return first.towards(second, (layout.batch - batches[0]) / (batches[1] - batches[0]))


def recorded(layout: ScriptLayout, layers: int | None, *, network: str, ranks: int, compute: str) -> Step:
    """Return a step of *layout* as a run without data takes it, with so many *layers*; None: all.

    Raises:
        UsageError: the script finishes no second iteration.
        RankError: it fails.
    """
    with _shortened(layers) as lengths:
        report = run_unheard(
            layout.script,
            layout.arguments,
            compute,
            ranks=ranks,
            network=network,
            fake=True,
            memory_limit="off",
        ).report
    steady = report.steady()
    if steady is None:
        raise UsageError(f"{layout.script} {ENDED_EARLY}")
    peak = 0 if report.memory is None else report.memory.peak_bytes
    useful = 0 if report.utilization is None else report.utilization.mfu * steady.seconds
    return Step(steady.seconds, steady.compute_seconds, useful, peak, max(lengths, default=0))


@contextmanager
def _shortened(layers: int | None) -> Iterator[list[int]]:
    """Let lists of equal modules keep so many at most, and yield how many each was given."""
    from torch.nn import ModuleList

    init, lengths = ModuleList.__init__, list[int]()

    def shorter(self: Any, modules: Any = None) -> None:
        given = None if modules is None else list(modules)
        if given and len({type(own) for own in given}) == 1:
            lengths.append(len(given))
            given = given[:layers]
        init(self, given)

    ModuleList.__init__ = shorter  # type: ignore[method-assign]
    try:
        yield lengths
    finally:
        ModuleList.__init__ = init  # type: ignore[method-assign]
