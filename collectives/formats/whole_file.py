"""Files that are written whole or not at all, whatever writes them.

What is written goes to a file of another name in the same folder, which takes its place at the end.  That
name cannot be guessed, so nobody can have put a link there.  A full disk, a limit, an interrupt: the partial
file is removed, what stood there before stays, and the error names the file that was wanted.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path


@contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[Path]:
    """Give a path to write to, with the same suffix; at the end of the body it becomes *path*.

    What is no file, such as ``/dev/stdout``, is written itself.

    Raises:
        OSError: it cannot be written; names *path*.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}{path.suffix[:20]}")
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        try:
            yield partial
            partial.replace(path)
        finally:
            with suppress(OSError):
                partial.unlink()
    except OSError as error:
        if error.filename not in (None, str(path), str(partial)):
            raise  # of another file than this one
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def write_whole(path: str | PathLike[str], text: str) -> None:
    """Write *text* to *path* in UTF-8, whole or not at all; what is no character, as in names, is a ``?``.

    Raises:
        OSError: it cannot be written; names *path*, where everything is as before.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="replace")
