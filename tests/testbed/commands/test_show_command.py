"""`testbed show`: the grid, what stands above it, and the SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collectives import Copy, Recv, Send, algorithm, resolve_algorithm, verify
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
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_the_grid_stands_between_cost_and_source_and_the_notation() -> None:
    shown = called("show ring --ranks 4").stdout

    above, below = shown.split(draw(resolve_algorithm("ring"), 4))
    assert "6 steps, 24 messages; the busiest rank sends 1.500 of the buffer, 1.00 times" in above
    assert "source  Patarasuk and Yuan" in above
    assert "also    for reduce_scatter, all_gather" in above
    assert "c>r sends chunk c to rank r" in below


@pytest.mark.parametrize(
    ("options", "collective"), [("", "all_reduce"), ("--collective all_gather", "all_gather")]
)
def test_the_collective_is_all_reduce_unless_named(options: str, collective: str) -> None:
    assert called(f"show ring {options}").stdout.startswith(f"ring {collective}, 8 ranks\n")


def test_json_holds_the_schedule_and_how_it_was_proved() -> None:
    found = reported("show ring --ranks 3")

    assert (found["method"], found["cost"]["num_messages"]) == ("proved", 12)
    assert found["schedule"]["messages"][0] == {
        "source": 0,
        "destination": 1,
        "sent_in_step": 0,
        "received_in_step": 0,
        "chunk": 0,
        "into": 0,
        "num_chunks": 1,
        "reduces": True,
    }


@pytest.mark.parametrize(
    ("program", "message", "drawn"),
    [
        ("deaf", "deadlock", "        rank 0  rank 1\nstep 0  0+1     0+0\n"),
        ("fails", "the program raised IndexError", "  rank 0  rank 1\n"),
    ],
)
def test_the_schedule_of_a_wrong_program_is_drawn_as_far_as_it_goes_before_the_fault_is_told(
    program: str, message: str, drawn: str, own_file: Path
) -> None:
    result = called(f"show {own_file}:{program} --ranks 2", code=1)

    assert message in result.stderr
    assert result.stdout == drawn
    assert message in reported(f"show {own_file}:{program} --ranks 2", code=1)["fault"]


GRID = draw(resolve_algorithm("ring"), 16)


@pytest.mark.parametrize("width", [20, 40, 41, 42, 43, 80, 100])
def test_a_wide_grid_loses_whole_ranks_and_says_how_many(width: int) -> None:
    shown, note = cut(GRID, width)

    lines = shown.split("\n")
    assert max(map(len, lines)) <= width
    num_shown = lines[0].count("rank")
    assert shown == draw(resolve_algorithm("ring"), 16, ranks=range(num_shown))
    one_more = draw(resolve_algorithm("ring"), 16, ranks=range(num_shown + 1))
    assert max(map(len, one_more.split("\n"))) > width
    assert f"{16 - num_shown} of 16 ranks not shown" in note


def test_on_a_terminal_nothing_is_wider_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")

    shown = re.sub(r"\x1b\[[0-9;]*m", "", called("show ring --ranks 16").stdout)

    assert max(map(len, shown.split("\n"))) <= 60
    assert "12 of 16 ranks not shown" in shown


def test_a_grid_of_which_no_rank_fits_is_cut_within_it() -> None:
    shown, note = cut(GRID, 12)

    assert {len(line) for line in shown.split("\n")} == {12, len("         ra…")}
    assert note.startswith("Cut to the terminal")


@pytest.mark.parametrize("width", [None, 10_000])
def test_a_grid_that_fits_or_goes_to_a_file_is_whole(width: int | None) -> None:
    assert cut(GRID, width) == (GRID, "")


@pytest.mark.parametrize(
    ("name", "collective", "world_size"),
    [("ring", "all_reduce", 5), ("tree", "broadcast", 6), ("direct", "all_to_all", 4)],
)
def test_a_schedule_holds_every_message_once(name: str, collective: str, world_size: int) -> None:
    chosen = resolve_algorithm(name, collective)

    schedule = schedule_of(chosen, world_size)

    assert len(schedule.messages) == len(set(schedule.messages))
    assert len(schedule.messages) == verify(chosen, world_size).num_messages


def test_the_two_sides_of_a_message_may_lie_in_different_steps() -> None:
    @algorithm(num_chunks=1, collective="broadcast")
    def late(rank: int, world_size: int) -> Any:
        if rank == 1:
            yield ()
            yield Recv(0, 0)
        else:
            yield Send(1, 0)

    (message,) = schedule_of(late, 2).messages

    assert (message.sent_in_step, message.received_in_step) == (0, 1)
    schedule_svg(schedule_of(late, 2))


def labels_of(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def classes(svg: str) -> dict[str, Counter[str]]:
    """Count what the drawing holds of each kind, without the legend."""
    found: dict[str, Counter[str]] = {}
    for group in ElementTree.fromstring(svg).findall(f"{SVG}g"):
        counted = found.setdefault(group.attrib["class"], Counter())
        counted.update(child.tag.removeprefix(SVG) for child in group)
    for counted in found.values():
        counted.subtract(["path", "rect", "text"])
    return found


def test_the_drawing_has_an_arrow_for_each_message_and_a_label_for_what_is_sent() -> None:
    ring = classes(schedule_svg(schedule_of(resolve_algorithm("ring"), 4)))
    direct = classes(schedule_svg(schedule_of(resolve_algorithm("direct", "all_gather"), 4)))

    assert ring == {kind: Counter(path=12, rect=12, text=12) for kind in ("reduce", "overwrite")}
    assert direct == {"overwrite": Counter(path=12, rect=4, text=4)}  # the same chunk to several ranks


def test_ranges_moves_and_copies_are_labelled() -> None:
    @algorithm(num_chunks=4, collective="all_gather")
    def moving(rank: int, world_size: int) -> Any:
        yield Send(1 - rank, 2 * rank, 2), Recv(1 - rank, 2 * (1 - rank), 2)
        yield Send(1 - rank, 0), Recv(1 - rank, 3), Copy(0, 1, 2)

    labels = labels_of(schedule_svg(schedule_of(moving, 2)))

    assert {"0–1", "2–3", "0→3", "0–1→1–2", "copied (→) or reduced (→+) within a rank"} <= set(labels)


@pytest.mark.parametrize(
    ("name", "collective", "world_size"),
    [("ring", "all_reduce", 16), ("direct", "all_to_all", 16), ("naive", "all_reduce", 1)]
    + [("one_shot", "all_reduce", world_size) for world_size in (2, 4, 8)],
)
def test_nothing_of_the_drawing_and_of_its_legend_lies_outside_it(
    name: str, collective: str, world_size: int
) -> None:
    root = ElementTree.fromstring(schedule_svg(schedule_of(resolve_algorithm(name, collective), world_size)))

    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter(f"{SVG}rect"):
        assert 0 <= float(box.get("x", 0)) <= width - float(box.attrib["width"])
        assert 0 <= float(box.get("y", 0)) <= height - float(box.attrib["height"])
    legend = [own for own in root.iter(f"{SVG}text") if own.attrib["y"] == "54.5" and own.text != "n"]
    assert all(float(own.attrib["x"]) + 6.4 * len(own.text or "") <= width for own in legend)


def test_a_drawing_that_nobody_could_read_is_refused() -> None:
    with pytest.raises(UsageError, match="16 ranks × 32 steps; ring for 17 ranks is 17 × 32; choose fewer"):
        schedule_svg(schedule_of(resolve_algorithm("ring"), 17))


def test_neighbouring_chunks_that_are_added_up_in_one_are_one_label() -> None:
    labels = labels_of(schedule_svg(schedule_of(resolve_algorithm("one_shot"), 4)))

    assert labels.count("s1–3→+0") == 4
    assert "copied (→) or reduced (→+) within a rank; s: scratch" in labels
