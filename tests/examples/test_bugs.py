"""The benchmark of bugs: of each pair of scripts the wrong one is found, and the right one left in peace."""

import pytest

from benchmarks.bugs.page import PAGE, TITLES, page, read_results
from benchmarks.bugs.pairs import CLASSES, all_pairs, read_pair
from benchmarks.bugs.verdict import Said, Verdict, ranks_named
from benchmarks.bugs.virtual import verdict_of_testbed
from testbed.errors import UsageError

PAIRS = all_pairs()
FIRST_OF_CLASS = [next(pair for pair in PAIRS if pair.kind == kind) for kind in CLASSES]


def points():
    """Return the first pair of each class, and for `make test-all` every fifth of all.

    ``python -m benchmarks.bugs`` goes through all of them.
    """
    first = [pair for pair in FIRST_OF_CLASS if pair.check != "same"]
    others = [pair for pair in PAIRS[::5] if pair not in first]
    return [
        *(pytest.param(pair, id=pair.name) for pair in first),
        *(pytest.param(pair, id=pair.name, marks=pytest.mark.slow) for pair in others),
    ]


def test_each_class_has_pairs_and_each_wrong_script_has_a_right_one():
    assert {pair.kind for pair in PAIRS} == set(CLASSES)
    assert len({pair.name for pair in PAIRS}) == len(PAIRS) >= 60
    assert [pair.name for pair in PAIRS if not pair.right.exists()] == []
    assert len(list(PAIRS[0].right.parent.glob("*.py"))) == len(PAIRS)


@pytest.mark.costly
@pytest.mark.parametrize("pair", points())
def test_the_wrong_script_is_found_and_the_right_one_left_in_peace(pair):
    verdict = verdict_of_testbed(pair)

    assert verdict.hit
    assert not verdict.false_alarm
    assert verdict.names_rank is not False
    assert verdict.names_line is not False


def test_the_page_says_what_the_kept_verdicts_say_of_all_pairs():
    kept = read_results()
    names = {
        tool: {pair.name for pair in PAIRS if tool == "testbed" or not pair.needs_gpus} for tool in TITLES
    }

    assert list(kept) == list(TITLES)
    assert all(own.keys() == names[tool] for tool, own in kept.items())
    assert page(kept) == PAGE.read_text(encoding="utf-8")


def test_ranks_are_named_by_who_names_them_together_and_not_by_a_list_of_all():
    text = "\n".join(["  rank 3: waits", "  ranks 0, 1 and 2 wait; rank 5 called", "ranks 0-2, 7 at x.py:3"])

    assert ranks_named(text) == {frozenset({0, 1, 2}), frozenset({5}), frozenset({0, 1, 2, 7})}


def test_a_tool_that_names_another_line_names_it_not():
    pair = PAIRS[0]
    line = min(pair.lines_to_name)
    silence = Said(False, "")

    assert Verdict.on(pair, Said(True, f"rank 0 at {pair.name}.py:{line}: dist"), silence).names_line
    assert not Verdict.on(pair, Said(True, f"{pair.name}.py:{line}1: dist"), silence).names_line


@pytest.mark.parametrize(
    "docstring",
    ["", "Mistake: x.", "Mistake: x.\n\nClass: of none\nTo name: rank 0; y", "Mistake: x.\n\nClass: waste"],
)
def test_a_docstring_that_does_not_say_what_to_name_is_refused(docstring, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f'"""{docstring}"""\n')

    with pytest.raises(UsageError, match=r"script.py: expected"):
        read_pair(script)
