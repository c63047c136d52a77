"""Findings in a document: each claim with its verdict, its set-ups and what was found in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.result import Grid, Part, Text


def page(findings: Sequence[Mapping[str, Any]], versions: Mapping[str, str | None]) -> Iterator[Part]:
    """Yield what a document says of *findings*.

    Args:
        findings: rows of `benchmarks.lab.claims.claim.Finding.row`.
        versions: on which the figures depend.
    """
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield Text([f"Made with {named}. Measured figures are those of one machine."])
    overview = [(f"[{own['id']}](#{own['id'].lower()})", own["claim"], own["verdict"]) for own in findings]
    yield Grid(("", "claim", "verdict"), overview, text_columns=3)
    for own in findings:
        method = own["method"] if isinstance(own["method"], str) else " and ".join(own["method"])
        yield Text(
            [
                own["claim"],
                f"**Verdict**: {own['verdict']}.",
                f"**Set-up** ({method}): {own['setup']}.",
                f"**Rule**: {own['rule']}.",
            ],
            title=own["id"],
        )
        yield cases_of(own)
        yield Text([own["note"]] if own["note"] else [])


def cases_of(finding: Mapping[str, Any]) -> Grid:
    """Return what was found in each set-up."""
    rows = [
        (", ".join(case["where"].values()), case["says"], "yes" if case["holds"] else "no")
        for case in finding["cases"]
    ]
    return Grid(("set-up", "found", "holds"), rows, text_columns=3, gap=False)
