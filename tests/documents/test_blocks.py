"""The code of the documents runs, and prints what they show."""

import subprocess
import sys
from pathlib import Path

import pytest

from ddp import Profile
from sim import load_device, load_network
from tests.documents.blocks import (
    DOCUMENTS,
    LANGUAGES,
    ROOT,
    Block,
    Session,
    blocks_of,
    difference,
    environment,
    run_command,
    sessions_of,
)

ALL = [block for document in DOCUMENTS for block in blocks_of(document)]

RUN_ELSEWHERE = {
    "diagnoses.md": "tests/examples/test_mistakes.py",
    "examples.md": "benchmarks/example_predictions.py",  # ten minutes of real computation
    "testing.md": "tests/testbed/test_pytest_plugin.py",
}


def marks_of(block: Block) -> list[pytest.MarkDecorator]:
    """Return the marks of a block: soon run are those of the README; its test a console block runs."""
    marks = [pytest.mark.distributed] if block.remark == "distributed" else []
    is_soon = block.document.name == "README.md" and "def test_" not in block.text
    return marks if is_soon else [*marks, pytest.mark.slow]


def blocks_in(language: str) -> list[object]:
    return [
        pytest.param(block, id=str(block), marks=marks_of(block))
        for block in ALL
        if block.language == language and block.is_run and block.document.name not in RUN_ELSEWHERE
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing in it but the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", blocks_in("console"))
def test_commands_print_what_the_document_shows(block, folder, monkeypatch):
    for session in sessions_of(block):
        code, printed = run_command(session.command, folder, monkeypatch)

        assert code in {0, 1}, printed
        found = difference(session, printed, times_vary=block.remark == "times vary")
        assert not found, found


@pytest.mark.costly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", blocks_in("python"))
def test_python_runs_alone_as_it_stands(block, folder):
    is_test = "def test_" in block.text
    (folder / "test_block.py").write_text(block.text, encoding="utf-8")
    how = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []
    done = subprocess.run(
        [sys.executable, *how, "test_block.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    if not is_test:
        said = [line.partition("  # prints ")[2] for line in block.text.splitlines() if "  # prints " in line]
        assert done.stdout.splitlines() == said


@pytest.mark.parametrize("block", [block for block in ALL if block.language in {"python", "py"}], ids=str)
def test_excerpts_are_python(block):
    compile(block.text, str(block), "exec")


def test_every_block_says_what_it_is_and_what_is_not_run_says_why():
    assert [str(block) for block in ALL if block.language not in LANGUAGES] == []
    assert [
        str(block) for block in ALL if block.remark not in {"", "distributed", "times vary"} and block.is_run
    ] == []
    assert [str(block) for block in ALL if not block.is_run and len(block.remark) < len("not run: why")] == []


def test_what_the_readme_says_of_a_file_in_examples_stands_in_it():
    shown = {
        file: (ROOT / "examples" / file).read_text(encoding="utf-8")
        for file in ("my_ring.py", "test_mean.py")
    }
    readme = "\n".join(block.text for block in ALL if block.document.name == "README.md")

    for file, text in shown.items():
        first = text.split("\n\n\n")[1]
        assert first.rstrip() in readme, file


def test_the_files_that_are_shown_can_be_loaded(tmp_path):
    document = blocks_of(ROOT / "docs" / "files.md")
    texts = {
        language: [block.text for block in document if block.language == language]
        for language in ("json", "toml")
    }
    (tmp_path / "profile.json").write_text(*texts["json"])
    for name, text in zip(("network", "cluster", "measured", "device"), texts["toml"], strict=True):
        (tmp_path / f"{name}.toml").write_text(text)

    assert len(Profile.load(tmp_path / "profile.json").gradients) == 2
    assert load_network(tmp_path / "network.toml").topology(12).num_ranks == 12
    assert load_network(tmp_path / "cluster.toml").topology(1024).num_ranks == 1024
    assert load_network(tmp_path / "measured.toml").topology(2).measured[0].collective == "all_reduce"
    assert load_device(tmp_path / "device.toml").rates.keys() == {"bfloat16"}


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb\n", "a  \nb\n", True), ("a\n", "b\n", False), ("a\n[… the rest …]\n", "a\nb\nc\n", True),
        ("[… the start …]\nc\n", "a\nb\nd\n", False), ("took […] steps\n", "took 12 steps\n", True),
        ("1 passed in 1.25s\n", "1 passed in 80.02s (0:01:20)\n", True),
        ("took 1.25 ms of 4 s, 3 times\n", "took 80 us of 41.5 s, 3 times\n", True),
        ("took 1.25 ms, 3 times\n", "took 80 us, 4 times\n", False),
    ],
)  # fmt: skip
def test_what_is_left_out_may_be_anything_and_what_is_shown_may_not(shown, printed, same):
    found = difference(Session("command", shown), printed, times_vary=True)

    assert (not found) == same


def test_durations_count_where_nothing_says_that_they_vary():
    assert difference(Session("command", "took 1.25 ms\n"), "took 1.26 ms\n", times_vary=False)
