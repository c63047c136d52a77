"""Cache of rows: what was found of a point with the same inputs by the same code is not worked out again.

A key is a digest of the point and the alteration.  Beside a row is kept what the files held that were opened
while it was worked out (`testbed.planning.opened`): it is the answer while they hold the same, and of one
point there may be rows for several contents.  Each version of this package's sources and of what is installed
has a file, to which a line is added for each row; one that nobody has used for a month is removed.  A line
that is damaged, or was written in part, as its digest says, is worked out again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import testbed
from testbed.errors import UsageError
from testbed.output.table import grouped
from testbed.planning.alteration import Alteration
from testbed.planning.opened import PACKAGES, SUFFIXES, Files, installed_digest
from testbed.planning.points import Point
from testbed.planning.row import Row

_NO_FIGURE = ("label", "price_per_gpu_hour", "tokens_per_rank")
"""Fields of a point that no figure of its row follows from."""
_INPUTS = tuple(field.name for field in fields(Point) if field.name not in _NO_FIGURE)
_UNUSED_SECONDS = 30 * 24 * 3600


def default_folder() -> Path:
    """Return the folder of the user's caches, as the XDG base directory specification has it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "collective-testbed"


class Cache:
    """Rows by what they follow from.

    Args:
        folder: where they are kept; None: nowhere.
        is_asked_for: whether it is an error that they cannot be kept there.

    Raises:
        UsageError: the folder was asked for, and cannot be written to.
    """

    def __init__(self, folder: Path | None, *, is_asked_for: bool = True) -> None:
        self._path: Path | None = None
        if folder is None:
            return
        path = folder / f"plan-{source_digest()[:16]}-{installed_digest()[:8]}.txt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a"):
                os.utime(path)
        except OSError as error:
            if is_asked_for:
                raise UsageError(
                    f"--cache {folder}: cannot be written to: {error.strerror}; name another folder, or none"
                ) from None
            return
        self._path = path
        for other in folder.glob("plan-*"):
            with suppress(OSError):
                if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                    other.unlink()

    def known(self, items: Iterable[tuple[Point, Alteration]]) -> dict[tuple[Point, Alteration], Row]:
        """Return the rows that are known of *items*."""
        holds = cache(lambda folder, digests: Files(folder, digests).hold())
        kept = grouped(self._kept(), lambda own: str(own[0]))
        found = {}
        for item in items if kept else ():
            for _, folder, digests, figures in kept.get(key_of(*item), ()):
                if holds(folder, tuple(map(tuple, digests))):
                    found[item] = Row.again(item[0], figures)
        return found

    def keep(self, item: tuple[Point, Alteration], row: Row, files: Files | None) -> None:
        """Keep *row*; a full disk leaves the cache as it was.

        Args:
            item: what was worked out.
            row: what came of it.
            files: that were opened for it; None: they changed meanwhile, and the row is not kept.
        """
        if self._path is not None and files is not None:
            text = json.dumps([key_of(*item), files.folder, files.digests, row.kept()])
            with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{_digest(text)} {text}\n")  # on a line of its own, whatever stands before

    def _kept(self) -> Iterator[list[Any]]:
        """Yield what is kept of each row: its key, folder and digests of files, and its figures."""
        text = ""
        if self._path is not None:
            with suppress(OSError):  # another process may have removed it
                text = self._path.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            digest, _, content = line.partition(" ")
            if digest == _digest(content):
                yield json.loads(content)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(point: Point, altered: Alteration) -> str:
    """Return the digest of all that figures of *point*, so *altered*, follow from, but for code and files."""
    return _digest(json.dumps([[getattr(point, name) for name in _INPUTS], repr(altered)]))


@cache
def source_digest() -> str:
    """Return a digest of the sources of this package, and of what stands beside them."""
    root = Path(testbed.__file__).resolve().parents[1]
    found: Any = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in SUFFIXES:
                found.update(f"{path.relative_to(root)} {path.stat().st_size}\n".encode())
                found.update(path.read_bytes())
    return str(found.hexdigest())
