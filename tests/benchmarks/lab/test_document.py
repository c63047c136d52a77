"""A document of sections: each command renews its own, and nothing else."""

import re
from pathlib import Path

import pytest

from benchmarks.lab.document import check_section, markdown, renew
from testbed.errors import UsageError
from testbed.result import Grid, Text

DOCUMENTS = Path(__file__).parents[3] / "docs"
TEXT = """# Title

Prose.

<!-- section one -->
old
<!-- end of one -->

Why it fails: \\1 $.

<!-- section two -->
<!-- end of two -->
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "truth.md"
    path.write_text(TEXT)
    return path


def test_what_stands_between_marks_is_renewed_and_all_else_stays_as_it_is(path):
    renew(path, "one", [Text([r"new \1"])])

    assert path.read_text() == TEXT.replace("old", r"new \1")


def test_renewing_with_the_same_changes_nothing(path):
    parts = [Text(["first", "- a", "- b"]), Grid(("a", "b\nc"), [("x", "1")], title="Worst")]
    for _ in range(2):
        renew(path, "two", parts)

    section = "first\n\n- a\n- b\n\nWorst:\n\n| a | b c |\n|---|--:|\n| x | 1 |\n"
    assert markdown(parts) == section
    assert path.read_text() == TEXT.replace("<!-- end of two", f"{section}<!-- end of two")


@pytest.mark.parametrize("text", ["", "# Title\n", TEXT.replace("one", "three"), TEXT + TEXT])
def test_a_document_without_the_section_is_refused_before_any_work(text, tmp_path):
    path = tmp_path / "truth.md"
    path.write_text(text)

    with pytest.raises(UsageError, match=re.escape("between the lines <!-- section one --> and")):
        check_section(path, "one")


def test_documents_have_every_section_that_a_program_renews():
    for name in ("shaped", "incast", "published", "devices", "scripts", "training"):
        check_section(DOCUMENTS / "truth.md", name)
    check_section(DOCUMENTS / "claims.md", "claims")
