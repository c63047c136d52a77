"""A timeline shows one iteration: each rank computes or waits, and for as long as the report says."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim import Trace
from testbed.cli import app
from testbed.plots.timeline_plot import Timeline, spell_alike

PIPELINE = str(Path(__file__).parents[4] / "examples" / "pipeline.py")
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of what its own pipelines do


def length(pieces: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in pieces)


@pytest.mark.costly
def test_what_each_rank_computed_and_waited_for_is_what_the_report_says() -> None:
    trace = Trace()
    argv = ["--width", "64", "--batch", "256", "--steps", "3"]
    report = run(PIPELINE, 3, "dgx-h100", compute=Roofline("h100"), argv=argv, trace=trace).report

    timeline = Timeline.of_last_iteration(trace, report)

    for rank in timeline.ranks:
        spent = report.iterations[-1][rank]
        computed, waited = sum(map(length, timeline.computed[rank].values())), length(timeline.waited[rank])
        assert computed / 1e12 == pytest.approx(spent.compute_seconds, abs=1e-11)
        assert waited / 1e12 == pytest.approx(spent.exposed_seconds, abs=1e-11)
        assert (
            length(timeline.communicated[rank]) < waited
        )  # one that waits for a message is not one on its way
    assert {"forward", "backward", "optimizer"} == set(timeline.computed[0])


@pytest.mark.costly
def test_a_timeline_is_drawn_of_a_script(tmp_path: Path) -> None:
    options = ["--ranks", "2", "--compute", "h100", "--timeline"]

    drawn = CliRunner().invoke(app, ["run", *options, str(tmp_path / "a.svg"), PIPELINE, "--steps", "2"])
    refused = CliRunner().invoke(app, ["run", *options, str(tmp_path / "a.xyz"), PIPELINE])

    assert drawn.exit_code == 0
    assert "<!-- waiting -->" in (tmp_path / "a.svg").read_text()
    assert refused.exit_code == 2


def test_ranks_that_do_the_same_are_one_row() -> None:
    busy, other = {"forward": [(0, 5)]}, {"forward": [(0, 4)]}
    timeline = Timeline(range(4), [busy, busy, other, busy], [[]] * 4, [[]] * 4, 5)

    groups = timeline.alike()

    assert groups == [[0, 1, 3], [2]]
    assert [spell_alike(ranks) for ranks in [*groups, [4, 5, 6, 7]]] == [
        "rank 0 and 2 alike",
        "rank 2",
        "ranks 4–7 alike",
    ]
