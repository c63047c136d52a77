"""Generated pages of the site: options of commands, fields of files, names of the Python interface."""

from __future__ import annotations

import html
import importlib
import re
from typing import Any

import click
import typer

from docs.tools.algorithm_docs import algorithm_pages
from docs.tools.schemas import schemas
from testbed.options.outputs import PANELS, panel_of

PACKAGES = ("collectives", "collectives.virtual", "sim", "ddp", "testbed.testing")
"""Packages whose public names the reference lists."""

_TESTING = ("on_ranks", "VirtualCluster", "MistakeWarning", "DependsOnOrderError", "DependsOnTimeError")


def commands_page() -> str:
    """Return every command of `testbed` with its arguments and options, out of the code that parses them."""
    from testbed.cli import COMMANDS, app, imported

    group: Any = typer.main.get_command(app)
    context = click.Context(group, info_name="testbed")
    parts = ["# Options of the commands\n\nEvery command has `--help`; this is the same, out of the code.\n"]
    for name in sorted(COMMANDS):
        command: Any = imported(name)
        parts.append(_command_section(command, click.Context(command, info_name=name, parent=context)))
    return "\n".join(parts)


def _command_section(command: Any, context: Any) -> str:
    rows: dict[str, list[str]] = {panel: [] for panel in PANELS}
    for parameter in command.get_params(context):
        if (row := _row_of(parameter, context)) is not None:
            rows.setdefault(panel_of(command.name, parameter), []).append(row)
    lines = [f"## {command.name}\n", *_paragraphs(command.help or "")]
    lines += [f"```text\n{command.get_usage(context)}\n```\n"]
    for panel, shown in rows.items():
        if shown:
            lines += [f"| {panel} | |", "|---|---|", *shown, ""]
    if command.epilog:
        lines += [f"```text\n{command.epilog.replace(chr(8), '').strip(chr(10))}\n```\n"]
    return "\n".join(lines)


def _row_of(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None:
        return None
    names, text = record
    return f"| `{names.replace('|', chr(0x2502))}` | {_escaped(text)} |"


def _paragraphs(text: str) -> list[str]:
    return [f"{_escaped(' '.join(part.split()))}\n" for part in text.replace("\b", "").split("\n\n")]


def _escaped(text: str) -> str:
    """Return *text* as Markdown that shows it, in one line, code in backticks left as it is."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        piece.replace("|", "&#124;")
        if piece.startswith("`") and len(piece) > 1
        else re.sub(r"([\\*_\[\]{}|])", r"\\\1", html.escape(piece, quote=False))
        for piece in pieces
    )


def schemas_page() -> str:
    """Return the fields of every file that users write, out of the schemas that check them."""
    parts = ["# Fields of files\n\nOut of the schemas. What the fields mean together: [files](files.md).\n"]
    for name, schema in schemas().items():
        parts.append(f"## {name}\n\n[JSON Schema]({name}.schema.json), for editors.\n")
        parts += _fields(schema)
        for title, part in schema.get("$defs", {}).items():
            if rows := _fields(part):
                parts += [f"### {name}: {title}\n", *rows]
    return "\n".join(parts)


def _fields(schema: dict[str, Any]) -> list[str]:
    text = [f"{_escaped(schema['description'])}\n"] if schema.get("description") else []
    fields = schema.get("properties", {})
    required = schema.get("required", [])
    rows = [
        f"| `{field}` | {_escaped(_type_of(form))} | {_default_of(form, needed=field in required)} "
        f"| {_escaped(form.get('description', ''))} |"
        for field, form in fields.items()
    ]
    return [*text, "| field | type | default | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _type_of(form: dict[str, Any]) -> str:
    if "$ref" in form:
        return str(form["$ref"]).rpartition("/")[2]
    for word in ("anyOf", "oneOf"):
        if word in form:
            return " or ".join(dict.fromkeys(_type_of(each) for each in form[word]))
    if "const" in form:
        return repr(form["const"])
    if "enum" in form:
        return ", ".join(map(repr, form["enum"]))
    kind = form.get("type", "any")
    if kind == "array" and isinstance(form.get("items"), dict):
        return f"list of {_type_of(form['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _default_of(form: dict[str, Any], *, needed: bool) -> str:
    if needed:
        return "required"
    return f"`{form['default']}`" if form.get("default") not in (None, "") else "–"


def python_page(package: str) -> str:
    """Return the page of a *package*: each public name, which mkdocstrings replaces with its docstring."""
    module = importlib.import_module(package)
    names = _TESTING if package == "testbed.testing" else module.__all__
    first = (module.__doc__ or "").partition("\n")[0]
    return "\n".join([f"# {package}\n", f"{first}\n", *(f"::: {package}.{name}\n" for name in sorted(names))])


def pages() -> dict[str, str]:
    """Return the text of each page (and drawing) that is generated, by its name in the site."""
    return {
        **algorithm_pages(),
        "reference/commands.md": commands_page(),
        "fields.md": schemas_page(),
        **{f"reference/{package}.md": python_page(package) for package in PACKAGES},
    }
