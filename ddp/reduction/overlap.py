"""Overlap strategies by name: when a bucket whose gradients are all ready starts its journey.

What a strategy is: `ddp.reduction.strategies.strategy`.  Which there are, what each promises and when to take
which: ``docs/strategies.md``.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType

from ddp.errors import UnknownStrategyError
from ddp.reduction.strategies.accumulate import Accumulate
from ddp.reduction.strategies.after_backward import AfterBackward
from ddp.reduction.strategies.data_parallel import DataParallel
from ddp.reduction.strategies.dear import Dear
from ddp.reduction.strategies.fsdp import Fsdp
from ddp.reduction.strategies.mg_wfbp import MergedGradients
from ddp.reduction.strategies.per_parameter import PerParameter
from ddp.reduction.strategies.priority import Priority
from ddp.reduction.strategies.strategy import Situation, Strategy
from ddp.reduction.strategies.wait_free import WaitFree
from ddp.reduction.strategies.zero1 import Zero1

_OF_A_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)(?::(.*))?")

__all__ = ["SIMULATED", "STRATEGIES", "Situation", "Strategy", "resolve_strategy"]

STRATEGIES: Mapping[str, Strategy] = MappingProxyType(
    {
        strategy.kind: strategy
        for strategy in (
            AfterBackward(),
            PerParameter(),
            WaitFree(),
            MergedGradients(),
            Priority(),
            Dear(),
            Zero1(),
            Accumulate(),
            DataParallel(),
        )
    }
)
"""Each with its parameters at their defaults."""

SIMULATED: Mapping[str, Strategy] = MappingProxyType({Fsdp.kind: Fsdp()})
"""The same of those that are simulated and train elsewhere."""


def resolve_strategy(strategy: str | Strategy) -> Strategy:
    """Return *strategy* itself, or that of a name: a shipped one, or ``FILE.py:CLASS``, a user's own.

    Parameters follow the name: ``priority:credits=2``, ``FILE.py:CLASS:credits=2``.

    Raises:
        UnknownStrategyError: no strategy has that name, or it has no such parameter or value; the message
            has the nearest.
        AlgorithmFileError: there is no such file, or it cannot be imported.
    """
    if not isinstance(strategy, str):
        return strategy
    own_file = _OF_A_FILE.fullmatch(strategy)
    if own_file is not None:
        path, class_name, parameters = own_file.groups(default="")
        name = f"{path}:{class_name}"
        kind = _class_in(Path(path), class_name)
    else:
        name, _, parameters = strategy.partition(":")
        shipped = {**STRATEGIES, **SIMULATED}
        if name not in shipped:
            known = f"{', '.join(shipped)}, or FILE.py:CLASS"
            raise UnknownStrategyError(
                f"unknown overlap strategy {name!r}; {_nearest(name, shipped)}known are: {known}"
            )
        kind = type(shipped[name])

    own = [each.name for each in fields(kind)]
    bound: dict[str, object] = {}
    for item in filter(None, parameters.split(",")):
        key, equals, value = item.partition("=")
        if not equals or key not in own:
            has = f"its parameters are: {', '.join(own)}" if own else "it has none"
            raise UnknownStrategyError(
                f"{strategy!r}: {name} has no parameter {item!r}; {_nearest(key, own)}{has}"
            )
        try:
            bound[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            bound[key] = value
    return kind(**bound)


def _class_in(path: Path, name: str) -> type[Strategy]:
    """Return the strategy that is called *name* in a user's file; its kind is where it is from."""
    from collectives.catalogue.user_files import load_module

    module = load_module(path)
    classes = {
        own: value
        for own, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Strategy) and value.__module__ == module.__name__
    }
    if name not in classes:
        has = ", ".join(classes) or "none"
        raise UnknownStrategyError(
            f"{path}: no overlap strategy {name!r} in this file; {_nearest(name, list(classes))}classes that "
            f"are derived from ddp.Strategy: {has}"
        )
    kind = classes[name]
    kind.kind = f"{path}:{name}"
    return kind


def _nearest(name: str, known: Mapping[str, Strategy] | list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {nearest[0]!r}? " if nearest else ""
