"""A timeline shows one iteration: each rank computes or waits, and for as long as the report says."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from sim import Trace
from testbed.plots.figure import NoFigure
from testbed.plots.page_timeline import MOST_HEIGHT, MOST_PIECES, timeline
from testbed.plots.timeline import (
    COMPUTE,
    MESSAGES,
    MOST_LANES,
    WAITING,
    RankRow,
    Timeline,
    between,
    last_iteration,
    merged,
    spell_alike,
    timeline_of,
)

EXAMPLES = Path(__file__).parents[3] / "examples"
PIPELINE, DATA_PARALLEL = (str(EXAMPLES / f"{name}.py") for name in ("pipeline", "data_parallel"))


def length(pieces):
    return sum(end - start for start, end, _ in pieces)


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore")  # torch warns of what its own pipelines do
def test_what_each_rank_computed_and_waited_for_is_what_the_report_says():
    trace = Trace()
    argv = ["--width", "64", "--batch", "256", "--steps", "3"]
    report = run(PIPELINE, 3, "dgx-h100", compute=Roofline("h100"), argv=argv, trace=trace).report

    drawn = last_iteration(trace, report)

    assert sorted(rank for row in drawn.rows for rank in row.ranks) == [0, 1, 2]
    for row in drawn.rows:
        spent = report.iterations[-1][row.ranks[0]]
        waited = [piece for piece in row.tracks[COMPUTE] if piece[2] == WAITING]
        computed = [piece for piece in row.tracks[COMPUTE] if piece[2] != WAITING]
        assert length(computed) / 1e12 == pytest.approx(spent.compute_seconds, abs=1e-11)
        assert length(waited) / 1e12 == pytest.approx(spent.exposed_seconds, abs=1e-11)
        # one that waits for a message is not one on its way
        assert length(merged(row.tracks[MESSAGES], MESSAGES)) < length(waited)
        assert {"forward", "backward", "optimizer"} == {name for *_, name in computed}


@pytest.mark.filterwarnings("ignore")  # torch warns of what its own DDP does
def test_of_folded_ranks_those_are_drawn_that_were_followed():
    trace = Trace()
    report = run(DATA_PARALLEL, 16, "dgx-h100", compute=Roofline("h100"), fold=True, trace=trace).report

    drawn = last_iteration(trace, report)

    assert report.folded
    assert 0 < sum(len(row.ranks) for row in drawn.rows) < 16
    for row in drawn.rows:
        assert {name for *_, name in row.tracks[COMPUTE]} > {WAITING}


def test_where_nothing_takes_time_there_is_no_timeline():
    report = SimpleNamespace(num_ranks=2, iterations=(), seconds=0.0, folded=())

    with pytest.raises(NoFigure, match="nothing took any time"):
        last_iteration(Trace(), report)


def test_ranks_that_do_the_same_share_a_row():
    trace = Trace()
    for rank in range(8):
        late = 500 if rank == 5 else 0
        trace.span(rank, "compute", "forward", 0, 1000)
        trace.span(rank, "communication", "all_reduce", 1000 + late, 2000)

    rows = timeline_of(trace).rows

    assert [row.label for row in rows] == ["ranks 0–4, 6–7 alike (7)", "rank 5"]


def test_what_never_ended_is_drawn_beyond_the_end_for_the_ranks_that_waited_for_it():
    trace = Trace()
    for rank in range(3):
        trace.span(rank, "compute", "forward", 0, 8_000_000)
    trace.unfinished(0, "communication", "barrier", 8_000_000)
    trace.unfinished(1, "communication", "recv", 8_000_000)

    rows = {row.label: row.tracks.get("communication") for row in timeline_of(trace).rows}

    assert rows == {
        "rank 0": [(8_000_000, 9_000_000, "never ended: barrier")],
        "rank 1": [(8_000_000, 9_000_000, "never ended: recv")],
        "rank 2": None,
    }


def test_in_a_window_a_rank_computes_or_waits():
    trace = Trace()
    trace.span(0, "compute", "forward", 0, 1000)

    drawn = timeline_of(trace, {0: (500, 2000), 1: (500, 2000)})

    assert drawn.rows[0].tracks[COMPUTE] == [(0, 500, "forward"), (500, 1500, WAITING)]
    assert drawn.rows[1].tracks[COMPUTE] == [(0, 1500, WAITING)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=12))
def test_what_is_in_none_of_the_pieces_is_between_them(drawn):
    pieces = [(start, start + size, "forward") for start, size in drawn]
    covered = {at for start, end, _ in pieces for at in range(start, end)}

    idle = between(pieces, 0, 60)

    assert {at for start, end, _ in idle for at in range(start, end)} == set(range(60)) - covered


def many_rows(count):
    pieces = [(10 * n, 10 * n + 5 + n % 3, "all_reduce" if n % 2 else "all_gather") for n in range(100)]
    return Timeline([RankRow([rank], {"communication": pieces}) for rank in range(count)])


def test_a_picture_shows_the_first_rows_and_a_part_of_a_long_timeline_that_is_drawn_larger():
    shown, left_out = many_rows(512).first_rows()
    start, end = many_rows(1).part()

    assert len(list(shown.lanes())) == MOST_LANES
    assert left_out == 512 - MOST_LANES
    assert 0 < end - start < many_rows(1).until / 10
    assert Timeline([RankRow([0], {"communication": [(0, 5, "all_reduce")]})]).part() is None


def test_of_many_ranks_that_differ_a_page_holds_no_more_pieces_than_it_may():
    drawn = timeline(many_rows(512))

    pieces = sum(len(bars.data_source.data["left"]) for bars in drawn.renderers)
    assert 512 <= pieces <= MOST_PIECES
    assert "drawn as one" in drawn.xaxis.axis_label
    assert drawn.height <= MOST_HEIGHT
    assert drawn.y_range.start < drawn.y_range.bounds[1]


@given(st.sets(st.integers(0, 60), min_size=1).map(sorted))
def test_the_label_of_ranks_that_are_alike_is_short(ranks):
    label = spell_alike(ranks)

    assert str(ranks[0]) in label
    assert len(label) < 50
