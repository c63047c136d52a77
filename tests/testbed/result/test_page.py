from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim import Trace
from testbed.cli import app
from testbed.plots.interactive.timeline import (
    MOST_HEIGHT,
    MOST_PIECES,
    RankRow,
    rank_rows,
    spell_alike,
    timeline,
)
from testbed.result import Facts, Grid, Result, Text

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no headless Chromium here")


def console_of(page: Path) -> list[str]:
    """Return what the browser's console says of *page*, and fail where it shows nothing."""
    assert CHROMIUM is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    command = [CHROMIUM, *options, "--virtual-time-budget=8000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert "bk-Canvas" in done.stdout or "bk-Figure" in done.stdout
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line and "[bokeh " not in line]


@needs_chromium
def test_a_page_opens_without_a_network_and_its_console_says_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    command = ["simulate", "ring", "--network", "dgx-h100", "--ranks", "16", "--nbytes", "1M", "--html"]
    done = CliRunner().invoke(app, [*command, str(page)])

    assert done.exit_code == 0
    assert console_of(page) == []
    assert page.stat().st_size < 5_000_000
    assert "http" not in page.read_text().split("</style>")[0]


@given(st.text(max_size=40))
def test_no_text_becomes_markup(text: str) -> None:
    parts = [Text((text,)), Facts({text: text}), Grid((text,), ((text,),))]
    result = Result(text, text, "measured", text, parts=parts)

    for shown in (result.to_html(), result._repr_html_()):
        assert shown.count("<script") == 0
        assert shown.count("<p") == 1 + shown.count("<pre")


def test_ranks_that_do_the_same_share_a_row() -> None:
    trace = Trace()
    for rank in range(8):
        late = 500 if rank == 5 else 0
        trace.span(rank, "compute", "forward", 0, 1000)
        trace.span(rank, "communication", "all_reduce", 1000 + late, 2000)

    rows = rank_rows(trace)

    assert [row.label for row in rows] == ["ranks 0–4, 6–7 alike (7)", "rank 5"]


def test_of_many_ranks_that_differ_a_timeline_holds_no_more_pieces_than_a_page_may() -> None:
    pieces = [(10 * n, 10 * n + 5 + n % 3, "all_reduce" if n % 2 else "all_gather") for n in range(100)]
    rows = [RankRow([rank], {"communication": pieces}) for rank in range(512)]

    drawn = timeline(rows)

    (bars,) = drawn.renderers
    assert 512 <= len(bars.data_source.data["left"]) <= MOST_PIECES
    assert "drawn as one" in drawn.xaxis.axis_label
    assert drawn.height == MOST_HEIGHT
    assert drawn.y_range.bounds[0] < -512 < drawn.y_range.start


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted))
def test_the_label_of_ranks_that_are_alike_is_short(ranks: list[int]) -> None:
    label = spell_alike(ranks)

    assert str(ranks[0]) in label
    assert len(label) < 50
