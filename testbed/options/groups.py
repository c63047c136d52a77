"""Groups of options: dataclasses that a command takes instead of a parameter for each option."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def grouped(command: Callable[..., T]) -> Callable[..., T]:
    """Let *command* be called with the fields of its dataclasses, as the command line gives them.

    A keyword-only parameter of *command* that is a dataclass stands for one option for each field, of the
    field's name, annotation and default.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if name != "return" and is_dataclass(kind)
    }

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(command)
    def called(**options: Any) -> T:
        for name, kind in groups.items():
            own = {field.name: options.pop(field.name) for field in fields(kind)}
            options[name] = kind(**own)
        return command(**options)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


def _options_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
