"""What mkdocs does not do by itself: pages from outside `docs`, generated pages, GitHub's Markdown.

`mkdocs.yml` names this file.  Links to files that are no pages (examples, sources) lead to copies of these.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from docs.tools.site_pages import pages

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security_policy.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages that are kept beside `docs`: path in the tree, and in the site."""

_LINK = re.compile(
    r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>(?!\w+:)[^)\s#]*)(?P<anchor>#[^)\s]*)?\)"
)
_RAW = re.compile(r'href="(?P<target>(?!\w+:)[^"#]*)\.md(?P<anchor>#[^"]*)?"')
_ASKED = re.compile(r'<(?:script|img|iframe)\b[^>]*\ssrc="(?:https?:)?//|<link\b[^>]*\shref="(?:https?:)?//')
_FENCE = re.compile(r"^```.*?^```[^\S\n]*$", re.DOTALL | re.MULTILINE)

_places: dict[str, str] = {}  # path in the tree -> path in the site
_origins: dict[str, str] = {}  # the other way round
_generated: dict[str, str] = {}  # path in the tree that a generated page would have -> its text


def on_files(files: Any, config: Any) -> Any:
    """Add pages from outside, generated ones, and a copy of every file that a page links to."""
    _places.clear()
    index = files.get_file_from_path("README.md")
    if index is not None:
        files.remove(index)
    for file in files:
        _places[f"docs/{file.src_uri}"] = file.src_uri
    _places["docs/README.md"] = "index.md"
    for path, place in OUTSIDE.items():
        _places[path] = place
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
        _places[f"docs/{place}"] = place
        _generated[f"docs/{place}"] = text
    _origins.update({place: path for path, place in _places.items() if path != "docs/README.md"})
    for path in sorted(_linked()):
        _places[path] = f"files/{path}.txt"
        files.append(File.generated(config, _places[path], abs_src_path=str(ROOT / path)))
    return files


def _linked() -> set[str]:
    """Return the files of the tree that pages link to and that are no pages."""
    sources = [path for path in _places if path.endswith(".md")]
    found = {
        posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
        for source in sources
        for link in _LINK.finditer(_generated.get(source) or (ROOT / source).read_text(encoding="utf-8"))
        if link["target"]
    }
    return {path for path in found if path not in _places and (ROOT / path).is_file()}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with links of the site, in Markdown as Python-Markdown reads it."""
    origin = _origins.get(page.file.src_uri)
    if origin is None:
        return markdown
    pieces: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_prose(markdown[end : fence.start()], page.file.src_uri, origin), f"\n{fence[0]}\n"]
        end = fence.end()
    return "".join([*pieces, _prose(markdown[end:], page.file.src_uri, origin)])


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that asks another address for something when it is opened."""
    if asked := _ASKED.search(output):
        raise PluginError(f"{page.file.src_uri} asks another address: {asked[0]}")
    return output


def _prose(text: str, place: str, origin: str) -> str:
    text = _LINK.sub(lambda link: _link(link, place, origin), text)
    text = _RAW.sub(
        lambda raw: f'href="{raw["target"].replace("README", "index")}.html{raw["anchor"] or ""}"', text
    )
    return _with_blank_lines(text)


def _link(link: re.Match[str], place: str, origin: str) -> str:
    target, anchor = link["target"], link["anchor"] or ""
    if not target:
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if path not in _places:
        return link["text"].removeprefix("!")[1:-1]  # a folder
    here = posixpath.relpath(_places[path], posixpath.dirname(place) or ".")
    return f"{link['text']}({here}{anchor})"


def _with_blank_lines(text: str) -> str:
    """Return *text* with a blank line before each list, table and heading, which GitHub does not need."""
    lines: list[str] = []
    in_list = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        is_item = re.match(r" {0,3}(?:[*-]|\d+\.) ", line) is not None
        is_table = line.startswith("|")
        starts = (is_item and not in_list) or (is_table and not before.startswith("|"))
        if before.strip() and (starts or line.startswith("#") or before.startswith("#")):
            lines.append("")
        in_list = is_item or (in_list and bool(line.strip()) and not line.startswith("#"))
        lines.append(line)
    return "\n".join(lines)
