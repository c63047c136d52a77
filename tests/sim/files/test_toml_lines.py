"""On which line a key of a TOML document stands."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from sim.files.toml_lines import key_lines, line_of

TEXT = '''
a = 1  # [x] = 3
b.c = """
x = 2
[y]
"""
[t]
"q r" = [  # [z]
  "]", 2, {k = 3},
]
[[l]]
i = {j = 1}
[[l]]
[l.sub]
z = '#['
[[l.more]]
w = 1
'''
KEYS = st.text("ab1_- é.#[=\"'\\", min_size=1, max_size=4)
VALUES = st.sampled_from(['"""\n[a]\nb = 1\n"""', "'''\na = ''\n'''", "[\n1, # ]\n2]", '"#"', "{b = 1}", "1"])


def test_tables_and_keys_are_found_where_they_begin():
    lines = key_lines(TEXT)

    assert lines["a",] == 2
    assert lines["b", "c"] == 3
    assert lines["t",] == 7
    assert lines["t", "q r"] == 8
    assert lines["l", 0, "i"] == 12
    assert lines["l", 1] == 13
    assert lines["l", 1, "sub", "z"] == 15
    assert lines["l", 1, "more", 0, "w"] == 17
    assert not {("x",), ("y",), ("z",), ("k",)} & lines.keys()


def test_a_place_without_a_line_has_that_of_what_is_around_it():
    lines = key_lines(TEXT)

    assert line_of(("l", 0, "i", "j"), lines) == 12
    assert line_of(("l", 1, "nothing"), lines) == 13
    assert line_of(("nothing",), lines) is None


@given(st.lists(st.tuples(KEYS, VALUES), max_size=6, unique_by=lambda pair: pair[0]), st.integers(0, 3))
def test_every_key_is_found_on_the_line_that_it_was_written_on(pairs, blank):
    quoted = [(key.replace("\\", "\\\\").replace('"', '\\"'), value) for key, value in pairs]
    text, written = "\n" * blank, []
    for key, value in quoted:
        written.append(text.count("\n") + 1)
        text += f'"{key}" = {value}\n'

    lines = key_lines(text)

    assert list(tomllib.loads(text)) == [key for key, _ in pairs]
    assert [lines[key,] for key, _ in quoted] == written
