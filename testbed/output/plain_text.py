"""Plain text for terminals that know no UTF-8: the nearest sign of ASCII for each that they cannot show."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata

_HANDLER = "testbed.plain_text"
_SIGNS = str.maketrans(
    {
        **dict.fromkeys("─━═‐‑‒–—−╌╍┄┅┈┉╴╸╶╺", "-"),
        **dict.fromkeys("│┃║╎╏", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╪╡╞", "+"),
        **dict.fromkeys("‘’‚′", "'"),
        **dict.fromkeys("“”„″", '"'),
        **dict.fromkeys("█▉▊▋▌▍▎▏▐▀▄▇▆▅▃▂▁■", "#"),
        "×": "x",
        "·": ".",
        "•": "*",
        "…": ".",
        "→": ">",
        "←": "<",
        "↑": "^",
        "↓": "v",
        "≤": "<",
        "≥": ">",
        "≈": "~",
        "±": "~",
        "α": "a",
        "β": "b",
        "γ": "g",
        "µ": "u",
        "μ": "u",
        "✓": "+",
        "✗": "x",
    }
)
"""One sign for each, so that columns stay where they are."""


def plain(text: str) -> str:
    """Return *text* in ASCII, as long as before: letters without accents, lines as dashes, else ``?``."""
    return "".join(map(_plain_sign, text.translate(_SIGNS)))


def use_what_streams_know() -> None:
    """Let stdout and stderr write the nearest sign where their encoding does not know one.

    UTF-8 knows all but the bytes of a file name that is none.
    """
    codecs.register_error(_HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _plain_sign(sign: str) -> str:
    if sign.isascii():
        return sign
    if 0x2800 <= ord(sign) < 0x2900:  # braille, of which spinners are made
        return "*"
    base = unicodedata.normalize("NFKD", sign)[0]
    return base if base.isascii() and base.isprintable() else "?"


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return plain(error.object[error.start : error.end]), error.end
