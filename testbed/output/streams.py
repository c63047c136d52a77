"""Standard streams as they come: closed ones, and those of terminals that know no UTF-8.

Of a stream that was closed when the command began, what goes there is lost, and nothing else.  Python has
None in its place, which is neither written to nor asked whether it is a terminal; and the next file that is
opened would get its number, so that what a library prints would go into it.

A terminal that knows no UTF-8 gets the nearest sign of ASCII for each that it cannot show.
"""

from __future__ import annotations

import codecs
import io
import os
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
        **dict(zip("×·•…→←↑↓≤≥≈±", "x.*.><^v<>~~", strict=True)),
        **dict(zip("αβγµμ✓✗", "abguu+x", strict=True)),
    }
)
"""One sign for each, so that columns stay where they are."""


def open_closed_streams() -> None:
    """Let standard streams that are closed lead to the null device, for child processes as well."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # gets the number that is free: that of the stream
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115 (stays open to the end)


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
