"""Options of the interpreter, which change nothing that a command says."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli import app

ROOT = Path(__file__).parents[3]
COMMANDS = """
--help
simulate --help
verify ring --ranks 2-4
verify wrong.py:wrong --ranks 2
verify rong
show ring --ranks 3
show ring:channels=2
simulate ring --ranks 4 --json
simulate ring --nbytes 1M,banana
network dgx-h100
export ring --ranks 2 --format msccl
export none.json --format nccl-tuner
calibrate --ranks 1
"""
"""Cheap ones: help, proofs, tables, documents and errors."""

WRONG = '''
def wrong(rank, world_size):
    """Swap what should be reduced."""
    from collectives import Recv, Send

    yield (Send(1 - rank, 0), Recv(1 - rank, 0))
'''


def results():
    """Return the exit code, the output and the errors of each command."""
    found = {}
    for command in COMMANDS.strip().splitlines():
        result = CliRunner().invoke(app, command.split())
        found[command] = [result.exit_code, result.stdout, result.stderr]
    return found


@pytest.mark.costly
def test_commands_say_the_same_without_assertions_and_docstrings_and_where_warnings_are_errors(
    tmp_path, monkeypatch
):
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [__file__])
    environment = {**os.environ, "PYTHONWARNINGS": "error"}

    command = [sys.executable, "-OO", __file__]
    with_both = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)

    said = results()
    assert {code for code, *_ in said.values()} == {0, 1, 2}
    assert json.loads(with_both.stdout) == said


def test_an_assertion_tells_the_type_checker_what_is_not_none_and_checks_nothing():
    found = []
    for package in ("collectives", "ddp", "sim", "testbed"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "assert " in source:
                assertions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert))
                found += [f"{path}:{node.lineno}" for node in assertions if not _is_for_types(node.test)]

    assert found == []


def _is_for_types(test):
    if isinstance(test, ast.Call):
        return ast.unparse(test.func) == "isinstance"
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot)


if __name__ == "__main__":
    print(json.dumps(results()))
