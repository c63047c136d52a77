"""The table of import paths that have moved: what it names as new is there, what it names as old is not."""

from __future__ import annotations

import re
from pathlib import Path

from tests.documents.blocks import ROOT

TABLE = re.compile(r"^### Import paths that have moved\n(.*?)^## ", re.DOTALL | re.MULTILINE)

PACKAGES = ("collectives.", "ddp.", "sim.", "testbed.")


def rows() -> list[tuple[str, str]]:
    """Return the cells of the table of modules."""
    text = TABLE.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]
    return [(was, now) for was, now in cells]


def spelled_out(cell: str) -> list[str]:
    """Return the names in *cell*, each behind the prefix (``sim.``) that stands before it."""
    prefix, names = "", []
    for name in re.findall(r"`([\w./]+)`", cell):
        if name.endswith("."):
            prefix = name
        else:
            is_whole = name.startswith(PACKAGES) or "/" in name
            names.append(name if is_whole else prefix + name)
    return names


def new_names(was: str, now: str) -> list[str]:
    """Return all names that the table gives as new; "the same" stands for the last parts of the old ones."""
    if "the same" not in now:
        return spelled_out(now)
    prefix = re.match(r"`([\w.]+\.)`", now)[1]
    renamed = dict(re.findall(r"`(\w+)` is `(\w+)`", now))
    return [
        prefix + renamed.get(last, last) for last in (name.rpartition(".")[2] for name in spelled_out(was))
    ]


def exists(name: str) -> bool:
    """Whether *name* is a module, or a name that a module defines or hands on."""
    path = ROOT / Path(*name.split("."))
    if name.endswith("/"):
        return (ROOT / name).exists()
    if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
        return True
    parent = path.parent
    file = parent.with_suffix(".py") if parent.with_suffix(".py").exists() else parent / "__init__.py"
    return file.exists() and bool(re.search(rf"\b{path.name}\b", file.read_text(encoding="utf-8")))


def test_every_new_path_is_there() -> None:
    missing = [name for was, now in rows() for name in new_names(was, now) if not exists(name)]

    assert missing == []
