from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectives import AlgorithmFileError, NotSupportedError, verify
from collectives.catalogue.resolve import resolve_algorithm

EXCHANGE: dict[str, Any] = {
    "schema": 1,
    "name": "exchange",
    "collective": "all_gather",
    "ranks": 2,
    "chunks": 2,
    "network": {"name": "pair", "digest": "0123456789abcdef"},
    "steps": [[[0, 1, 0, 0, 1, False], [1, 0, 1, 1, 1, False]]],
}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "mine.json"
    path.write_text(json.dumps({**EXCHANGE, **changes}))
    return str(path)


def test_a_schedule_is_an_algorithm(tmp_path: Path) -> None:
    algorithm = resolve_algorithm(written(tmp_path))

    assert verify(algorithm, 2).num_messages == 2
    with pytest.raises(NotSupportedError, match="is for 2 ranks, got 3"):
        verify(algorithm, 3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": [[[0, 2, 0, 0, 1, False]]]}, "steps 1, 1: expected ranks from 0 to 1"),
        ({"steps": [[[0, 1, 0, 2, 1, False]]]}, "steps 1, 1: expected chunks below 2"),
        ({"steps": [[[0, 1, 0, 0, 1, 1]]]}, "boolean"),
        ({"collective": "all_love"}, "collective"),
        ({"chunks": 3}, "multiple of the 2 parts"),
        ({"root": 2}, "root"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_is_no_schedule_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AlgorithmFileError, match=said):
        resolve_algorithm(written(tmp_path, **changes))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(AlgorithmFileError, match=r"nowhere\.json"):
        resolve_algorithm("nowhere.json")
