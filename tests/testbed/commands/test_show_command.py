"""`testbed show`: the grid, what stands above it, and the SVG."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest

from collectives import Copy, Recv, Send, algorithm, resolve_algorithm
from collectives.program.render import draw
from testbed.errors import UsageError
from testbed.plots.schedule import schedule_of
from testbed.plots.schedule_svg import schedule_svg
from testbed.report.schedule import cut
from tests.commands import called, reported

SVG = "{http://www.w3.org/2000/svg}"

OWN = """
from collectives import RecvReduce

def deaf(rank, world_size):
    yield RecvReduce(1 - rank, chunk=0)

def fails(rank, world_size):
    raise IndexError("no")
    yield

"""


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_the_grid_stands_between_cost_and_source_and_the_notation():
    shown, document = called("show ring --ranks 4").stdout, reported("show ring --ranks 4")

    above, below = shown.split(draw(resolve_algorithm("ring"), 4))
    assert above.startswith("ring all_reduce, 4 ranks\n")
    assert "6 steps, 24 messages; the busiest rank sends 1.500 of the buffer, 1.00 times" in above
    assert "source  Patarasuk and Yuan" in above
    assert "also    for reduce_scatter, all_gather" in above
    assert "c>r sends chunk c to rank r" in below
    assert "(NAME:parameter=value,…)" in called("show chain --ranks 4").stdout
    assert (document["method"], document["cost"]["num_messages"]) == ("proved", 24)
    assert len(document["schedule"]["messages"]) == 24


@pytest.mark.parametrize(
    ("program", "message", "drawn"),
    [
        ("deaf", "deadlock", "        rank 0  rank 1\nstep 0  0+1     0+0\n"),
        ("fails", "the program raised IndexError", "  rank 0  rank 1\n"),
    ],
)
def test_the_schedule_of_a_wrong_program_is_drawn_as_far_as_it_goes_before_the_fault_is_told(
    program, message, drawn, own_file
):
    result = called(f"show {own_file}:{program} --ranks 2", code=1)

    assert message in result.stderr
    assert result.stdout == drawn
    assert message in reported(f"show {own_file}:{program} --ranks 2", code=1)["fault"]


GRID = draw(resolve_algorithm("ring"), 16)


@pytest.mark.parametrize("width", [20, 40, 41, 42, 43, 80, 100])
def test_a_wide_grid_loses_whole_ranks_and_says_how_many(width):
    shown, note = cut(GRID, width)

    lines = shown.split("\n")
    num_shown = lines[0].count("rank")
    one_more = draw(resolve_algorithm("ring"), 16, ranks=range(num_shown + 1))
    assert max(map(len, lines)) <= width < max(map(len, one_more.split("\n")))
    assert shown == draw(resolve_algorithm("ring"), 16, ranks=range(num_shown))
    assert f"{16 - num_shown} of 16 ranks not shown" in note


def test_a_grid_is_whole_where_it_fits_and_cut_within_it_where_no_rank_does():
    shown, note = cut(GRID, 12)

    assert cut(GRID, None) == cut(GRID, 10_000) == (GRID, "")
    assert max(map(len, shown.split("\n"))) == 12
    assert note.startswith("Cut to the terminal")


def test_on_a_terminal_nothing_is_wider_than_it(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")

    shown = re.sub(r"\x1b\[[0-9;]*m", "", called("show ring --ranks 16").stdout)

    assert max(map(len, shown.split("\n"))) <= 60
    assert "12 of 16 ranks not shown" in shown


def test_the_two_sides_of_a_message_may_lie_in_different_steps():
    @algorithm(num_chunks=1, collective="broadcast")
    def late(rank, world_size):
        if rank == 1:
            yield ()
            yield Recv(0, 0)
        else:
            yield Send(1, 0)

    (message,) = schedule_of(late, 2).messages

    assert (message.sent_in_step, message.received_in_step) == (0, 1)
    schedule_svg(schedule_of(late, 2))


def labels_of(svg):
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def classes(svg):
    """Count what the drawing holds of each kind, without the legend."""
    found = {}
    for group in ElementTree.fromstring(svg).findall(f"{SVG}g"):
        counted = found.setdefault(group.attrib["class"], Counter())
        counted.update(child.tag.removeprefix(SVG) for child in group)
    for counted in found.values():
        counted.subtract(["path", "rect", "text"])
    return found


def test_the_drawing_has_an_arrow_for_each_message_and_a_label_for_what_is_sent():
    ring = classes(schedule_svg(schedule_of(resolve_algorithm("ring"), 4)))
    direct = classes(schedule_svg(schedule_of(resolve_algorithm("direct", "all_gather"), 4)))

    assert ring == {kind: Counter(path=12, rect=12, text=12) for kind in ("reduce", "overwrite")}
    assert direct == {"overwrite": Counter(path=12, rect=4, text=4)}  # the same chunk to several ranks


def test_ranges_moves_and_copies_are_labelled():
    @algorithm(num_chunks=4, collective="all_gather")
    def moving(rank, world_size):
        yield Send(1 - rank, 2 * rank, 2), Recv(1 - rank, 2 * (1 - rank), 2)
        yield Send(1 - rank, 0), Recv(1 - rank, 3), Copy(0, 1, 2)

    labels = labels_of(schedule_svg(schedule_of(moving, 2)))

    assert {"0–1", "2–3", "0→3", "0–1→1–2", "copied (→) or reduced (→+) within a rank"} <= set(labels)


@pytest.mark.parametrize(
    ("name", "collective", "world_size"),
    [("ring", "all_reduce", 16), ("direct", "all_to_all", 16), ("naive", "all_reduce", 1)]
    + [("one_shot", "all_reduce", world_size) for world_size in (2, 4, 8)],
)
def test_nothing_of_the_drawing_and_of_its_legend_lies_outside_it(name, collective, world_size):
    root = ElementTree.fromstring(schedule_svg(schedule_of(resolve_algorithm(name, collective), world_size)))

    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{SVG}rect"):
        assert 0 <= float(box.get("x", 0)) <= width - float(box.attrib["width"])
        assert 0 <= float(box.get("y", 0)) <= height - float(box.attrib["height"])
    legend = [own for own in root.iter(f"{SVG}text") if own.attrib["y"] == "54.5" and own.text != "n"]
    assert all(float(own.attrib["x"]) + 6.4 * len(own.text or "") <= width for own in legend)


def test_a_drawing_that_nobody_could_read_is_refused():
    with pytest.raises(UsageError, match="16 ranks × 32 steps; ring for 17 ranks is 17 × 32; choose fewer"):
        schedule_svg(schedule_of(resolve_algorithm("ring"), 17))


def test_neighbouring_chunks_that_are_added_up_in_one_are_one_label():
    labels = labels_of(schedule_svg(schedule_of(resolve_algorithm("one_shot"), 4)))

    assert labels.count("s1–3→+0") == 4
    assert "copied (→) or reduced (→+) within a rank; s: scratch" in labels
