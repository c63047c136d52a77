"""Layouts that a script has options for: how many ranks divide what, and a pipeline's schedule."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from testbed.errors import UsageError
from testbed.planning.layouts.schedule import SCHEDULES, Schedule

OPTIONS = {
    "tp": "--tp", "pp": "--pp", "ep": "--ep", "schedule": "--schedule", "recompute": "--ac",
    "batch": "--batch", "seq": "--seq-len",
}  # fmt: skip
"""Of scripts, by what they say; ``--ac`` is a switch, ``--batch`` is of sequences on each replica."""
STEPS = "--steps"
"""Of scripts that have it: two steps are run, unless others are asked for."""


MOST = 16
"""Ranks of tensor and of expert parallelism, and stages, that are tried at most."""


@dataclass(frozen=True)
class ScriptLayout:
    """A script's layout.

    Attributes:
        script: its path.
        fixed: arguments that all its layouts have.
        dp: ranks among which the batch is divided, by the script's own means.
        tp: ranks among which layers are divided.
        pp: ranks of a pipeline, each with the stages that the schedule gives it.
        recompute: ``none`` or ``full``.
        batch: sequences of a replica in a step: micro-batches.
        schedule: one of `SCHEDULES`; empty: the script has no option for it, and is taken to follow 1F1B.
        ep: ranks that divide experts; 0: the script has no option for it.
        routing: of tokens to experts, as `collectives.virtual.run` takes it; None: balanced.
    """

    script: str
    fixed: tuple[str, ...]
    dp: int
    tp: int = 1
    pp: int = 1
    recompute: str = "none"
    batch: int = 1
    schedule: str = ""
    ep: int = 0
    routing: str | None = None

    @property
    def order(self) -> Schedule:
        """What the schedule wants."""
        return SCHEDULES[self.schedule or "1f1b"]

    @property
    def runs(self) -> bool:
        """Whether there are micro-batches for all ranks, as the schedule wants them."""
        return self.batch >= self.order.needed * self.pp and self.batch % self.order.round_of(self.pp) == 0

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the script is given, in the order of its options."""
        given: list[str] = [*self.fixed]
        given += [OPTIONS["tp"], str(self.tp)] if self.tp > 1 else []
        given += [OPTIONS["pp"], str(self.pp)] if self.pp > 1 else []
        given += [OPTIONS["ep"], str(self.ep)] if self.ep else []
        given += [OPTIONS["schedule"], self.schedule] if self.schedule else []
        given += [OPTIONS["recompute"]] if self.recompute == "full" else []
        return (*given, OPTIONS["batch"], str(self.batch))

    def __str__(self) -> str:
        return " ".join(self.arguments)


def script_layouts(
    script: Path,
    arguments: Sequence[str],
    ranks: int,
    seq: int,
    sequences: int,
    routings: Sequence[str | None] = (None,),
) -> list[ScriptLayout]:
    """Return the layouts that a script has options for, each with *sequences* in a step of all ranks.

    Axes that *arguments* give already are held.  Of schedules those are tried that the script names, and each
    layout with each of *routings*.

    Raises:
        UsageError: it has none, or no option for its batch or, where tokens are routed, for ranks that divide
            experts; or the batch is given there.
    """
    known, words = _options_in(script)
    if OPTIONS["batch"] not in known or not {OPTIONS["tp"], OPTIONS["pp"]} & known:
        raise UsageError(
            f"{script}: expected options {OPTIONS['batch']} and {OPTIONS['tp']} or {OPTIONS['pp']}, by which "
            f"its layout can be chosen; found {', '.join(sorted(known)) or 'none'}"
        )
    fixed, held = _held(arguments)
    if chosen := [OPTIONS[axis] for axis in ("batch", "seq") if axis in held]:
        raise UsageError(f"{' '.join(chosen)}: give --tokens-per-step and --seq before {script} instead")
    if any(routings) and OPTIONS["ep"] not in known:
        raise UsageError(
            f"--imbalance is of experts, and {script} has no option {OPTIONS['ep']} for ranks that divide "
            "them: leave it out"
        )
    fixed += [OPTIONS["seq"], str(seq)] if OPTIONS["seq"] in known else []
    asks_steps = any(word == STEPS or word.startswith(f"{STEPS}=") for word in fixed)
    fixed += [STEPS, "2"] if STEPS in known and not asks_steps else []
    powers = [str(1 << bit) for bit in range(MOST.bit_length())]
    values = [
        [held[axis]] if axis in held else powers if OPTIONS[axis] in known else [none]
        for axis, none in (("tp", "1"), ("pp", "1"), ("ep", "0"))
    ]
    named = [own for own in SCHEDULES if own in words and own != "gpipe"]
    schedules = [held["schedule"]] if "schedule" in held else named if OPTIONS["schedule"] in known else [""]
    again = ["full"] if "recompute" in held else ["none", "full"][: 1 + (OPTIONS["recompute"] in known)]
    found = []
    for (tp, pp, ep), recompute in product(product(*(map(int, own) for own in values)), again):
        dp, rest = divmod(ranks, tp * pp)
        if dp and not rest and sequences % dp == 0 and dp * tp % max(1, ep) == 0:
            axes = str(script), tuple(fixed), dp, tp, pp, recompute, sequences // dp
            orders = product(schedules if pp > 1 else [""], routings)
            own = (ScriptLayout(*axes, one, ep, routing) for one, routing in orders)
            found += [layout for layout in own if layout.runs]
    return found


def _held(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the arguments that choose no axis, and the values of the axes that others choose.

    Raises:
        UsageError: an axis has no number, or the schedule is not known.
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
        elif axis == "schedule":
            held[axis] = (value if equals else next(words, "")).lower()
            if held[axis] not in SCHEDULES:
                raise UsageError(f"{option} {held[axis]}: expected one of {', '.join(SCHEDULES)}")
        else:
            held[axis] = value if equals else next(words, "")
            if not held[axis].isdecimal() or int(held[axis]) < 1:
                raise UsageError(f"{option} {held[axis]}: expected a number above 0")
    return rest, held


def _options_in(script: Path) -> tuple[set[str], set[str]]:
    """Return the options that a script declares with ``add_argument``, and its strings in small letters."""
    try:
        tree = ast.parse(script.read_text(encoding="utf-8"), str(script))
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise UsageError(f"{script}: cannot be read as Python: {error}") from None
    words = {
        node.value.lower()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = (
        argument.value
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    )
    return {own for own in given if isinstance(own, str) and own.startswith("--")}, words
