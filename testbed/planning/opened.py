"""Files that were opened while something was worked out, and what stood in them.

What follows from files stays true while each of them holds the same, and those that were looked for in vain
are still absent.  Python says of every file that it opens (an audit event), so nobody has to know which names
in an input mean files.  Not among them: the interpreter, installed packages and this one, for which versions
and the digest of the sources stand; files that were begun anew, which are outputs; devices and pipes.

A file that is read once in a process, and remembered, is noted by whoever remembers it (`note`); modules are
imported once, so those that lie elsewhere count as opened (`note_modules`).  Not seen: a folder that is
listed, a file that is asked for without being opened, and what a library opens by itself, in C.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import site
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

PACKAGES = ("collectives", "ddp", "sim", "testbed")
SUFFIXES = (".py", ".toml", ".json", ".csv")
"""Of the files of this package for which the digest of its sources stands."""

_ROOT = str(Path(__file__).resolve().parents[2])
_OTHER_THAN_FILES = ("/dev/", "/proc/", "/sys/")
_MAINS = ("__main__", "__mp_main__")
_ABSENT = ""

Stamp = tuple[int, int, int]
"""When a file has changed, its size and its number: while it stays, so does what stands there."""

_recorders: list[Recorder] = []
"""Those that are told of every file of this process: ranks are threads, and open files too."""
_imported: dict[str, Stamp | None] = {}
"""What modules were when they were first seen."""


@dataclass(frozen=True)
class Files:
    """Files, with what stood in each.

    Attributes:
        folder: that names were relative to; empty where there are no files.
        digests: by path; of a file that was absent, empty.
    """

    folder: str = ""
    digests: tuple[tuple[str, str], ...] = ()

    def hold(self) -> bool:
        """Return whether the same stands in all of them here and now."""
        if not self.digests:
            return True
        return self.folder == os.getcwd() and all(content_digest(path) == was for path, was in self.digests)


class Recorder:
    """What was opened since the recorder began to be told of it."""

    def __init__(self) -> None:
        self._read: dict[str, Stamp | None] = {}
        self._begun: set[str] = set()

    def tell(self, path: str, stamp: Stamp | None, is_begun_anew: bool) -> None:
        """Count a file in; the first time says whether it is an input."""
        if is_begun_anew and path not in self._read:
            self._begun.add(path)
        elif path not in self._begun:
            self._read.setdefault(path, stamp)

    def files(self) -> Files | None:
        """Return what was opened; None where something has changed since, so nobody knows what was read."""
        read = sorted(self._read)
        digests = tuple((path, content_digest(path)) for path in read)
        if not read:
            return Files()
        if any(_stamp(path) != self._read[path] for path in read):
            return None
        return Files(os.getcwd(), digests)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Yield what is told of the files that this process opens in the body."""
    _listen()
    recorder = Recorder()
    _recorders.append(recorder)
    try:
        yield recorder
    finally:
        _recorders.remove(recorder)


def note(name: str) -> None:
    """Count the file of that name as opened, if there is one: what it says was remembered."""
    path = os.path.abspath(name)
    stamp = _stamp(path)
    if stamp is not None and not _is_known_otherwise(path):
        _tell(path, stamp)


def note_modules() -> None:
    """Count the sources of the modules that this process has imported as opened.

    But for files of programs, which are read each time.
    """
    from collectives.catalogue.user_files import MODULE_PREFIX

    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in _MAINS or name.startswith(MODULE_PREFIX) or not isinstance(path, str):
            continue
        if os.path.isabs(path) and not _is_known_otherwise(path):
            _tell(path, _imported.setdefault(path, _stamp(path)))


def content_digest(name: str) -> str:
    """Return a digest of what stands in the file of that name; empty if there is none."""
    stamp = _stamp(name)
    try:
        return _ABSENT if stamp is None else _digest(os.path.abspath(name), stamp)
    except OSError:
        return _ABSENT


@lru_cache(maxsize=2**16)
def _digest(path: str, stamp: Stamp) -> str:
    """Return the digest of a file, which is read once as long as it stays."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            found.update(piece)
    return found.hexdigest()


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _tell(path: str, stamp: Stamp | None, is_begun_anew: bool = False) -> None:
    for recorder in _recorders:
        recorder.tell(path, stamp, is_begun_anew)


@cache
def _listen() -> None:
    """Be told of all files that this process opens from now on; a hook of Python's stays for good."""
    sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _recorders or event != "open":
        return
    with suppress(Exception):  # which would keep the file from being opened
        _on_open(*arguments)


def _on_open(name: Any, mode: Any, flags: Any) -> None:
    if isinstance(name, int):
        return
    path = _source_of(os.path.abspath(os.fsdecode(name)))
    is_begun_anew = bool(flags & (os.O_TRUNC | os.O_EXCL))
    is_appended_to = flags & os.O_ACCMODE == os.O_WRONLY and not is_begun_anew
    stamp = _stamp(path)
    if is_appended_to or _is_known_otherwise(path) or (stamp is None and os.path.exists(path)):
        return
    if path.endswith(".py"):
        _imported[path] = stamp
    _tell(path, stamp, is_begun_anew)


def _source_of(path: str) -> str:
    """Return the path of the source of what a module was compiled to, by Python or pytest, else *path*."""
    folder, in_cache, name = path.rpartition(f"{os.sep}__pycache__{os.sep}")
    if in_cache and ".pyc" in name:
        return os.path.join(folder, f"{name.partition('.')[0]}.py")
    if ".pyc" in path:
        with suppress(ValueError):  # in a folder of its own: PYTHONPYCACHEPREFIX
            return importlib.util.source_from_cache(f"{path.rpartition('.pyc')[0]}.pyc")
    return path


@lru_cache(maxsize=2**16)
def _is_known_otherwise(path: str) -> bool:
    """Return whether versions or the digest of our sources say what stands in that file."""
    if path.startswith((*_installed(), *_OTHER_THAN_FILES)):
        return True
    return path.startswith(_own()) and path.endswith(SUFFIXES)


@cache
def installed_digest() -> str:
    """Return a digest of the versions of the interpreter and of the packages that are installed."""
    names = {sys.version}
    for folder in _installed():
        with suppress(OSError):
            names.update(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of the interpreter and of installed packages, with a slash at the end."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [*site.getsitepackages(), site.getusersitepackages()]
    named += [place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages")]
    return tuple({f"{folder}/" for name in named if name for folder in (name, os.path.realpath(name))})


@cache
def _own() -> tuple[str, ...]:
    return tuple(os.path.join(_ROOT, package, "") for package in PACKAGES)
