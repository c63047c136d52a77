"""Code blocks of the documents, and console sessions compared with what their commands print.

A block says what it is: ``console`` (commands behind ``$`` and what they print), ``python`` (runs alone,
as it stands), ``py`` (an excerpt), ``sh``, ``json``, ``toml``, ``yaml`` or ``text``.  A comment above it
may say more:

    <!-- not run: REASON -->     nobody runs it here
    <!-- distributed -->         it starts several processes
    <!-- times vary -->          durations in it are those of the wall clock, so any will do

In what a command prints, ``[…]`` stands for any text, and a line ``[… what is left out …]`` for any lines.
Every block runs by itself, in a folder that has nothing in it but `examples`.
"""

import difflib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "bugs.md"),
]  # fmt: skip
LANGUAGES = {"console", "python", "py", "sh", "json", "toml", "yaml", "text"}

_PROGRESS = re.compile(r"^testbed: \d+ s[,:].*\n", re.MULTILINE)
"""How far a long command is, which depends on how busy the machine is."""
_BLOCK = re.compile(
    r"(?:^<!-- (?P<remark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE
)
_LEFT_OUT = r"\[…\]"
_DURATION = (
    r"\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s)\b(?: \(\d+:\d\d:\d\d\))?"  # pytest adds minutes where it is slow
)
_VARIES = f"{_LEFT_OUT}|{_DURATION}"


@dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str
    remark: str

    @property
    def is_run(self) -> bool:
        """Whether it can be run here."""
        return not self.remark.startswith("not run: ")

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks_of(document: Path) -> list[Block]:
    """Return the fenced blocks of *document*, in their order."""
    text = document.read_text(encoding="utf-8")
    return [
        Block(
            document,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            found["text"],
            found["remark"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


@dataclass(frozen=True)
class Session:
    """A command of a console block, and what the document says it prints."""

    command: str
    shown: str


def sessions_of(block: Block) -> list[Session]:
    """Return the commands of a console *block*, each with its output."""
    pieces = re.split(r"^\$ (.*)\n", block.text, flags=re.MULTILINE)
    assert pieces[0] == "", f"{block}: a console block begins with a command"
    return [Session(command, shown) for command, shown in zip(pieces[1::2], pieces[2::2], strict=True)]


def environment() -> dict[str, str]:
    """Return an environment in which commands are those of this interpreter, and print plainly."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", "")])
    return variables | {
        "COLUMNS": "100", "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def run_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run *command* in *folder* and return what it printed on both streams, in order."""
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment() | {"XDG_CACHE_HOME": str(folder / ".cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )


IN_PROCESS = ("compare", "export", "plan", "run", "scale", "show", "simulate", "synthesize", "tune", "verify")
"""Commands of `testbed` that start no processes: they run in that of the tests, without a start each."""


def run_command(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Run *command* in *folder*, here if it can be; return its exit code and what both streams got."""
    words = shlex.split(command, comments=True)
    here = words[0] == "testbed" and words[1] in IN_PROCESS and "--processes" not in words
    if not here or set("|<>;&$`") & set("".join(words)):
        done = run_shell(command, folder)
        return done.returncode, done.stdout
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        result = CliRunner().invoke(app, words[1:], prog_name="testbed")
    return result.exit_code, result.output


def difference(session: Session, printed: str, *, times_vary: bool) -> str:
    """Return how *printed* differs from what is shown, or nothing if it does not."""
    shown = [line.rstrip() for line in session.shown.strip("\n").split("\n")]
    got = [line.rstrip() for line in _PROGRESS.sub("", printed).strip("\n").split("\n")]
    if re.fullmatch(_pattern(shown, times_vary), "".join(f"{line}\n" for line in got)):
        return ""

    return "\n".join(difflib.unified_diff(shown, got, "the document", f"$ {session.command}", lineterm=""))


def _pattern(shown: list[str], times_vary: bool) -> str:
    pattern = ""
    for line in shown:
        if re.fullmatch(r"\[….*\]", line):
            pattern += r"(?:.*\n)*?"
            continue
        literal = re.split(_VARIES if times_vary else _LEFT_OUT, line)
        wild = re.findall(_VARIES if times_vary else _LEFT_OUT, line)
        pattern += re.escape(literal[0])
        for text, after in zip(wild, literal[1:], strict=True):
            pattern += (".*?" if text == "[…]" else _DURATION) + re.escape(after)
        pattern += r"\n"
    return pattern
