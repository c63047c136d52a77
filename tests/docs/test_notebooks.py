"""Notebooks of the documents: every cell runs, in its order, and what a cell ends with shows itself."""

import ast
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.costly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_of_a_notebook_runs(notebook, tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": notebook.stem}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"{notebook.name}, cell {number}")
        *statements, last = tree.body
        exec(compile(ast.Module(statements, []), tree_name := f"cell {number}", "exec"), namespace)
        if not isinstance(last, ast.Expr):
            exec(compile(ast.Module([last], []), tree_name, "exec"), namespace)
            continue
        shown = eval(compile(ast.Expression(last.value), tree_name, "eval"), namespace)
        if show := getattr(shown, "_repr_html_", None):
            assert "<" in show()
