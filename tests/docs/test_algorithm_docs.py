"""docs/algorithms.md: what is committed is what the algorithms say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from collectives import NotSupportedError, algorithm, resolve_algorithm
from collectives.algorithms import ALGORITHMS
from collectives.program import Algorithm, Cost
from docs.tools.algorithm_docs import algorithm_docs, by_file, cost_of, proved_for

COMMITTED = Path(__file__).parents[2] / "docs" / "algorithms.md"


def proved_for_as_committed(algorithm: Algorithm) -> str:
    row = rf"^\| \[{algorithm.name}\]\(#{algorithm.name}-{algorithm.collective}\) \| (.+?) \|"
    found = re.search(row, COMMITTED.read_text(encoding="utf-8"), re.MULTILINE)
    return "" if found is None else found[1]


@pytest.fixture(scope="module")
def page() -> str:
    return algorithm_docs(proved_for_as_committed)


def test_the_committed_page_is_up_to_date(page: str) -> None:
    assert COMMITTED.read_text(encoding="utf-8") == page, "run `make docs` and commit the result"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_algorithms_are_proved_for_the_sizes_that_the_committed_page_says() -> None:
    committed = {algorithm: proved_for_as_committed(algorithm) for algorithm in by_file()}

    assert committed == {algorithm: proved_for(algorithm) for algorithm in by_file()}


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
