"""Generated documents: what is committed is what the tools behind `make docs` make."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from collectives import NotSupportedError, algorithm, resolve_algorithm
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm, Cost
from docs.tools.algorithm_docs import algorithm_docs, by_file, cost_of, proved_for
from docs.tools.architecture import PACKAGES, PATH, picture
from docs.tools.schedule_gallery import first_accepted, gallery, write_gallery
from docs.tools.schemas import DOCS, schemas
from tests.documents.blocks import ROOT

ALGORITHMS_PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"


def proved_for_as_committed(algorithm: Algorithm) -> str:
    row = rf"^\| \[{algorithm.name}\]\(#{algorithm.name}-{algorithm.collective}\) \| (.+?) \|"
    found = re.search(row, ALGORITHMS_PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return "" if found is None else found[1]


@pytest.fixture(scope="module")
def page() -> str:
    return algorithm_docs(proved_for_as_committed)


def test_the_committed_page_is_up_to_date(page: str) -> None:
    assert ALGORITHMS_PAGE.read_text(encoding="utf-8") == page, "run `make docs` and commit the result"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_algorithms_are_proved_for_the_sizes_that_the_committed_page_says() -> None:
    shipped = by_file()

    assert [proved_for_as_committed(own) for own in shipped] == [proved_for(own) for own in shipped]


@pytest.mark.parametrize("shipped", ALGORITHMS, ids=lambda shipped: f"{shipped.collective}-{shipped.name}")
def test_every_algorithm_has_a_row_a_section_and_a_drawing(page: str, shipped: Any) -> None:
    assert page.count(f"| [{shipped.name}](#{shipped.name}-{shipped.collective}) |") == 1
    section = (
        page.split(f"\n### {shipped.name}, {shipped.collective}\n")[1].split("\n## ")[0].split("\n### ")[0]
    )
    assert section.count("```") == 2
    assert f'src="schedules/{shipped.collective}-{shipped.name}.svg"' in section
    assert "step 0" in section


def test_every_link_within_the_page_leads_to_a_heading(page: str) -> None:
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)

    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_the_costs_are_those_declared(page: str) -> None:
    assert (
        "| [ring](#ring-all_reduce) | every size | 6 | 22 | 126 | 2046 | 1.00 | 1.00 | 1.00 | 1.00 |" in page
    )


def test_a_world_size_that_is_refused_has_no_cost() -> None:
    @algorithm(cost=lambda world_size: Cost(0, 0))
    def picky(rank: int, world_size: int) -> Any:
        if world_size == 3:
            raise NotSupportedError("use ring")
        yield ()

    assert cost_of(picky, 3) is None
    assert cost_of(picky, 2) == Cost(0, 0)
    assert cost_of(resolve_algorithm("ring"), 3) is not None


PICTURES = Path(__file__).parents[2] / "docs" / "schedules"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return gallery(by_file())


def test_the_committed_pictures_are_up_to_date(files: dict[str, str]) -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in PICTURES.iterdir()}

    assert sorted(committed) == sorted(files), "run `make docs` and commit the result"
    assert committed == files, "run `make docs` and commit the result"


def test_the_page_shows_every_picture_and_leads_to_sections_that_there_are(files: dict[str, str]) -> None:
    page = files["README.md"]
    headings = re.findall(
        r"^### (.+), (.+)$", (PICTURES.parent / "algorithms.md").read_text(encoding="utf-8"), re.MULTILINE
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


def test_the_committed_picture_is_what_the_script_draws() -> None:
    """To renew it: ``python -m docs.tools.architecture``."""
    assert (ROOT / PATH).read_text(encoding="utf-8") == picture()


def test_the_rooms_are_the_folders() -> None:
    drawn = {package.name: {room.name for room in package.rooms} for package in PACKAGES}

    assert drawn == {
        name: {path.parent.name for path in (ROOT / name).glob("*/__init__.py")} for name in drawn
    }


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_that_of_its_model(name: str) -> None:
    """To renew them: ``python -m docs.tools.schemas``."""
    assert json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8")) == schemas()[name]
