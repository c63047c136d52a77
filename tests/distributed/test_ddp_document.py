"""docs/ddp.md tells the truth about its tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = (HERE.parents[1] / "docs" / "ddp.md").read_text(encoding="utf-8")
ROWS = [row.split("|")[1:-1] for row in TABLE.splitlines() if re.match(r"\| (?!feature)", row)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip()[:40])
def test_every_row_has_a_status_and_names_tests_that_exist(row: list[str]) -> None:
    _, status, shown_by = (cell.strip() for cell in row)
    assert re.match(r"(same|better|refused)\b", status)
    for file, name in re.findall(r"`(\w+)::(\w+)`", shown_by) or [("no file", "no test")]:
        tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
