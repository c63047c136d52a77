"""Delivery of a result: on the terminal or as JSON, and as a page where one is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from testbed.output.table import print_json, stdout_console
from testbed.pages.html import check_page, write_page
from testbed.pages.page import Page, Part, Plot, Text
from testbed.pages.recorded import Recorder


@dataclass(frozen=True)
class Delivery:
    """How a command gives its result, as its options say.

    Attributes:
        as_json: whether stdout is for the document.
        html: the file of the page; None: no page is wanted.
    """

    as_json: bool
    html: Path | None

    def check(self) -> None:
        """Check, before any work is done, that the page can be written.

        Raises:
            UsageError: it cannot.
        """
        check_page(self.html)

    def give(
        self,
        document: Mapping[str, Any],
        show: Callable[[Console], None],
        question: str,
        answer: str,
        plots: Callable[[], Sequence[Plot]] = tuple,
        console: Callable[[], Console] = stdout_console,
    ) -> None:
        """Give the result.

        Args:
            document: the result as JSON types.
            show: prints it to a console; a page has the same words.
            question: in words.
            answer: in one sentence.
            plots: draws the page's plots; called only where there is a page.
            console: gives that of the terminal.
        """
        if self.html is not None:
            recorder = Recorder()
            show(recorder)
            parts = _without(question, answer, recorder.parts())
            write_page(self.html, Page(question, answer, document, [*plots(), *parts]))
        if self.as_json:
            print_json(dict(document))
            return
        terminal = console()
        show(terminal)
        if self.html is not None:
            terminal.print(f"Page: {self.html}", markup=False, soft_wrap=True)


def _without(question: str, answer: str, parts: Sequence[Part]) -> Sequence[Part]:
    """Return *parts* without a beginning that only repeats the *question* or the *answer*."""
    first = parts[0] if parts else None
    if not isinstance(first, Text):
        return parts
    if not first.paragraphs and first.title == question:
        return parts[1:]
    if not first.title and list(first.paragraphs[:1]) == [answer]:
        return [replace(first, paragraphs=first.paragraphs[1:]), *parts[1:]]
    return parts
