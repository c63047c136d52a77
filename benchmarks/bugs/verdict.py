"""Verdict on a tool: what it has said of the two halves of a pair, and whether that is what it should."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.bugs.pairs import ROOT, Pair

_LISTED = re.compile(r"^\s*rank \d+: ")
_RANKS = re.compile(r"\branks? (\d+(?:-\d+)?(?:(?:, (?:and )?| and )\d+(?:-\d+)?)*)", re.IGNORECASE)


@dataclass(frozen=True)
class Said:
    """What a tool has said of one script.

    Attributes:
        complains: whether it says that something is wrong.
        text: what it has said; empty if nothing.
        ending: how the script ended, in a word.
    """

    complains: bool
    text: str
    ending: str = ""


@dataclass(frozen=True)
class Verdict:
    """Whether a tool finds the mistake of a pair.

    Attributes:
        hit: it complains of the wrong half.
        false_alarm: it complains of the right half.
        names_rank: it names ranks at fault, and no others with them; None where none is.
        names_line: it names the line at fault; None where none is.
        ending: how the wrong half ended, in a word.
        says: the first line of what it says of the wrong half.
    """

    hit: bool
    false_alarm: bool
    names_rank: bool | None
    names_line: bool | None
    ending: str
    says: str

    @classmethod
    def on(cls, pair: Pair, wrong: Said, right: Said) -> Verdict:
        """Return the verdict on a tool that has said this of the two halves of *pair*."""
        lines = pair.lines_to_name
        places = [rf'{pair.name}\.py(:|", line ){line}\b' for line in lines]
        named = any(re.search(place, wrong.text) for place in places)
        return cls(
            hit=wrong.complains,
            false_alarm=right.complains,
            names_rank=_names_one_of(pair.ranks_to_name, wrong.text) if pair.ranks_to_name else None,
            names_line=named if lines else None,
            ending=wrong.ending,
            says=_first_line(wrong.text).replace(f"{ROOT}/", ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _names_one_of(ranks: frozenset[int], text: str) -> bool:
    return any(named <= ranks for named in ranks_named(text))


def ranks_named(text: str) -> set[frozenset[int]]:
    """Return the ranks that *text* names together, but for a list in which each rank has its line."""
    found = set()
    for line in text.splitlines():
        if _LISTED.match(line):
            continue
        for match in _RANKS.finditer(line):
            found.add(frozenset(_numbers(match[1])))
    return found


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return numbers
