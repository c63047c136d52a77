"""Generated documents: pages of algorithms, and what is committed of what `make docs` makes."""

import json
import re
from typing import Any

import pytest

from collectives import Cost, NotSupportedError, algorithm, resolve_algorithm
from collectives.algorithms import ALGORITHMS
from docs.tools.algorithm_docs import PROVED_FOR, algorithm_pages, by_file, cost_of, proved_for
from docs.tools.architecture import PACKAGES, PATH, picture
from docs.tools.schedule_gallery import first_accepted
from docs.tools.schemas import DOCS, schemas
from tests.documents.blocks import ROOT


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return algorithm_pages()


@pytest.fixture(scope="module")
def page(pages: dict[str, str]) -> str:
    return pages["algorithms.md"]


@pytest.fixture(scope="module")
def gallery(pages: dict[str, str]) -> str:
    return pages["schedules/README.md"]


def scopes() -> dict[str, str]:
    return json.loads(PROVED_FOR.read_text(encoding="utf-8"))


def test_the_proved_world_sizes_are_kept_for_every_algorithm():
    """To renew them: ``make docs``."""
    assert list(scopes()) == [f"{own.name}-{own.collective}" for own in by_file()]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_algorithms_are_proved_for_the_sizes_that_are_kept():
    assert scopes() == {f"{own.name}-{own.collective}": proved_for(own) for own in by_file()}


@pytest.mark.parametrize("shipped", ALGORITHMS, ids=lambda shipped: f"{shipped.collective}-{shipped.name}")
def test_every_algorithm_has_a_row_a_section_and_drawings(pages, page, gallery, shipped):
    picture = f"schedules/{shipped.collective}-{shipped.name}.svg"
    assert page.count(f"| [{shipped.name}](#{shipped.name}-{shipped.collective}) |") == 1
    section = (
        page.split(f"\n### {shipped.name}, {shipped.collective}\n")[1].split("\n## ")[0].split("\n### ")[0]
    )
    assert section.count("```") == 2
    assert f'src="{picture}"' in section
    assert "step 0" in section
    assert pages[picture].startswith("<svg")
    assert f'href="../algorithms.md#{shipped.name}-{shipped.collective}"' in gallery


def test_every_link_within_the_page_leads_to_a_heading(page):
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)

    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= anchors


def test_the_gallery_shows_every_drawing(pages, gallery):
    assert {f"schedules/{name}" for name in re.findall(r'src="([^"]+)"', gallery)} == {
        name for name in pages if name.endswith(".svg")
    }


def test_an_algorithm_has_a_cost_and_is_drawn_for_a_size_that_it_accepts():
    @algorithm(cost=lambda world_size: Cost(0, 0))
    def picky(rank: int, world_size: int) -> Any:
        if world_size != 6:
            raise NotSupportedError("use ring")
        yield ()

    assert (cost_of(picky, 3), cost_of(picky, 6)) == (None, Cost(0, 0))
    assert cost_of(resolve_algorithm("ring"), 3) is not None
    assert first_accepted(picky, (8, 4, 6, 9)) == 6
    with pytest.raises(ValueError, match="picky refuses every one of 8, 4 ranks"):
        first_accepted(picky, (8, 4))


def test_the_committed_picture_is_what_the_script_draws():
    """To renew it: ``python -m docs.tools.architecture``."""
    assert (ROOT / PATH).read_text(encoding="utf-8") == picture()


def test_the_rooms_are_the_folders():
    drawn = {package.name: {room.name for room in package.rooms} for package in PACKAGES}

    assert drawn == {
        name: {path.parent.name for path in (ROOT / name).glob("*/__init__.py")} for name in drawn
    }


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_that_of_its_model(name):
    """To renew them: ``python -m docs.tools.schemas``."""
    assert json.loads((DOCS / f"{name}.schema.json").read_text(encoding="utf-8")) == schemas()[name]
