"""The site: pages that are generated, links and lists, and notebooks, of which every cell runs."""

import ast
import json
import re
from pathlib import Path

import pytest

from docs.tools import site_pages
from docs.tools.schemas import schemas
from testbed.cli import COMMANDS, imported


def test_every_option_of_every_command_stands_in_the_reference():
    page = site_pages.commands_page()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))

    assert sections.keys() == COMMANDS.keys()
    for name in COMMANDS:
        options = imported(name).params
        shown = [max(option.opts, key=len) for option in options if not getattr(option, "hidden", False)]
        assert [option for option in shown if option.startswith("-") and option not in sections[name]] == []


def test_every_field_of_every_schema_stands_in_the_reference():
    page = site_pages.schemas_page()

    for name, schema in schemas().items():
        assert f"## {name}\n" in page
        for part in [schema, *schema.get("$defs", {}).values()]:
            assert [field for field in part.get("properties", {}) if f"| `{field}` |" not in page] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a | b", r"a \| b"), ("`a|b` <c>", "`a&#124;b` &lt;c&gt;"), ("2 * [x]_y", r"2 \* \[x\]\_y")],
)
def test_texts_of_options_are_no_markup(text, shown):
    assert site_pages._escaped(text) == shown


def test_lists_tables_and_headings_follow_a_blank_line():
    hooks = pytest.importorskip("docs.tools.site_hooks", reason="needs the extra site", exc_type=ImportError)
    text = "## a\nb\n* c\n  d\n* e\n\nf\n| g |\n|---|\n| h |"

    shown = "## a\n\nb\n\n* c\n  d\n* e\n\nf\n\n| g |\n|---|\n| h |"
    assert hooks._with_blank_lines(text) == shown


@pytest.mark.parametrize(
    ("page", "is_refused"),
    [
        ('<script src="https://a.b/c.js">', True),
        ('<link rel="stylesheet" href="//a.b/c.css">', True),
        ('<script src="c.js"><a href="https://a.b">', False),
    ],
)
def test_a_page_asks_no_other_address(page, is_refused):
    hooks = pytest.importorskip("docs.tools.site_hooks", reason="needs the extra site", exc_type=ImportError)

    assert (hooks._ASKED.search(page) is not None) == is_refused


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
