"""Page of results: `docs/bugs.md`, and the verdicts that it is made of, which are kept in results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.bugs.pairs import FOLDER
from benchmarks.bugs.verdict import Verdict

RESULTS = FOLDER / "results.json"


def write_results(verdicts: Mapping[str, Mapping[str, Verdict]]) -> None:
    """Add *verdicts*, by tool and pair, to those that are kept."""
    kept: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for tool, own in verdicts.items():
        kept.setdefault(tool, {}).update({name: one.to_json() for name, one in own.items()})
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
