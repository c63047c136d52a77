"""Edges of what a machine and a shell give a command: streams, numbers, names, files, sizes."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from collectives.formats.whole_file import write_whole
from testbed import cli
from testbed.cli import imported
from testbed.errors import UsageError
from testbed.options.values import check_values
from testbed.scripts import launch
from tests.commands import called

COMMANDS = {name: imported(name) for name in cli.COMMANDS}
NUMBERS = [
    (name, parameter.name)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if "float" in str(parameter.type_descriptor.annotation)
]
"""Commands, and their parameters that are numbers with a fraction."""


def test_a_command_whose_stderr_is_closed_prints_what_it_prints_otherwise(tmp_path):
    line = "simulate ring --ranks 4"
    closed = [sys.executable, "-m", "testbed", *line.split()]

    done = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *closed], stdout=subprocess.PIPE, text=True, check=True, cwd=tmp_path
    )

    assert done.stdout == called(line).stdout


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
def test_no_option_of_any_command_takes_a_number_that_is_not_finite(number):
    assert {("bench", "timeout"), ("calibrate", "seconds")} <= set(NUMBERS)
    for command, name in NUMBERS:
        for given in (float(number), [1.0, float(number)]):
            with pytest.raises(UsageError, match="expected a finite number"):
                check_values(COMMANDS[command], {name: given})


@pytest.mark.parametrize("name", ["es\x1b[31mc.toml", "new\nline.toml", "c1\x9b31m.toml"])
def test_a_name_with_control_characters_is_refused_and_spelled(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(NETWORK, encoding="utf-8")
    calls = [(line, name) for line in ("network", "simulate ring --network", "run", "compare b", "plan")]

    for line, word in [*calls, ("simulate ring --trace", f"{name}.json"), ("verify", f"{name}:f")]:
        said = called(line, word, code=2).stderr

        assert "expected no control characters, got 'es\\x1b[31mc" in said or name[0] != "e"
        assert said.count("\n") == 1
        assert all(sign.isprintable() for sign in said[:-1])


def test_errors_and_tables_spell_control_characters_that_are_of_no_argument(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("def f(rank, world_size):\n    raise ValueError('a\\x1b[31mred')\n")
    monkeypatch.chdir(tmp_path)

    for line in ("verify own.py:f --ranks 2", "simulate own.py:f --ranks 2"):
        result = called(line, code=1)

        assert "\x1b" not in result.output
    assert "a\\x1b[31mred" in result.stderr


NETWORK = 'schema = 1\nkind = "switch"\nnum_ranks = 4\nbandwidth = "1Gbps"\nlatency = "1us"\n'


def test_a_name_that_is_not_utf_8_is_shown_and_drawn_with_a_question_mark(tmp_path, monkeypatch):
    pytest.importorskip("bokeh")
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.toml")
    Path(name).write_text(NETWORK, encoding="utf-8")

    result = called("simulate ring --html page.html --network", name)

    assert "caf?" in result.stdout
    assert "caf?" in Path("page.html").read_text(encoding="utf-8")
    write_whole("note.md", name)
    assert Path("note.md").read_text(encoding="utf-8") == "caf?.toml"


@pytest.mark.parametrize("transport", ["gloo", "shm"])
def test_processes_that_cannot_meet_are_not_started(transport, monkeypatch):
    monkeypatch.setattr(launch, "ADDRESS", "192.0.2.1")  # that no machine has

    result = called(f"bench --transport {transport} --ranks 2 --nbytes 1K", code=2)

    assert "processes of this machine cannot meet at 192.0.2.1: " in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_the_shell_pipes_is_read(tmp_path):
    (tmp_path / "net.toml").write_text(NETWORK, encoding="utf-8")
    command = f"{shlex.join([sys.executable, '-m', 'testbed', 'network'])} <(cat net.toml)"

    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout


def test_a_program_that_fuzz_cannot_carry_out_is_a_wrong_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "from collectives import Recv, Send\n\n\ndef f(rank, world_size):\n"
        "    yield Send((rank + 1) % world_size, 10**12), Recv((rank - 1) % world_size, 10**12)\n"
    )

    result = called("fuzz own.py:f --seeds 1 --workers 1", code=1)

    assert "runs_without_faults: f, all_reduce, world size 2: rank 0, step 0: out of range" in result.stdout
