"""The code of functions that programs call: which names are in it, and to whom it belongs."""

from __future__ import annotations

from types import CodeType, FunctionType


def names_in(code: CodeType) -> set[str]:
    """Return the names in *code*, and in the code within it, such as comprehensions."""
    inner = (part for part in code.co_consts if isinstance(part, CodeType))
    return {*code.co_names}.union(*map(names_in, inner))


def house_of(function: FunctionType) -> str:
    """Return to which code *function* belongs: what ships is of one house."""
    shipped = "collectives.algorithms"
    return shipped if function.__module__.startswith(shipped) else function.__module__
