"""Layouts that a script has options for: tensor parallel, pipelines, recomputing, and its batch."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from testbed.errors import UsageError

OPTIONS = {"tp": "--tp", "pp": "--pp", "recompute": "--ac", "batch": "--batch", "seq": "--seq-len"}
"""Of scripts, by what they say; ``--ac`` is a switch, ``--batch`` is of sequences on each replica."""
MOST = 16
"""Ranks of tensor parallelism, and stages, that are tried at most."""


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
