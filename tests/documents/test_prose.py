"""The documents lead somewhere: links, paths, names."""

import re
from pathlib import Path

import pytest

from tests.documents.blocks import DOCUMENTS, ROOT

TEXTS = [*DOCUMENTS, ROOT / "CHANGELOG.md"]
PLACES = ("benchmarks", "collectives", "ddp", "docs", "examples", "sim", "testbed", "tests", "tools")


@pytest.mark.parametrize("document", TEXTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
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
def test_paths_in_the_documents_exist(document):
    """Paths from the top of the tree, wherever they stand in backticks."""
    named = re.findall(rf"`((?:{'|'.join(PLACES)})/[\w./-]*)`", document.read_text(encoding="utf-8"))

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_index_names_every_document():
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")

    assert [
        path.name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if f"({path.name})" not in index and path.name != "README.md"
    ] == []
