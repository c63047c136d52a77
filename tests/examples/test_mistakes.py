"""Each classic mistake of `examples/mistakes` gets its diagnosis, in the words of the document."""

import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.bugs.pairs import read_pair
from benchmarks.bugs.verdict import Said, Verdict
from testbed.cli import app
from tests.documents.blocks import Session, difference

ROOT = Path(__file__).parents[2]
MISTAKES = {path.stem: path for path in sorted((ROOT / "examples" / "mistakes").glob("*.py"))}
SHOWN = {
    name: (command, printed)
    for command, name, printed in re.findall(
        r"^```console\n\$ testbed (run [^\n]* examples/mistakes/(\w+)\.py)\n(.*?)\n```",
        (ROOT / "docs" / "diagnoses.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
}
pytestmark = pytest.mark.filterwarnings("ignore:Running all_reduce on global rank")


@cache
def run(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return CliRunner().invoke(app, SHOWN[name][0].split())


def test_every_mistake_has_its_place_in_the_document():
    assert SHOWN.keys() == MISTAKES.keys()


@pytest.mark.parametrize("name", MISTAKES)
def test_what_the_docstring_says_is_named(name):
    verdict = Verdict.on(read_pair(MISTAKES[name]), Said(True, run(name).stderr), Said(False, ""))

    assert verdict.names_rank is not False
    assert verdict.names_line is not False


@pytest.mark.parametrize("name", MISTAKES)
def test_the_document_shows_what_is_printed(name):
    """Of a mistake that spoils results in silence, the notes; of one that hangs or fails, the error."""
    printed = run(name).stderr
    spoils = "testbed: error:" not in printed
    said = printed[printed.index("Note:" if spoils else "testbed: error:") :]
    command, shown = SHOWN[name]

    assert run(name).exit_code == (0 if spoils else 1)
    assert not difference(
        Session(command, shown), " ".join(said.split()) if spoils else said, times_vary=False
    )
