"""Page of the findings: the document that the command writes, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

WIDTH = 118
HEAD = """\
# Claims

What introductory texts on data-parallel training claim, and what became of it here. `make claims` simulates
or measures every claim in several set-ups and writes this page. In each set-up a claim holds or not by the
rule that is stated; it *holds* where it holds in all of them, *does not hold* where it does in none, and
otherwise *holds only if* the set-up is one of those named.
"""


def page(findings: Sequence[Mapping[str, Any]], versions: Mapping[str, str | None]) -> str:
    """Return the page.

    Args:
        findings: rows of `benchmarks.lab.claims.claim.Finding.row`.
        versions: on which the figures depend.
    """
    parts = [HEAD, _made_with(versions), *_overview(findings)]
    for finding in findings:
        parts.extend(_section(finding))
    return "\n".join(parts).rstrip("\n") + "\n"


def _made_with(versions: Mapping[str, str | None]) -> str:
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return fill(f"Made with {named}. Measured figures are those of one machine.", WIDTH) + "\n"


def _overview(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    yield "| | claim | verdict |"
    yield "|---|---|---|"
    for finding in findings:
        yield f"| [{finding['id']}](#{finding['id'].lower()}) | {finding['claim']} | {finding['verdict']} |"
    yield ""


def _section(finding: Mapping[str, Any]) -> Iterator[str]:
    method = finding["method"]
    yield f"## {finding['id']}"
    yield fill(finding["claim"], WIDTH)
    yield ""
    yield fill(f"**Verdict**: {finding['verdict']}.", WIDTH)
    yield ""
    yield fill(
        f"**Set-up** ({method if isinstance(method, str) else ' and '.join(method)}): {finding['setup']}.",
        WIDTH,
    )
    yield ""
    yield fill(f"**Rule**: {finding['rule']}.", WIDTH)
    yield ""
    yield "| set-up | found | holds |"
    yield "|---|---|---|"
    for case in finding["cases"]:
        yield f"| {', '.join(case['where'].values())} | {case['says']} | {'yes' if case['holds'] else 'no'} |"
    yield ""
    if finding["note"]:
        yield fill(finding["note"], WIDTH)
        yield ""
