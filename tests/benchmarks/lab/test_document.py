"""A document of sections: each command renews its own."""

from __future__ import annotations

from pathlib import Path

from benchmarks.lab.document import Section, renew


def test_a_section_is_renewed_and_the_others_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "truth.md"
    renew(path, Section("training", "Training", "third"))
    renew(path, Section("shaped", "Shaped networks", "first | old"))
    renew(path, Section("published", "Published", "second"))
    before = path.read_text()
    renew(path, Section("shaped", "Shaped networks", "first | new"))

    assert path.read_text() == before.replace("old", "new")
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        "# How true the predictions are",
        "## Shaped networks",
        "## Published",
        "## Training",
    ]


def test_renewing_with_the_same_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "truth.md"
    section = Section("shaped", "Shaped networks", "| a |\n\n### b\n\ntext")
    renew(path, section)
    before = path.read_text()
    renew(path, section)

    assert path.read_text() == before
