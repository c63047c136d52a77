"""TOML files by name or path: those that ship in a folder of `sim`, or the user's own."""

from __future__ import annotations

import os
import re
import tomllib
from os import PathLike
from pathlib import Path
from typing import Any

from sim.files.fields import nearest
from sim.files.problems import one_line

MAX_BYTES = 64 * 2**20
"""The largest file that is read."""
MAX_KEYS = 64
"""The most keys in a row, with dots between; to read as many takes time by their square."""

_KEY = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"(?<![\w-])(?:{_KEY}[ \t]*+\.[ \t]*+){{{MAX_KEYS}}}")
_SIM = Path(__file__).resolve().parents[1]
"""Not found by its name, which a script's own ``sim.py`` may have while its ranks run."""


def names_in(folder: str) -> tuple[str, ...]:
    """Return the names of the files that ship in *folder*, sorted."""
    files = (_SIM / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def read(
    name_or_path: str | PathLike[str], folder: str, what: str, refusal: type[Exception]
) -> tuple[str, str, str]:
    """Return the text of a file, the name of what it describes, and how errors call the file.

    Args:
        name_or_path: a name in *folder*, or the path of a file.
        folder: of the files that ship.
        what: they describe, such as ``network``.
        refusal: what is raised.

    Raises:
        Exception: *refusal*, if there is neither.
    """
    name, known = str(name_or_path), names_in(folder)
    if name in known:
        file = _SIM / folder / f"{name}.toml"
        return file.read_text("utf-8"), name, f"{'preset' if folder == 'presets' else what} {name}"
    path = Path(name_or_path)
    try:
        with open(name_or_path, "rb") as opened:  # not by the path: that of no name is the working folder
            content = opened.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_BYTES} bytes, got more")
        return content.decode("utf-8").replace("\r\n", "\n"), _printable(path.stem), name
    except (OSError, ValueError) as error:
        if path.suffix == ".toml" or os.path.exists(name_or_path):
            raise refusal(f"{name}: cannot read this {what} file: {error}") from error
        raise refusal(
            f"unknown {what} {name[:100]!r}{nearest(name, known)}; "
            f"expected one of {', '.join(known)}, or the path of a .toml file"
        ) from None


def _printable(name: str) -> str:
    """Return *name* with a ``?`` for each control character, and for bytes that are no character."""
    return "".join(sign if sign.isprintable() else "?" for sign in name)


def parse(text: str, file: str, refusal: type[Exception]) -> dict[str, Any]:
    """Return the content of a TOML document.

    Raises:
        Exception: *refusal*, if it is none.
    """
    if _DOTTED.search(text):
        raise refusal(f"{file}: expected at most {MAX_KEYS} keys with dots between, got more")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{file}: not a TOML file: {one_line(error)}") from error
