"""Values of parameters in text: ``4``, ``0.5``, ``true``, ``near``."""

from __future__ import annotations

import re
from typing import TypeAlias

from collectives.errors import UnknownAlgorithmError

Value: TypeAlias = int | float | bool | str | None

MAX_LENGTH = 200
"""Characters of a value; a longer one is a mistake."""

_WORDS = {"True": True, "False": False, "None": None}
_WHOLE = re.compile(r"[+-]?[0-9][0-9_]{0,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def read_value(text: str) -> Value:
    """Return what *text* means: a number, True, False, None, or itself, without quotes around it.

    Raises:
        UnknownAlgorithmError: it is longer than any value, or a number of more than 20 digits.
    """
    if len(text) > MAX_LENGTH:
        raise UnknownAlgorithmError(
            f"{text[:20]!r}…: a value has at most {MAX_LENGTH} characters, got {len(text)}"
        )
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and not text.endswith("_"):
        return int(text.replace("_", ""))
    if _NUMBER.fullmatch(text):
        if text.lstrip("+-").isdecimal():
            raise UnknownAlgorithmError(f"{text}: a whole number has at most 20 digits")
        return float(text)
    return text[1:-1] if _QUOTED.fullmatch(text) else text
