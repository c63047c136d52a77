"""Cache of rows: what was found of a point with the same inputs by the same code is not worked out again.

A key is a digest of the point and the alteration.  Beside a row is kept what the files held that were opened
while it was worked out (`testbed.planning.opened`): it is the answer while they hold the same, and of one
point there may be rows for several contents.  Each version of this package's sources and of what is installed
has a folder, with a file for each key, written whole; one that nobody has used for a month is removed.  A row
that is damaged is worked out again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import testbed
from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
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
        self._folder: Path | None = None
        if folder is None:
            return
        own = folder / f"plan-{source_digest()[:16]}-{installed_digest()[:8]}"
        try:
            own.mkdir(parents=True, exist_ok=True)
            write_whole(own / "used", "")  # its folder's time says when it was used
        except OSError as error:
            if is_asked_for:
                raise UsageError(
                    f"--cache {folder}: cannot be written to: {error.strerror}; name another folder, or none"
                ) from None
            return
        self._folder = own
        for other in folder.glob("plan-*"):
            if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)

    def known(self, items: Iterable[tuple[Point, Alteration]]) -> dict[tuple[Point, Alteration], Row]:
        """Return the rows that are known of *items*."""
        holds = cache(lambda folder, digests: Files(folder, digests).hold())
        found = {}
        for item in items:
            for folder, digests, kept in self._kept(key_of(*item)):
                if holds(folder, tuple(map(tuple, digests))):
                    found[item] = Row.again(item[0], kept)
        return found

    def keep(self, item: tuple[Point, Alteration], row: Row, files: Files | None) -> None:
        """Keep *row*; where it cannot be written, as on a full disk, the cache stays as it was.

        Args:
            item: what was worked out.
            row: what came of it.
            files: that were opened for it; None: they changed meanwhile, and the row is not kept.
        """
        if self._folder is not None and files is not None:
            key, opened = key_of(*item), json.loads(json.dumps([files.folder, files.digests]))
            others = [own for own in self._kept(key) if own[:2] != opened]
            text = json.dumps([*others, [*opened, row.kept()]])
            with suppress(OSError):
                write_whole(self._folder / key, f"{_digest(key + text)}\n{text}")

    def _kept(self, key: str) -> list[Any]:
        """Return what is kept under *key*: of each row the folder and digests of files, and its figures."""
        if self._folder is None:
            return []
        try:
            digest, _, text = (self._folder / key).read_text(encoding="utf-8").partition("\n")
        except (OSError, ValueError):
            return []
        rows: list[Any] = json.loads(text) if digest == _digest(key + text) else []
        return rows


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
