"""Claims and findings: what is claimed, what was found in which set-up, and the verdict that follows.

A finding is a list of *cases*: set-ups of one kind, each with its figures and with whether the claim holds in
it, by a rule that the finding states.  Nobody writes a verdict: it *holds* where all cases hold, *does not
hold* where none does, and otherwise *holds only if* it is one of those that do, which are described by as
few of their properties as tell them from the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Method = Literal["measured", "simulated", "closed form"]

HOLDS, REFUTED = "holds", "does not hold"
OR = ", or "


@dataclass(frozen=True)
class Claim:
    """What is claimed.

    Attributes:
        id: ``C1`` to ``C14``.
        text: the claim in a sentence.
    """

    id: str
    text: str


@dataclass(frozen=True)
class Case:
    """One set-up, and what was found in it.

    Attributes:
        where: its properties, the most telling first; each value is a phrase such as ``on NVLink``.
        says: the figures in a few words.
        holds: whether the claim holds here.
        values: the figures as numbers, by name with their unit.
    """

    where: Mapping[str, str]
    says: str
    holds: bool
    values: Mapping[str, float | int | str]

    @property
    def name(self) -> str:
        """The properties in words."""
        return ", ".join(self.where.values())


@dataclass(frozen=True)
class Finding:
    """What was found of a claim.

    Attributes:
        claim: which.
        setup: what was simulated or measured.
        method: how.
        rule: when the claim holds in a case.
        cases: at least one.
        note: what the figures leave out, or what else they show.
    """

    claim: Claim
    setup: str
    method: Method | Sequence[Method]
    rule: str
    cases: tuple[Case, ...]
    note: str = ""

    @property
    def verdict(self) -> str:
        """``holds``, ``holds only if …`` or ``does not hold``."""
        if all(case.holds for case in self.cases):
            return HOLDS
        if not any(case.holds for case in self.cases):
            return REFUTED
        return f"holds only if run {conditions(self.cases)}"

    @property
    def figure(self) -> str:
        """What was found in every case, in words."""
        return "; ".join(f"{case.name}: {case.says}" for case in self.cases)

    def row(self) -> dict[str, Any]:
        """Return the finding as JSON types."""
        return {
            "id": self.claim.id,
            "claim": self.claim.text,
            "setup": self.setup,
            "method": self.method if isinstance(self.method, str) else list(self.method),
            "rule": self.rule,
            "figure": self.figure,
            "verdict": self.verdict,
            "note": self.note,
            "cases": [
                {"where": dict(case.where), "says": case.says, "holds": case.holds, **dict(case.values)}
                for case in self.cases
            ],
        }


def conditions(cases: Sequence[Case]) -> str:
    """Return in words which of *cases* hold, where some do: ``on NVLink, or on Ethernet with ResNet-50``.

    Cases are split by one property after another; of the orders of splitting, the shortest text is taken.
    """
    properties = list(cases[0].where)
    return min((_split(cases, first, properties) for first in properties), key=len)


def _split(cases: Sequence[Case], by: str, properties: Sequence[str]) -> str:
    """Return which of *cases* hold, split by the property *by* and then, where need be, by the others."""
    others = [name for name in properties if name != by]
    whole: list[str] = []
    parts: list[str] = []
    for value, members in _groups(cases, by):
        if all(case.holds for case in members):
            whole.append(value)
        elif any(case.holds for case in members):
            inner = min((_split(members, name, others) for name in others), key=len)
            parts.append(f"{value} ({inner})" if OR in inner else f"{value} {inner}")
    return OR.join(([_either(whole)] if whole else []) + parts)


def _groups(cases: Sequence[Case], by: str) -> Iterable[tuple[str, list[Case]]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.where[by], []).append(case)
    return groups.items()


def _either(phrases: Sequence[str]) -> str:
    """Return *phrases* joined by ``or``; a preposition that all share is said once."""
    if len(phrases) == 1:
        return phrases[0]
    word = phrases[0].split(" ", 1)[0]
    if all(phrase.startswith(f"{word} ") for phrase in phrases):
        phrases = [phrases[0], *(phrase.removeprefix(f"{word} ") for phrase in phrases[1:])]
    return f"{', '.join(phrases[:-1])} or {phrases[-1]}"
