"""The documents lead somewhere: links, paths, names; and their lines can be read side by side."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.blocks import DOCUMENTS, ROOT

WIDTH = 120
LONG_CODE = re.compile(r"`[^`]{60,}`")  # commands and messages, which nobody should break
TEXTS = [*DOCUMENTS, ROOT / "CHANGELOG.md"]
PLACES = ("benchmarks", "collectives", "ddp", "docs", "examples", "sim", "testbed", "tests", "tools")


def prose_of(document: Path) -> list[tuple[int, str]]:
    """Return the lines of *document*, with their numbers, that are no code, table, link target or picture."""
    inside, lines = False, []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
        elif not inside and not line.startswith(("|", "<", "![")):
            lines.append((number, line))
    return lines


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: path.name)
def test_lines_of_prose_are_short(document: Path) -> None:
    assert [number for number, line in prose_of(document) if len(LONG_CODE.sub("``", line)) >= WIDTH] == []


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)\s]*)\)", text)
    missing = []
    for target in targets:
        path, _, heading = target.partition("#")
        page = document.parent / path if path else document
        if not page.exists() or (heading and heading not in headings_of(page)):
            missing.append(target)

    assert missing == []


def headings_of(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of *page*."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "document", [path for path in TEXTS if path.name != "CHANGELOG.md"], ids=lambda path: path.name
)
def test_paths_in_the_documents_exist(document: Path) -> None:
    """Paths from the top of the tree, wherever they stand in backticks."""
    named = re.findall(rf"`((?:{'|'.join(PLACES)})/[\w./-]*)`", document.read_text(encoding="utf-8"))

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 140


def test_the_index_names_every_document() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [
        path.name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if f"({path.name})" not in index and path.name != "README.md"
    ] == []
