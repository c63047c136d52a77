"""TOML as calibrations write it: fields one below the other, and tables in tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def fields(content: Mapping[str, Any]) -> list[str]:
    """Return a line for each field of *content*; what is None has no word in TOML and is left out."""
    return [f"{_key(name)} = {spelled(own)}" for name, own in content.items() if own is not None]


def table(name: str, content: Mapping[str, Any]) -> list[str]:
    """Return the table *name*: tables in it that hold no others stand in a line, lists in a line for each."""
    own: list[str] = []
    below: list[str] = []
    for key, value in content.items():
        if isinstance(value, Mapping) and any(isinstance(one, (Mapping, list)) for one in value.values()):
            below += ["", *table(f"{name}.{key}", value)]
        elif isinstance(value, list) and len(value) > 1:
            own += array(key, ([one] for one in value), indent=2)
        else:
            own += fields({key: value})
    return [f"[{name}]", *own, *below] if own else below[1:]


def array(name: str, rows: Iterable[Iterable[Any]], indent: int = 4) -> list[str]:
    """Return an array with a line for each of *rows*."""
    lines = (f"{' ' * indent}{', '.join(map(spelled, row))}," for row in rows)
    return [f"{name} = [", *lines, "]"]


def spelled(value: Any) -> str:
    """Return *value* as TOML has it: tables in a line, text of several lines between triple quotes."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(fields(value))} }}" if value else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(spelled, value))}]"
    text = json.dumps(value, ensure_ascii=False)  # strings, numbers and truth values are written as in JSON
    if isinstance(value, str) and "\n" in value:
        lines = (json.dumps(line, ensure_ascii=False)[1:-1] for line in value.split("\n"))
        return '"""\n' + "\n".join(lines) + '"""'
    return text


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)
