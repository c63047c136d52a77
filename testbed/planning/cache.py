"""Cache of rows: what was found of a point with the same inputs by the same code is not worked out again.

A key is a digest of the point and the alteration.  Beside a row is kept what the files held that were opened
while it was worked out (`testbed.planning.opened`): it is the answer while they hold the same, and of one
point there may be rows for several contents.  Rows are kept in a file of SQLite for each version of this
package's sources and of what is installed; one that nobody has used for a month is removed.  Rows are written
together, whole or not at all; one that is damaged is worked out again, and a damaged file is put aside.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Self

import testbed
from testbed.errors import UsageError
from testbed.planning.alteration import Alteration
from testbed.planning.opened import PACKAGES, SUFFIXES, Files, installed_digest
from testbed.planning.points import Point
from testbed.planning.row import Row

_NO_FIGURE = ("label", "price_per_gpu_hour", "tokens_per_rank")
"""Fields of a point that no figure of its row follows from."""
_INPUTS = tuple(field.name for field in fields(Point) if field.name not in _NO_FIGURE)
_WRITE_SECONDS = 2.0
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
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[tuple[str, str, str, str]] = []
        self._written = time.monotonic()
        if folder is None:
            return
        self._path = folder / f"plan-{source_digest()[:16]}-{installed_digest()[:8]}.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._connection = None
            if is_asked_for:
                said = error.strerror if isinstance(error, OSError) else error
                raise UsageError(
                    f"--cache {folder}: cannot be written to: {said}; name another folder, or none"
                ) from None
            return
        _remove_unused(self._path)

    def __enter__(self) -> Self:
        """Return the cache, which is closed at the end."""
        return self

    def __exit__(self, *problem: object) -> None:
        """Write what is left; close the file."""
        self.write()
        if self._connection is not None:
            self._connection.close()

    def known(self, items: Iterable[tuple[Point, Alteration]]) -> dict[tuple[Point, Alteration], Row]:
        """Return the rows that are known of *items*."""
        found = {}
        holds: dict[str, bool] = {}
        for item in items:
            row = self._row(item, holds)
            if row is not None:
                found[item] = row
        return found

    def keep(self, item: tuple[Point, Alteration], row: Row, files: Files | None) -> None:
        """Keep *row*; it is written soon, with others.

        Args:
            item: what was worked out.
            row: what came of it.
            files: that were opened for it; None: they changed meanwhile, and the row is not kept.
        """
        if self._connection is not None and files is not None:
            key, opened, text = (
                key_of(*item),
                json.dumps([files.folder, files.digests]),
                json.dumps(row.kept()),
            )
            self._waiting.append((key, opened, text, _check(key, opened, text)))
            if time.monotonic() - self._written >= _WRITE_SECONDS:
                self.write()

    def write(self) -> None:
        """Write what waits; a full disk leaves the cache as it was."""
        if self._connection is not None and self._waiting:
            with suppress(sqlite3.Error), self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", self._waiting)
        self._waiting.clear()
        self._written = time.monotonic()

    def _row(self, item: tuple[Point, Alteration], holds: dict[str, bool]) -> Row | None:
        """Return the row of *item*; *holds* says of files, as they are kept, what has been found of them."""
        if self._connection is None:
            return None
        key = key_of(*item)
        try:
            kept = self._connection.execute(
                "SELECT files, row, digest FROM rows WHERE key = ?", (key,)
            ).fetchall()
        except sqlite3.OperationalError:
            return None  # locked, for longer than one waits
        except sqlite3.DatabaseError:
            self._put_aside()
            return None
        for opened, text, digest in kept:
            if digest != _check(key, str(opened), str(text)):
                continue
            with suppress(ValueError, TypeError, KeyError):
                if opened not in holds:
                    holds[opened] = _files(opened).hold()
                if holds[opened]:
                    return Row.again(item[0], json.loads(text))
        return None

    def _open(self) -> None:
        try:
            self._connection = _opened(self._path)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            self._put_aside()

    def _put_aside(self) -> None:
        """Begin anew where what stands in the file is damaged."""
        if self._connection is not None:
            self._connection.close()
        with suppress(OSError):
            self._path.replace(self._path.with_suffix(".damaged"))
        self._connection = _opened(self._path)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10)
    with connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS rows "
            "(key TEXT, files TEXT, row TEXT, digest TEXT, PRIMARY KEY (key, files)) WITHOUT ROWID"
        )
    return connection


def _remove_unused(used: Path) -> None:
    """Mark the file *used*, and remove those of other versions that nobody has used for long."""
    with suppress(OSError):
        os.utime(used)
        for other in used.parent.glob("plan-*"):
            if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                other.unlink()


def _check(key: str, opened: str, text: str) -> str:
    return hashlib.sha256(f"{key} {opened} {text}".encode()).hexdigest()[:16]


def _files(opened: str) -> Files:
    folder, digests = json.loads(opened)
    return Files(folder, tuple((path, was) for path, was in digests))


def key_of(point: Point, altered: Alteration) -> str:
    """Return the digest of all that figures of *point*, so *altered*, follow from, but for code and files."""
    inputs = [[getattr(point, name) for name in _INPUTS], repr(altered)]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


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
