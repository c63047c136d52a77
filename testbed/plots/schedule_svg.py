"""A schedule as an SVG: ranks side by side, steps downwards, an arrow for each message.

A message leaves from a label, the chunks that it carries, and arrives at the end of the step.
Blue and orange are told apart with any colour vision; filled and outlined also without colour.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby

from testbed.output.table import counted
from testbed.plots.figure import NoFigure
from testbed.plots.schedule import LocalMove, ProgramSchedule, ScheduledMessage

MAX_RANKS = 16
MAX_STEPS = 32

_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 14, 92, 30
_MIN_COLUMN = 60
_MIN_WIDTH = 590
_LABEL_HEIGHT = 17
_MAX_ROW_WIDTH = 70
_ARROW_HEIGHT = 40
_MARGIN = 8

_STYLE = """
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.rank, .label { text-anchor: middle }
.rank { font-weight: 600 }
.step { text-anchor: end; fill: #57606a }
.label { font-size: 11px }
.band { fill: #f3f5f7 }
.line { stroke: #c9ced4 }
path { fill: none; stroke-width: 1.5 }
.reduce path { stroke: #0072b2; marker-end: url(#reduce) }
.overwrite path { stroke: #d55e00; marker-end: url(#overwrite) }
.reduce rect { fill: #0072b2; stroke: #0072b2 }
.reduce .label { fill: #fff }
.overwrite rect { fill: #fff; stroke: #d55e00; stroke-width: 1.5 }
.local rect { fill: #fff; stroke: #57606a; stroke-dasharray: 3 2 }
"""


@dataclass
class _Label:
    """What leaves a rank in one step under one label, and where the label stands."""

    kind: str
    text: str
    messages: list[ScheduledMessage] = field(default_factory=list)
    x: float = 0
    y: float = 0

    @property
    def width(self) -> float:
        return max(20, 9 + 6.7 * len(self.text))


Cells = dict[tuple[int, int], list[_Label]]


def check_size(schedule: ProgramSchedule) -> None:
    """Check that a drawing of *schedule* would be readable.

    Raises:
        NoFigure: it would not.
    """
    if schedule.world_size > MAX_RANKS or schedule.num_steps > MAX_STEPS:
        raise NoFigure(
            f"--plot draws up to {MAX_RANKS} ranks × {MAX_STEPS} steps; {schedule.algorithm} for "
            f"{schedule.world_size} ranks is {schedule.world_size} × {schedule.num_steps}; "
            "choose fewer --ranks"
        )


def schedule_svg(schedule: ProgramSchedule) -> str:
    """Return the drawing of *schedule*.

    Raises:
        NoFigure: there is more of it than can be read.
    """
    check_size(schedule)
    cells = _labels(schedule)
    column = max([_MIN_COLUMN, *(_cell_width(labels) + 2 * _MARGIN for labels in cells.values())])
    heights = [_height(cells, step, schedule.world_size) for step in range(schedule.num_steps)]
    tops = [_TOP + above for above in accumulate(heights, initial=0)]
    legend_width = sum(_legend_width(meaning) for _, meaning in _legend(schedule))
    width = max(_MIN_WIDTH, legend_width, _LEFT + column * schedule.world_size + _RIGHT)
    centres = [_LEFT + column * (rank + 0.5) for rank in range(schedule.world_size)]
    svg = _canvas(schedule, width, tops[-1] + _BOTTOM)

    for step, height in enumerate(heights):
        if step % 2 == 0:
            _add(svg, "rect", "band", x=0, y=tops[step], width=width, height=height)
        _text(svg, "step", _LEFT - 12, tops[step] + _MARGIN + 13, f"step {step}")

    for rank, x in enumerate(centres):
        for y in (_TOP - 10, tops[-1] + 18):
            _text(svg, "rank", x, y, f"rank {rank}")
        _add(svg, "line", "line", x1=x, x2=x, y1=_TOP, y2=tops[-1])

    for (rank, step), labels in cells.items():
        _place(labels, centres[rank], tops[step] + _MARGIN)

    _draw_labels(svg, cells, _arrivals(schedule, centres, tops, column))
    ElementTree.indent(svg, "")

    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _labels(schedule: ProgramSchedule) -> Cells:
    """Return what leaves each (rank, step): the same chunks to several ranks under one label."""
    found: dict[tuple[int, int], dict[tuple[str, str], _Label]] = defaultdict(dict)
    for message in schedule.messages:
        kind = "reduce" if message.reduces else "overwrite"
        text = _range(message.chunk, message.num_chunks, schedule)
        if message.into != message.chunk:
            text += f"→{_range(message.into, message.num_chunks, schedule)}"
        cell = found[message.source, message.sent_in_step]
        cell.setdefault((kind, text), _Label(kind, text)).messages.append(message)
    for move, num_sources in _joined(schedule.moves):
        arrow = "→+" if move.reduces else "→"
        text = _range(move.chunk, num_sources, schedule) + arrow
        text += _range(move.into, move.num_chunks, schedule)
        found[move.rank, move.step].setdefault(("local", text), _Label("local", text))
    return {place: list(labels.values()) for place, labels in found.items()}


def _joined(moves: Sequence[LocalMove]) -> Iterator[tuple[LocalMove, int]]:
    """Yield moves and how many chunks each begins with; what adds up neighbours in one chunk is one."""
    for _, group in groupby(moves, key=lambda move: (move.rank, move.step, move.into)):
        same = list(group)
        neighbours = range(same[0].chunk, same[0].chunk + len(same))
        if [(move.chunk, move.num_chunks) for move in same] == [(chunk, 1) for chunk in neighbours]:
            yield same[0], len(same)
        else:
            yield from ((move, move.num_chunks) for move in same)


def _range(chunk: int, length: int, schedule: ProgramSchedule) -> str:
    scratch = chunk >= schedule.num_chunks
    mark, first = ("s", chunk - schedule.num_chunks) if scratch else ("", chunk)
    return f"{mark}{first}" if length == 1 else f"{mark}{first}–{first + length - 1}"


def _rows(labels: Sequence[_Label]) -> list[list[_Label]]:
    """Return the labels in rows that are as wide as a column may be because of them."""
    rows: list[list[_Label]] = []
    for label in labels:
        if rows and _row_width([*rows[-1], label]) <= _MAX_ROW_WIDTH:
            rows[-1].append(label)
        else:
            rows.append([label])
    return rows


def _height(cells: Cells, step: int, world_size: int) -> float:
    """Return the height of one step: the more messages a rank sends, the steeper they have to be."""
    shown = [cells.get((rank, step), []) for rank in range(world_size)]
    num_rows = max(len(_rows(labels)) for labels in shown)
    num_messages = max(sum(len(label.messages) for label in labels) for labels in shown)
    arrows = _ARROW_HEIGHT + min(10 * (num_messages - 1), 100) if num_messages else _MARGIN
    return _MARGIN + max(num_rows, 1) * (_LABEL_HEIGHT + 3) + arrows


def _row_width(labels: Sequence[_Label]) -> float:
    return sum(label.width + 3 for label in labels) - 3


def _cell_width(labels: Sequence[_Label]) -> float:
    return max(map(_row_width, _rows(labels)))


def _place(labels: Sequence[_Label], centre: float, top: float) -> None:
    for number, row in enumerate(_rows(labels)):
        x = centre - _row_width(row) / 2
        for label in row:
            label.x, label.y = x + label.width / 2, top + number * (_LABEL_HEIGHT + 3)
            x += label.width + 3


def _arrivals(
    schedule: ProgramSchedule, centres: Sequence[float], tops: Sequence[float], column: float
) -> dict[ScheduledMessage, tuple[float, float]]:
    """Return where each message arrives: side by side, in the order of where they come from."""
    arriving: defaultdict[tuple[int, int], list[ScheduledMessage]] = defaultdict(list)
    for message in schedule.messages:
        arriving[message.destination, max(message.sent_in_step, message.received_in_step)].append(message)
    points = {}
    for (rank, step), messages in arriving.items():
        messages.sort(key=lambda message: message.source)
        gap = min(9, (column - 2 * _MARGIN) / len(messages))
        for number, message in enumerate(messages):
            x = centres[rank] + gap * (number - (len(messages) - 1) / 2)
            points[message] = (x, tops[step + 1] - 2)
    return points


def _canvas(schedule: ProgramSchedule, width: float, height: float) -> ElementTree.Element:
    """Return an empty drawing with title and legend."""
    title = (
        f"{schedule.algorithm} {schedule.collective.replace('_', '-')}: "
        f"{counted(schedule.world_size, 'rank')}, {counted(schedule.num_steps, 'step')}"
    )
    size = {"width": _number(width), "height": _number(height)}
    box = {"xmlns": "http://www.w3.org/2000/svg", **size, "viewBox": f"0 0 {' '.join(size.values())}"}
    svg = ElementTree.Element("svg", box, role="img")
    _add(svg, "title").text = title
    what = f"{len(schedule.messages)} messages, drawn as arrows between ranks, steps downwards."
    _add(svg, "desc").text = what
    _add(svg, "style").text = _STYLE
    definitions = _add(svg, "defs")

    for kind, head, look in (
        ("reduce", "M0 0L8 4L0 8z", "fill: #0072b2; stroke: none; marker: none"),
        ("overwrite", "M1 1L7 4L1 7", "stroke: #d55e00; marker: none"),
    ):
        place = {"markerWidth": "8", "markerHeight": "8", "refX": "7.5", "refY": "4"}
        how = {"orient": "auto", "markerUnits": "userSpaceOnUse"}
        _add(_add(definitions, "marker", id=kind, **place, **how), "path", d=head, style=look)

    _add(svg, "rect", **size, fill="#fff")
    _text(svg, "title", 14, 26, title)
    x = 14.0

    for kind, meaning in _legend(schedule):
        group = _add(svg, "g", kind)
        sample = _Label(kind, "n", x=x + 10, y=42)
        if kind != "local":
            _add(group, "path", d=f"M{_number(x + 20)} 50.5h24")
        _draw_label(group, sample)
        _text(svg, "", x + (50 if kind != "local" else 26), 54.5, meaning)
        x += _legend_width(meaning)

    return svg


def _legend(schedule: ProgramSchedule) -> list[tuple[str, str]]:
    """Return the kinds of labels that occur, and what they mean."""
    reductions = {message.reduces for message in schedule.messages}
    moved: list[ScheduledMessage | LocalMove] = [*schedule.messages, *schedule.moves]
    end = max((max(own.chunk, own.into) + own.num_chunks for own in moved), default=0)
    scratch = "; s: scratch" if end > schedule.num_chunks else ""
    return [
        (kind, meaning)
        for kind, meaning, occurs in (
            ("reduce", "chunk n, reduced into the receiver's", True in reductions),
            ("overwrite", "chunk n, overwrites the receiver's", False in reductions),
            ("local", f"copied (→) or reduced (→+) within a rank{scratch}", bool(schedule.moves)),
        )
        if occurs
    ]


def _legend_width(meaning: str) -> float:
    return 64 + 6.4 * len(meaning)


def _draw_labels(
    svg: ElementTree.Element, cells: Cells, ends: dict[ScheduledMessage, tuple[float, float]]
) -> None:
    """Draw all arrows, then the labels over them."""
    labels = [label for cell in cells.values() for label in cell]
    kinds = [kind for kind in ("overwrite", "reduce", "local") if any(own.kind == kind for own in labels)]
    for kind in kinds:
        arrows = _add(svg, "g", kind)
        for label in labels:
            for message in label.messages if label.kind == kind else ():
                x, y = ends[message]
                start = f"M{_number(label.x)} {_number(label.y + _LABEL_HEIGHT)}"
                _add(arrows, "path", d=f"{start}L{_number(x)} {_number(y)}")
    groups = {kind: _add(svg, "g", kind) for kind in kinds}
    for label in labels:
        _draw_label(groups[label.kind], label)


def _draw_label(parent: ElementTree.Element, label: _Label) -> None:
    left = label.x - label.width / 2
    _add(parent, "rect", x=left, y=label.y, width=label.width, height=_LABEL_HEIGHT, rx=4)
    _text(parent, "label", label.x, label.y + 12.5, label.text)


def _add(parent: ElementTree.Element, tag: str, look: str = "", **given: float | str) -> ElementTree.Element:
    """Add an element with a *look*, the class that the style knows, and the attributes *given*."""
    attributes = {name: own if isinstance(own, str) else _number(own) for name, own in given.items()}
    return ElementTree.SubElement(parent, tag, {**({"class": look} if look else {}), **attributes})


def _text(parent: ElementTree.Element, look: str, x: float, y: float, text: str) -> None:
    _add(parent, "text", look, x=x, y=y).text = text


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
