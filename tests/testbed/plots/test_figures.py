"""A figure is one description: a picture and a page show the same names, units and ticks of it."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives.timing import simulate
from sim import Topology, load_network
from sim.topology.kinds.graph import LinkSpec
from testbed.calibration.live.fit import Fitted
from testbed.calibration.live.plan import Row, Wiring, patterns_of
from testbed.errors import UsageError
from testbed.plots.drawn_network import drawn_network
from testbed.plots.figure import Axis, Drawing, Level, Line, Lines, Panel, Shares
from testbed.plots.inline import inline
from testbed.plots.page_timeline import timeline
from testbed.plots.picture import draw, drawn
from testbed.plots.timeline import RankRow, Timeline
from testbed.report.calibration import fit_figure
from testbed.report.designs import Design, front
from testbed.result import Plot, Result


def calibration():
    patterns = list(patterns_of(Wiring(3), 1 << 20))
    rows = tuple(Row(pattern, (1e-4 + pattern.nbytes * 1e-8,) * 4) for pattern in patterns)
    predicted = np.array([1.02 * row.median for row in rows])
    nothing = np.zeros(0)
    return fit_figure(Fitted((), nothing, nothing, nothing, rows, predicted, Wiring(3)))


def load():
    topology = load_network("dgx-h100").topology(16)
    return drawn_network(topology, simulate("ring", nbytes=1 << 20, topology=topology).links)


TEXT, TITLE = (f"{{http://www.w3.org/2000/svg}}{tag}" for tag in ("text", "title"))
POINTS = [(1.0, 3.0), (10.0, 40.0), (100.0, 90.0)]
DESIGNS = [Design("best", 1, 2, True), Design("its equal", 1, 2, True), Design("other", 2, 3, False)]
PANEL = Panel(Axis("value (ms)"), [Line("a line", POINTS), Line("none", [])], [Level(9.0, "a level")])
FIGURES = {
    "lines": (
        Lines(Axis("ranks", log=True), [[PANEL]], marked=25),
        ["a line", "a level", "value (ms)", "100"],
    ),
    "panels": (Lines(Axis("ranks"), [[PANEL, PANEL], [PANEL, PANEL]]), ["a line", "a level", "value (ms)"]),
    "front": (front(DESIGNS, Axis("time"), Axis("cost")), ["best, its equal", "others", "time", "cost"]),
    "calibration": (
        calibration(),
        ["ours", "native", "broadcast, 2 ranks", "all-to-all, 3 ranks", "size of the buffer"],
    ),
    "shares": (
        Shares(Axis("% lost"), ["one", "two"], [("late", [1, 2]), ("slow", [3, -1])], [(2, 5), (1, 9)]),
        ["one", "slow"],
    ),
    "timeline": (
        Timeline([RankRow([0, 1], {"compute": [(0, 10, "forward"), (10, 20, "waiting")]})]),
        ["ranks 0–1 alike: compute", "forward", "waiting", "virtual time (µs)"],
    ),
    "network": (drawn_network(load_network("dgx-h100").topology(8)), ["357.3 GB/s, 300 ns"]),
    "load": (load(), ["utilisation"]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_and_a_page_say_the_same(name, tmp_path):
    figure, said = FIGURES[name]

    draw(figure, tmp_path / "drawn.svg", title="A title", note="A note.")
    page = on_page(figure) if isinstance(figure, Timeline) else inline(figure)

    picture = (tmp_path / "drawn.svg").read_text(encoding="utf-8")
    assert [word for word in [*said, "A title", "A note."] if f"<!-- {word}" not in picture] == []
    assert [word for word in said if word not in page] == []


def on_page(figure):
    """Return all that a page holds of *figure*."""
    from bokeh.document import Document

    document = Document()
    document.add_root(timeline(figure))
    return json.dumps(document.to_json(), ensure_ascii=False, default=lambda own: getattr(own, "content", ""))


def titles(page):
    """Return what the pieces of a figure say on a page."""
    return [own.text or "" for own in page.iter(TITLE)]


def on_paper(figure):
    """Return *figure* as an element of a page."""
    return ElementTree.fromstring(inline(figure))


POINTS_OF_A_LINE = st.sets(st.tuples(st.integers(1, 99), st.integers(1, 99)), max_size=5)


@pytest.mark.costly
@settings(deadline=None, max_examples=10)
@given(st.lists(POINTS_OF_A_LINE, min_size=1, max_size=4))
def test_every_point_of_a_line_says_its_values_on_a_page(points):
    lines = [Line(f"line {number}", sorted(own)) for number, own in enumerate(points)]

    page = on_paper(Lines(Axis("x"), [[Panel(Axis("y"), lines)]]))

    in_legend = [text.text for own in page.iter() if own.get("class") == "legend" for text in own.iter(TEXT)]
    assert set(in_legend) <= {own.get("data-name") for own in page.iter()}
    assert len(in_legend) in (0, sum(bool(line.points) for line in lines))
    assert sorted(titles(page)) == sorted(
        f"{line.name}\nx: {at}\ny: {value}" for line in lines for at, value in line.points
    )


def test_every_piece_link_and_vertex_says_what_it_is_on_a_page():
    bars = Shares(Axis("% lost"), ["one", "two"], [("late", [1, 2]), ("slow", [3, 4])])
    ends = ["ab", "bc", "ca", "ac"]  # there and back between a and c
    network = Topology.graph(ranks="abc", links=[LinkSpec(*pair, 10**9, 10**6) for pair in ends])

    said = titles(on_paper(drawn_network(network)))

    assert sorted(titles(on_paper(bars))) == ["one\nlate: 1", "one\nslow: 3", "two\nlate: 2", "two\nslow: 4"]
    assert {"a", "b", "c"} <= set(said)
    assert sum(own.startswith("a → b") for own in said) == 2  # a line and its head
    assert sum(own.startswith("a – c") for own in said) == 1
    assert sum(own.endswith(" % used") for own in titles(on_paper(load()))) == load().num_lines


def test_a_name_is_drawn_as_it_is(tmp_path):
    name = "a$x^$ <b>&amp; _{"
    figure = Lines(
        Axis(name), [[Panel(Axis("y"), [Line(name, POINTS), Line("other", POINTS)], heading=name)]]
    )

    draw(figure, tmp_path / "drawn.png", title=name, note=name)

    assert [text.text for text in on_paper(figure).iter(TEXT)].count(name) == 3


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_a_picture_is_the_same_bytes_each_time(tmp_path, suffix):
    files = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for file in files:
        draw(FIGURES["lines"][0], file, title="t", note="n")

    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_network_that_nobody_could_tell_apart_is_left_out_of_a_page_and_refused_as_a_picture(
    tmp_path,
):
    link = {"bandwidth": "1GB/s", "latency": "1us"}
    topology = Topology.switch(num_ranks=5000, **link)
    result = Result("q", "a", "measured", "m", parts=[Plot(lambda: drawn_network(topology), "The network")])

    assert "The network" not in result.to_html()
    with pytest.raises(UsageError, match=r"5001 ranks and switches are too many .* at most 4000"):
        result.draw(tmp_path / "large.png")


def test_a_drawing_is_written_as_it_is_and_is_an_image_of_a_page(tmp_path):
    result = Result("q", "a", "measured", "m", parts=[Plot(lambda: Drawing("<svg/>"), "Drawn")])

    result.draw(tmp_path / "drawn.svg")

    assert (tmp_path / "drawn.svg").read_text() == "<svg/>"
    assert '<img alt="Drawn" src="data:image/svg+xml;base64,' in result.to_html()
    with pytest.raises(UsageError, match=r"ends in \.svg"):
        result.draw(tmp_path / "drawn.png")


def ticks_beside(axis, values):
    """Return the ticks that a picture has on the vertical *axis* of such *values*."""
    line = Line("a line", list(enumerate(values)))
    (panel,) = drawn(Lines(Axis("x"), [[Panel(axis, [line])]])).axes
    low, high = panel.get_ylim()
    assert low < min(values)
    assert max(values) < high
    return [float(tick) for tick in panel.get_yticks() if low <= tick <= high]


@pytest.mark.costly
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=20), st.booleans())
@example([21.0, 48.0], True)
@example([9.0, 91.0], True)
def test_ticks_are_some_few(values, is_log):
    assert 3 <= len(ticks_beside(Axis("any", log=is_log), values)) <= 25


@pytest.mark.costly
@settings(deadline=None, max_examples=settings.default.max_examples // 2)
@given(st.sets(st.integers(1, 1 << 40), min_size=1, max_size=60), st.booleans())
def test_ticks_at_values_are_no_more_than_there_is_room_for(at, is_log):
    ticks = ticks_beside(Axis("size", log=is_log, at=sorted(at)), sorted(at))

    assert set(ticks) <= at
    assert min(at) in ticks
    assert len(ticks) <= 12
