"""The picture of the architecture: packages, their rooms, and what each room may import.

    python -m docs.tools.architecture        # writes docs/architecture.svg

The rooms are laid by hand, as bricks: whatever a room imports lies below it.  `tests/docs` compares
the rooms with the folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

PATH = Path("docs") / "architecture.svg"

WIDTH = 1000
MARGIN = 24
NAMES = 176
ROW = 40
GAP = 8
PADDING = 14
BETWEEN = 34
HEAD = 64

FILLS = {
    "pure": "#ddf1e8",
    "torch": "#fce5d3",
    "simulated": "#dbeaf6",
    "both": "url(#both)",
    "open": "#ffffff",
}
STROKES = {
    "pure": "#2a9d78",
    "torch": "#d9772b",
    "simulated": "#3b82b8",
    "both": "#8a6a8f",
    "open": "#b5b5ae",
}
MEANINGS = {
    "pure": "no torch, no simulator",
    "torch": "no simulator",
    "simulated": "no torch",
    "both": "",
    "open": "no wall",
}


@dataclass(frozen=True)
class Room:
    """A folder of a package: where its brick lies, in twelfths of the width and in rows from the top."""

    name: str
    wall: str
    says: str
    column: int
    row: int
    width: int
    height: int = 1


@dataclass(frozen=True)
class Package:
    """A package: its rooms, from the top."""

    name: str
    says: tuple[str, ...]
    rooms: tuple[Room, ...]

    @property
    def num_rows(self) -> int:
        """Rows of bricks."""
        return max(room.row + room.height for room in self.rooms)


PACKAGES = (
    Package(
        "testbed",
        ("command line,", "reports, plots"),
        (
            Room("commands", "open", "a file for each command", 0, 0, 12),
            Room("report", "open", "a result of what each command found", 0, 1, 12),
            Room("planning", "open", "questions about a cluster, answered", 0, 2, 12),
            Room("studies", "open", "predictions, surveys", 0, 3, 6),
            Room("fuzzing", "open", "runs from seeds, judged", 6, 3, 6),
            Room("calibration", "open", "constants from measurements, judged", 0, 4, 12),
            Room("benchmarking", "open", "measured times", 0, 5, 12),
            Room("scripts", "open", "a user's script, run or watched", 0, 6, 12),
            Room("tasks", "open", "workers, time limits", 6, 7, 3, 2),
            Room("options", "open", "how things are spelled", 0, 7, 6),
            Room("result", "open", "question, answer, rows, parts", 0, 8, 6),
            Room("plots", "open", "figures as data; schedules; pictures, and what pages show", 0, 9, 12),
            Room("output", "open", "tables, folders, the look of pictures", 0, 10, 12),
        ),
    ),
    Package(
        "ddp",
        ("when to reduce", "which gradients"),
        (
            Room("recording", "torch", "profiles of a training", 0, 0, 6),
            Room("training", "torch", "DistributedDataParallel", 0, 1, 6),
            Room("autograd", "torch", "from hooks to the reducer and back", 0, 2, 6),
            Room("buckets", "torch", "memory, and what is done with it", 0, 3, 6),
            Room("tuning", "simulated", "search for the best buckets", 6, 0, 6, 2),
            Room("step", "simulated", "the same reducer in virtual time", 6, 2, 6, 2),
            Room("reduction", "pure", "the reducer, a state machine; strategies", 0, 4, 8),
            Room("profiles", "pure", "a step's compute", 8, 4, 4),
        ),
    ),
    Package(
        "collectives",
        ("what each rank", "sends to whom"),
        (
            Room("virtual", "both", "torch scripts in virtual time", 0, 0, 12),
            Room("torch_backend", "torch", "torch.distributed on ours", 0, 1, 6),
            Room("communicators", "torch", "collectives on tensors", 0, 2, 6),
            Room("transports", "torch", "threads, Gloo, NCCL", 0, 3, 6),
            Room("synthesis", "simulated", "programs made for one network", 6, 1, 6),
            Room("timing", "simulated", "programs on a simulated network", 6, 2, 6, 2),
            Room("catalogue", "pure", "from a name to an algorithm", 0, 4, 12),
            Room("formats", "pure", "MSCCL, MSCCL++, NCCL", 0, 5, 12),
            Room("proof", "pure", "without data, for one size or for all", 0, 6, 12),
            Room("execution", "pure", "how a step becomes a wait", 0, 7, 6),
            Room("algorithms", "pure", "those that ship", 6, 7, 6),
            Room("program", "pure", "what an algorithm is: open this first", 0, 8, 12),
        ),
    ),
    Package(
        "sim",
        ("a network and", "a cluster in", "virtual time"),
        (
            Room("cluster", "simulated", "ranks as threads, of which one runs", 0, 0, 12),
            Room("scenario", "simulated", "a topology under conditions", 0, 1, 12),
            Room("network", "simulated", "messages share links", 0, 2, 12),
            Room("topology", "simulated", "ranks, links and routes", 0, 3, 12),
            Room("files", "simulated", "TOML becomes data", 0, 4, 12),
            Room("hardware", "simulated", "what a rank computes on", 0, 5, 12),
        ),
    ),
)


def picture() -> str:
    """Return the picture as SVG."""
    tops, top = [], HEAD
    for package in PACKAGES:
        tops.append(top)
        top += _height(package) + BETWEEN
    height = top - BETWEEN + MARGIN
    parts = [_start(height), _legend()]
    for package, above in zip(PACKAGES, tops, strict=True):
        parts.append(_package(package, above))
    for package, above in zip(PACKAGES[:-1], tops, strict=False):
        parts.append(_arrow(above + _height(package)))
    return "\n".join([*parts, "</svg>", ""])


def _height(package: Package) -> int:
    return package.num_rows * (ROW + GAP) - GAP + 2 * PADDING


def _start(height: int) -> str:
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"
     font-family="Helvetica, Arial, 'DejaVu Sans', sans-serif">
<title>Packages from top to bottom, and their rooms as bricks: whatever a room imports lies below it</title>
<defs>
<linearGradient id="both">
<stop offset="0" stop-color="{FILLS["torch"]}"/><stop offset="1" stop-color="{FILLS["simulated"]}"/>
</linearGradient>
</defs>
<rect width="{WIDTH}" height="{height}" rx="14" fill="#ffffff"/>"""


def _legend() -> str:
    parts, x = [], MARGIN
    for wall, meaning in MEANINGS.items():
        parts.append(
            f'<rect x="{x}" y="22" width="26" height="18" rx="4" fill="{FILLS[wall]}" '
            f'stroke="{STROKES[wall]}" stroke-width="1.3"/>'
            f'<text x="{x + 34}" y="36" font-size="14"><tspan font-weight="bold" fill="#222">{wall}</tspan>'
            f'<tspan fill="#666" dx="6">{meaning}</tspan></text>'
        )
        x += {"pure": 252, "torch": 190, "simulated": 202, "both": 120, "open": 0}[wall]
    return "\n".join(parts)


def _package(package: Package, top: int) -> str:
    lines = "".join(
        f'<text x="{MARGIN + PADDING}" y="{top + 54 + 18 * index}" font-size="13" fill="#666">{line}</text>'
        for index, line in enumerate(package.says)
    )
    return "\n".join(
        [
            f'<g id="{package.name}">',
            f'<rect x="{MARGIN}" y="{top}" width="{WIDTH - 2 * MARGIN}" height="{_height(package)}" rx="12" '
            'fill="#f6f6f4" stroke="#d9d9d4"/>',
            f'<text x="{MARGIN + PADDING}" y="{top + 32}" font-size="19" font-weight="bold" fill="#222">'
            f"{package.name}</text>",
            lines,
            *(_brick(package, room, top + PADDING) for room in package.rooms),
            "</g>",
        ]
    )


def _brick(package: Package, room: Room, top: int) -> str:
    unit = (WIDTH - 2 * MARGIN - NAMES - PADDING + GAP) / 12
    x = MARGIN + NAMES + room.column * unit
    y = top + room.row * (ROW + GAP)
    width = room.width * unit - GAP
    height = room.height * (ROW + GAP) - GAP
    middle = y + height / 2 + 5
    fits = 9.2 * len(room.name) + 6.6 * len(room.says) + 36 < width
    name = f'font-size="15" font-weight="bold" fill="#222">{room.name}'
    said = f'font-size="13" fill="#555">{escape(room.says)}'
    if fits or room.height == 1:
        text = (
            f'<text x="{x + 14:.1f}" y="{middle:.1f}"><tspan {name}</tspan>'
            f'<tspan dx="10" {said}</tspan></text>'
        )
    else:
        text = (
            f'<text x="{x + 14:.1f}" y="{middle - 9:.1f}" {name}</text>'
            f'<text x="{x + 14:.1f}" y="{middle + 11:.1f}" {said}</text>'
        )
    return (
        f'<g id="{package.name}/{room.name}" class="{room.wall}">'
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" rx="6" '
        f'fill="{FILLS[room.wall]}" stroke="{STROKES[room.wall]}" stroke-width="1.3"/>{text}</g>'
    )


def _arrow(y: int) -> str:
    x, end = WIDTH // 2, y + BETWEEN
    return (
        f'<path d="M{x} {y + 4} V{end - 13}" stroke="#555" stroke-width="2.5" fill="none"/>'
        f'<path d="M{x - 7} {end - 14} L{x + 7} {end - 14} L{x} {end - 3} Z" fill="#555"/>'
    )


if __name__ == "__main__":
    PATH.write_text(picture(), encoding="utf-8")
