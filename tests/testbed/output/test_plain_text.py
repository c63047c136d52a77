"""Output in ASCII where a terminal knows no more: as long as it was, and never an error."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.output.streams import plain

LINKS = "simulate ring --ranks 4 --links"


@given(st.text())
def test_plain_text_is_ascii_and_as_long(text):
    assert plain(text).isascii()
    assert len(plain(text)) == len(text)


def test_signs_have_their_nearest():
    assert plain("8 × 2 µs → 16 µs ├──┤ Müller ███") == "8 x 2 us > 16 us +--+ Muller ###"


@pytest.mark.parametrize("command", ["simulate --help", pytest.param(LINKS, marks=pytest.mark.costly)])
def test_a_command_speaks_ascii_where_nothing_else_is_known(command):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}

    said = subprocess.run(
        [sys.executable, "-m", "testbed", *command.split()], capture_output=True, env=environment, check=True
    )

    assert said.stdout.isascii()
    assert b"?" not in said.stdout
    assert said.stderr == b""
