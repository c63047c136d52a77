"""docs/architecture.svg: what is committed is what the script draws, and its rooms are the folders."""

from __future__ import annotations

from docs.tools.architecture import PACKAGES, PATH, picture
from tests.documents.blocks import ROOT


def test_the_committed_picture_is_what_the_script_draws() -> None:
    """To renew it: ``python -m docs.tools.architecture``."""
    assert (ROOT / PATH).read_text(encoding="utf-8") == picture()


def test_the_rooms_are_the_folders() -> None:
    drawn = {package.name: {room.name for room in package.rooms} for package in PACKAGES}

    assert drawn == {
        name: {path.parent.name for path in (ROOT / name).glob("*/__init__.py")} for name in drawn
    }
