"""What the documents show is run: their Python, their files, their links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddp import Profile
from sim import load_device, load_network

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}

    for block in blocks(ROOT / "README.md", "python"):
        exec(block, namespace)

    assert (tmp_path / "step.json").stat().st_size > 0


def test_the_files_that_are_shown_can_be_loaded(tmp_path: Path) -> None:
    document = ROOT / "docs" / "files.md"
    (tmp_path / "profile.json").write_text(*blocks(document, "json"))
    for name, text in zip(("network", "device"), blocks(document, "toml"), strict=True):
        (tmp_path / f"{name}.toml").write_text(text)

    assert len(Profile.load(tmp_path / "profile.json").gradients) == 2
    assert load_network(tmp_path / "network.toml").topology(12).num_ranks == 12
    assert load_device(tmp_path / "device.toml").rates.keys() == {"bfloat16"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())

    assert [target for target in targets if not (document.parent / target).exists()] == []
