"""The picture of the architecture agrees with the tree, the walls and the imports."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from xml.etree import ElementTree

from docs.tools.architecture import PACKAGES, PATH, picture
from tests.documents.blocks import ROOT

NAMES = [package.name for package in PACKAGES]
SVG = "{http://www.w3.org/2000/svg}"


def drawn_rooms() -> dict[str, tuple[str, float, float]]:
    """Return the rooms of the committed picture: wall, top and bottom of each."""
    rooms = {}
    for group in ElementTree.parse(ROOT / PATH).iter(f"{SVG}g"):
        if "/" in group.get("id", ""):
            brick = group.find(f"{SVG}rect")
            top, height = float(brick.get("y")), float(brick.get("height"))
            rooms[group.get("id")] = (group.get("class"), top, top + height)
    return rooms


def room_of(module: str) -> str | None:
    """Return the room that *module* lies in, None for files at the top of a package and for strangers."""
    package, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    is_room = package in NAMES and room and (ROOT / package / room / "__init__.py").exists()
    return f"{package}/{room}" if is_room else None


def imports() -> Iterator[tuple[str, str, str]]:
    """Yield each import from a room into another: the file, its room and the other."""
    for package in NAMES:
        for path in sorted((ROOT / package).rglob("*.py")):
            own = room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                for other in map(room_of, modules):
                    if own and other and own != other:
                        yield str(path.relative_to(ROOT)), own, other


def test_the_committed_picture_is_what_the_script_draws() -> None:
    """To renew it: ``python -m docs.tools.architecture``."""
    assert (ROOT / PATH).read_text(encoding="utf-8") == picture()


def test_the_rooms_are_the_folders() -> None:
    folders = {
        f"{package}/{path.parent.name}"
        for package in NAMES
        for path in (ROOT / package).glob("*/__init__.py")
    }

    assert drawn_rooms().keys() == folders


def test_the_walls_are_those_of_the_import_contracts() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    forbidden: dict[str, set[str]] = {name: set() for name in [*NAMES, *drawn_rooms()]}
    for contract in settings["tool"]["importlinter"]["contracts"]:
        for module in contract.get("source_modules", []):
            forbidden[module.replace(".", "/")].update(contract["forbidden_modules"])
    of_walls = {
        "pure": {"torch", "sim"},
        "torch": {"sim"},
        "simulated": {"torch"},
        "both": set(),
        "open": set(),
    }

    wrong = [
        room
        for room, (wall, _, _) in drawn_rooms().items()
        if of_walls[wall] != forbidden[room] | forbidden[room.partition("/")[0]]
    ]

    assert wrong == []


def test_whatever_a_room_imports_lies_below_it() -> None:
    rooms = drawn_rooms()

    up = {
        f"{path}: {own} imports {other}" for path, own, other in imports() if rooms[other][1] < rooms[own][2]
    }

    assert up == set()
