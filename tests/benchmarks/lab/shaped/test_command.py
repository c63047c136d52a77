"""The program that builds networks: what it refuses, and what it lacks."""

from types import SimpleNamespace

import pytest

from benchmarks.lab.program import program
from benchmarks.lab.shaped import built
from benchmarks.lab.shaped.__main__ import EXAMPLES, shaped
from testbed.result import Result
from tests.commands import called

PROGRAM = program(shaped, EXAMPLES)
RING = 'schema = 1\nkind = "ring"\nnum_ranks = 4\nbandwidth = "80Mbps"\nlatency = "1ms"\n'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ring.toml", "ring.toml: ring: messages from rank 0 to rank 2 pass through"),
        ("switch-100g", "of any size; say num_ranks"), ("no_such.toml", "no_such.toml"),
        ("", "name at least one network file"), ("--incast ring.toml", "--incast goes alone"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(line, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.toml").write_text(RING)

    stderr = called(line, code=2, program=PROGRAM).stderr

    assert said in stderr
    assert stderr.startswith("testbed: error: ")
    assert stderr.count("\n") == 1


STAR = "examples/networks/shaped/four_equal.toml"


@pytest.mark.parametrize(
    ("user", "absent", "said"), [(1000, "", "need root"), (0, "tc", "made by iproute2, and tc is missing")]
)
def test_without_root_or_iproute2_it_says_so(user, absent, said, monkeypatch):
    monkeypatch.setattr(built.os, "geteuid", lambda: user)
    monkeypatch.setattr(built.shutil, "which", lambda name: None if name == absent else name)

    assert said in called(STAR, code=2, program=PROGRAM).stderr


def test_without_matplotlib_it_goes_on_and_says_that_nothing_was_drawn(tmp_path, monkeypatch):
    nothing = SimpleNamespace(rows=(), as_json=dict)
    monkeypatch.setattr("testbed.errors.is_installed", lambda _: False)
    monkeypatch.setattr(built, "check_possible", lambda: None)
    monkeypatch.setattr("benchmarks.lab.shaped.plain.calibrate_plain", lambda _: nothing)
    monkeypatch.setattr("benchmarks.lab.shaped.validation.validate", lambda *_: nothing)
    monkeypatch.setattr(
        "benchmarks.lab.report.shaped.shaped_result", lambda *_: Result("q", "a", "measured", "m")
    )

    finished = called(f"{STAR} --output {tmp_path} --json", program=PROGRAM)

    assert "No picture was drawn: plots need matplotlib" in finished.stderr
