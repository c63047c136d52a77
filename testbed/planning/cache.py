"""Cache of rows: what was found of a point with the same inputs by the same code is not worked out again.

A key is a digest of everything that a row follows from: the point, the alteration, what stands in the files
that it names, and the sources of this package.  Modules that a script imports are not among them: after
changing one, leave the cache out.  Rows are kept in an SQLite file, which is written whole or not at all;
one that is damaged is put aside, and costs only the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from pathlib import Path
from typing import Any, Self

import testbed
from testbed.errors import UsageError
from testbed.planning.alteration import Alteration
from testbed.planning.points import Point
from testbed.planning.row import Row

_WANTED = "SELECT row FROM rows WHERE key = ?"
_PACKAGES = ("collectives", "ddp", "sim", "testbed")


def default_folder() -> Path:
    """Return the folder of the user's caches, as the XDG base directory specification has it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "collective-testbed"


class Cache:
    """Rows by what they follow from.

    Args:
        folder: where they are kept; None: nowhere.

    Raises:
        UsageError: the folder cannot be written to.
    """

    def __init__(self, folder: Path | None) -> None:
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[tuple[str, str]] = []
        if folder is None:
            return
        path = folder / "plan.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = _opened(path)
        except sqlite3.DatabaseError:
            with suppress(OSError):
                path.replace(path.with_suffix(".damaged"))
            self._connection = _opened(path)
        except OSError as error:
            raise UsageError(
                f"--cache {folder}: cannot be written to: {error.strerror}; name another folder, or none"
            ) from None

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
        if self._connection is None:
            return {}
        found = {}
        for item in items:
            with suppress(sqlite3.Error, ValueError, TypeError, KeyError):
                kept = self._connection.execute(
                    "SELECT row FROM rows WHERE key = ?", (key_of(*item),)
                ).fetchone()
                if kept is not None:
                    found[item] = Row.again(item[0], json.loads(kept[0]))
        return found

    def keep(self, item: tuple[Point, Alteration], row: Row) -> None:
        """Keep *row*; it is written with others."""
        if self._connection is not None:
            self._waiting.append((key_of(*item), json.dumps(row.kept())))
            if len(self._waiting) >= 1000:
                self.write()

    def write(self) -> None:
        """Write what waits; a full disk leaves the cache as it was."""
        if self._connection is not None and self._waiting:
            with suppress(sqlite3.Error), self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", self._waiting)
        self._waiting.clear()


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=10)
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, row TEXT) WITHOUT ROWID")
    return connection


def key_of(point: Point, altered: Alteration) -> str:
    """Return the digest of all that the row of *point*, so *altered*, follows from."""
    named = (point.network, point.model, point.algorithm.partition(":")[0], point.device or "", point.compute)
    inputs = [astuple(point), repr(altered), [_content(name) for name in named], source_digest()]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def _content(name: str) -> str:
    """Return a digest of the file of that name, if it is one."""
    try:
        return _digest(name, os.stat(name).st_mtime_ns)
    except OSError:
        return ""


@cache
def _digest(name: str, changed_ns: int) -> str:
    try:
        return hashlib.sha256(Path(name).read_bytes()).hexdigest()
    except OSError:
        return ""


@cache
def source_digest() -> str:
    """Return a digest of this package's files, by their names, sizes and times."""
    root = Path(testbed.__file__).resolve().parents[1]
    stamps: Mapping[str, Any] = {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for package in _PACKAGES
        for path in sorted((root / package).rglob("*"))
        if path.suffix in (".py", ".toml", ".json", ".csv")
    }
    return hashlib.sha256(json.dumps(stamps, sort_keys=True).encode()).hexdigest()
