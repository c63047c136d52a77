"""Slips drawn from a seed in the sources, and the first test that turns red for each.

A slip is a small mistake of one line: another operator, a number off by one, a dropped line, two swapped
arguments. ``draw`` writes a list of slips, drawn over all packages by their lines. ``judge`` puts one slip
after another into this checkout, runs the nearest tests first, stops at the first red one, takes the slip out
again and sees that the test is green without it; the verdict is written to the list at once, so that a
judgement that was stopped goes on where it was.

    python -m tools.slips draw tools/slips.json --seed 1 --count 100
    python -m tools.slips judge tools/slips.json
    python -m tools.slips report tools/slips.json

Why no mutation tester of others: mutmut and cosmic-ray run one command against every mutant of a module. Here
a sample over a hundred thousand lines is to stop at the first red test of the nearest, and to be judged again
after the sources have moved on, which takes slips that are found by their text and not by their line.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.budget import KEPT, processor_seconds

PACKAGES = ("collectives", "ddp", "sim", "testbed")
LIMIT_SECONDS = 120
"""Processor time that tests of one slip may take; what none has caught by then, nothing catches."""

_STUCK = 5
"""Times that limit by the clock, after which tests that wait for ever are stopped."""

_TELLING = 12
"""Files of tests in which a name may stand and still tell what they test."""

FEW = ("--points", "few", "-m", "not privileged")
MORE = ("--points", "more")
"""What ``make test`` and ``.ci/run`` take of tests."""

_OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclass(frozen=True)
class Slip:
    """One changed line: where it stands, what it was and has become, and what became of it.

    Attributes:
        path: The file, from the root of the checkout.
        line: Its number when it was drawn; it is found again by its text.
        kind: ``operator``, ``off by one``, ``dropped line`` or ``swapped arguments``.
        before: The lines that change, as they are.
        after: What they become.
        verdict: Empty; what catches it, ``make test``, ``.ci/run`` or, by hand,
            ``make test-nightly``; ``nothing``; ``gone``: the line is;
            ``equivalent``, written by hand: it changes nothing that anybody can notice.
        caught_by: The first test that was red; of an equivalent slip, why it is one.
        seconds: The processor time of its tests.
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    verdict: str = ""
    caught_by: str = ""
    seconds: float = 0.0


def draw(seed: int, count: int) -> list[Slip]:
    """Return *count* slips, each on a line of its own, drawn evenly over the lines that can have one."""
    sites = [sites_of_line for path in _sources() for sites_of_line in _sites(path)]
    generator = random.Random(seed)
    return [generator.choice(sites_of_line) for sites_of_line in generator.sample(sites, count)]


def _sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in Path(package).rglob("*.py"))


def _sites(path: Path) -> Iterator[list[Slip]]:
    """Yield, for each line of *path* on which a slip can be made, the slips that can be made there."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    by_line: dict[int, list[Slip]] = {}
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in (node for statement in function.body for node in _evaluated(statement)):
            for kind, first, last, replacement in _changes(node, lines):
                before = "".join(lines[first:last])
                if replacement != before and _parses(lines, first, last, replacement):
                    slip = Slip(str(path), first + 1, kind, before, replacement)
                    by_line.setdefault(first, []).append(slip)
    yield from by_line.values()


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield *node* and what it evaluates: no annotations, and no functions inside, each drawn on its own."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _evaluated(child)


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[str, int, int, str]]:
    """Yield a kind, the range of lines, and what takes their place."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield from _another_operator(op, left, right, lines)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            yield from _another_operator(op, left, right, lines)
        case ast.BoolOp(op=op, values=[left, right, *_]):
            yield from _another_operator(op, left, right, lines)
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield "off by one", *_replaced(node, node, str(value + 1), lines)
        case ast.Call(args=[first, second, *_]) if not isinstance(first, ast.Starred | ast.GeneratorExp):
            if not isinstance(second, ast.Starred):
                swapped = f"{ast.unparse(second)}, {ast.unparse(first)}"
                yield "swapped arguments", *_replaced(first, second, swapped, lines)
        case ast.Expr(value=ast.Call()) | ast.Assign() | ast.AugAssign() | ast.Raise():
            yield "dropped line", *_replaced(node, node, "pass", lines)


def _another_operator(
    op: ast.AST, left: ast.expr, right: ast.expr, lines: list[str]
) -> Iterator[tuple[str, int, int, str]]:
    old, new = _OPERATORS[type(op)]
    if left.end_lineno != right.lineno:
        return
    row = lines[right.lineno - 1].encode()
    between = row[left.end_col_offset : right.col_offset].decode()
    changed = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, between, count=1)
    if changed != between:
        line = row[: left.end_col_offset].decode() + changed + row[right.col_offset :].decode()
        yield "operator", right.lineno - 1, right.lineno, line


def _replaced(first: ast.AST, last: ast.AST, text: str, lines: list[str]) -> tuple[int, int, str]:
    start, end = first.lineno - 1, last.end_lineno  # type: ignore[attr-defined]
    head = lines[start].encode()[: first.col_offset].decode()  # type: ignore[attr-defined]
    tail = lines[end - 1].encode()[last.end_col_offset :].decode()  # type: ignore[attr-defined]
    return start, end, head + text + tail


def _parses(lines: list[str], first: int, last: int, replacement: str) -> bool:
    try:
        ast.parse("".join([*lines[:first], replacement, *lines[last:]]))
    except SyntaxError:
        return False
    return True


@contextmanager
def slipped(slip: Slip) -> Iterator[bool]:
    """Put *slip* into the checkout and take it out again; yields whether its line is still there."""
    path = Path(slip.path)
    text = path.read_text() if path.exists() else ""
    place = _place(text, slip)
    if place is None:
        yield False
        return
    path.write_text(text[:place] + slip.after + text[place + len(slip.before) :])
    try:
        yield True
    finally:
        path.write_text(text)


def judge(slip: Slip) -> Slip:
    """Return *slip* with its verdict: by the nearest tests, then by all, until one is red or time is up."""
    start = processor_seconds()
    near = nearest_tests(slip)
    verdict, caught_by = "nothing", ""
    unfit: list[str] = []
    stages = ((near, FEW, "make test"), (near, MORE, ".ci/run"), (["tests"], FEW, "make test"))
    for tests, options, name in stages:
        while (left := LIMIT_SECONDS - (processor_seconds() - start)) > 0:
            with slipped(slip) as there:
                if not there:
                    return replace(slip, verdict="gone")
                red = _first_red(tests, [*options, *(f"--deselect={test}" for test in unfit)], left)
            if "::" not in red or not _first_red([red], options, LIMIT_SECONDS):
                break
            unfit.append(red)  # it is red without the slip, too
        else:
            break
        if red:
            verdict, caught_by = name, red
            break
    return replace(slip, verdict=verdict, caught_by=caught_by, seconds=round(processor_seconds() - start, 1))


def nearest_tests(slip: Slip) -> list[str]:
    """Return files of tests, nearest first; of those that are equally near, the cheaper first.

    Nearest are those of the file's name, then those that name what the slip is in, the file, its folder,
    what else it defines, and its package.
    """
    path = Path(slip.path)
    folder = Path("tests") / path.parent
    module = ".".join(path.with_suffix("").parts)
    sources = {test: _with_cases(test) for test in sorted(Path("tests").rglob("test_*.py"))}
    words = {test: set(re.findall(r"\w+", text)) for test, text in sources.items()}
    about = {test: own for test, own in words.items() if path.parts[0] in own}
    around, others = _names(slip, list(about.values()))
    kinds = (
        lambda test: test.stem == f"test_{path.stem}",
        lambda test: test in about and not around.isdisjoint(about[test]),
        lambda test: path.parts[0] in test.parts and path.stem in test.stem.split("_"),
        lambda test: module in sources[test],
        lambda test: folder in test.parents,
        lambda test: test in about and not others.isdisjoint(about[test]),
        lambda test: module.rpartition(".")[0] in sources[test],
        lambda test: path.stem in test.stem,
        lambda test: folder.parent in test.parents and len(folder.parent.parts) > 2,
        lambda test: path.parts[0] in test.stem.split("_"),
    )
    cost = tomllib.loads(KEPT.read_text())["few"]
    near: list[Path] = []
    for belongs in kinds:
        found = [test for test in sources if belongs(test) and test not in near]
        near += sorted(found, key=lambda test: cost.get(str(test), 0.0))
    return [str(test) for test in near[:40]] or ["tests"]


def _with_cases(test: Path) -> str:
    """Return the text of *test*, and of modules of ``tests`` from which it has its cases."""
    texts = [test.read_text()]
    for module, names in re.findall(r"^from (tests[\w.]*) import ([\w, ]+)$", texts[0], re.MULTILINE):
        place = Path(*module.split("."))
        modules = [place.with_suffix(".py"), *(place / f"{name}.py" for name in names.split(", "))]
        texts += [path.read_text() for path in modules if path.is_file()]
    return "\n".join(texts)


def _names(slip: Slip, tests: Sequence[set[str]]) -> tuple[set[str], set[str]]:
    """Return names of functions and classes around *slip*, and the file's others, that few *tests* have."""
    path = Path(slip.path)
    text = path.read_text() if path.exists() else ""
    place = _place(text, slip)
    line = slip.line if place is None else text.count("\n", 0, place) + 1
    around: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            (around if node.lineno <= line <= (node.end_lineno or 0) else others).add(node.name)
    frequent = {name for name in around | others if sum(name in words for words in tests) > _TELLING}
    return around - frequent, others - frequent


def _place(text: str, slip: Slip) -> int | None:
    """Return where the lines of *slip* begin: of several places, the one nearest to where it was drawn."""
    places = [match.start() for match in re.finditer("^" + re.escape(slip.before), text, re.MULTILINE)]
    return min(places, key=lambda at: abs(text.count("\n", 0, at) + 1 - slip.line), default=None)


def _first_red(tests: Sequence[str], options: Sequence[str], seconds: float) -> str:
    """Return the first test that is red, without its parameters, or how else pytest failed, or nothing."""
    how = ["-x", "-q", "--timeout=60", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *how, *options, *tests],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    start = time.monotonic()
    before = processor_seconds()
    while True:
        try:
            output, _ = process.communicate(timeout=1)
            break
        except subprocess.TimeoutExpired:
            if processor_seconds() - before < seconds and time.monotonic() - start < _STUCK * seconds:
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return ""
    red = re.findall(r"^(?:FAILED|ERROR) ([^\s\[]+)", output, re.MULTILINE)
    if red:
        return str(red[0])
    if process.returncode in {0, 5}:
        return ""
    last = [line for line in output.splitlines() if line.strip()][-1:]
    return f"pytest ended with {process.returncode}: {last[0] if last else ''}"[:200]


def main() -> None:
    """Draw, judge or report slips, as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.slips", description=__doc__.split("\n")[0])
    parser.add_argument("do", choices=["draw", "judge", "report"])
    parser.add_argument("file", type=Path, help="the list of slips, JSON")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    arguments = parser.parse_args()

    if arguments.do == "draw":
        _write(arguments.file, draw(arguments.seed, arguments.count))
        return
    slips = [Slip(**row) for row in json.loads(arguments.file.read_text())]
    if arguments.do == "judge":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the slip is taken out again
        for index, slip in enumerate(slips):
            if not slip.verdict:
                slips[index] = judge(slip)
                _write(arguments.file, slips)
                print(f"{index + 1}/{len(slips)} {_line(slips[index])}", flush=True)
    verdicts = [slip.verdict or "not judged" for slip in slips]
    for slip in slips:
        if slip.verdict == "nothing":
            print(_line(slip))
    print(", ".join(f"{verdicts.count(each)} {each}" for each in sorted(set(verdicts))))


def _line(slip: Slip) -> str:
    return f"{slip.path}:{slip.line} {slip.kind}: {slip.verdict} {slip.caught_by} ({slip.seconds} s)"


def _write(path: Path, slips: list[Slip]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps([asdict(slip) for slip in slips], indent=1) + "\n")
    unfinished.replace(path)


if __name__ == "__main__":
    main()
