"""docs/schedules/: what is committed is what the algorithms do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from collectives import NotSupportedError, algorithm, resolve_algorithm
from docs.tools.algorithm_docs import by_file
from docs.tools.schedule_gallery import first_accepted, gallery, write_gallery

COMMITTED = Path(__file__).parents[2] / "docs" / "schedules"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return gallery(by_file())


def test_the_committed_pictures_are_up_to_date(files: dict[str, str]) -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in COMMITTED.iterdir()}

    assert sorted(committed) == sorted(files), "run `make docs` and commit the result"
    assert committed == files, "run `make docs` and commit the result"


def test_the_page_shows_every_picture_and_leads_to_sections_that_there_are(files: dict[str, str]) -> None:
    page = files["README.md"]
    headings = re.findall(
        r"^### (.+), (.+)$", (COMMITTED.parent / "algorithms.md").read_text(encoding="utf-8"), re.MULTILINE
    )

    assert set(re.findall(r'src="([^"]+)"', page)) == files.keys() - {"README.md"}
    assert set(re.findall(r'href="\.\./algorithms\.md#([^"]+)"', page)) == {
        f"{name}-{collective}" for name, collective in headings
    }


def test_pictures_of_what_no_longer_ships_are_removed(tmp_path: Path) -> None:
    ring = resolve_algorithm("ring")
    write_gallery(tmp_path, [ring, resolve_algorithm("tree")])

    write_gallery(tmp_path, [ring])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "all_reduce-ring.svg"]


def test_an_algorithm_is_drawn_for_a_size_that_it_accepts() -> None:
    @algorithm()
    def picky(rank: int, world_size: int) -> Any:
        if world_size != 6:
            raise NotSupportedError("use ring")
        yield ()

    assert first_accepted(picky, (8, 4, 6, 9)) == 6
    with pytest.raises(ValueError, match="picky refuses every one of 8, 4 ranks"):
        first_accepted(picky, (8, 4))
