"""Commands called from Python: the same words, the same rows, and results that show themselves."""

import json
import subprocess
import sys

import pytest

import testbed
from testbed.errors import UsageError
from tests.commands import called, reported
from tests.waiting import LAST_RESORT

CALLS = {
    "simulate ring --network dgx-h100 --ranks 8 --nbytes 1M,4M --transport-model nccl": {
        "algorithm": "ring", "network": "dgx-h100", "ranks": 8, "nbytes": ["1M", "4M"],
        "transport_model": "nccl",
    },
    "bench --ranks 8 --algorithm ring,direct --nbytes 4K,1M": {
        "ranks": 8, "algorithm": ["ring", "direct"], "nbytes": ["4K", "1M"],
    },
    "network ethernet-25g --ranks 8": {"name": "ethernet-25g", "ranks": 8},
    "show ring --ranks 4": {"algorithm": "ring", "ranks": 4},
    "export ring --ranks 2 --format msccl": {"source": "ring", "ranks": 2, "format": "msccl"},
    "verify direct --collective gather --ranks 2,4": {
        "algorithms": "direct", "collective": "gather", "ranks": [2, 4],
    },
    "scale --network ethernet-25g --ranks 8 --strategy wait_free --ideal": {
        "network": "ethernet-25g", "ranks": 8, "strategy": "wait_free", "ideal": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("line", CALLS)
def test_a_call_gives_what_the_command_gives(line):
    command = line.split()[0]

    result = getattr(testbed, command)(**CALLS[line])

    whole, printed = json.loads(json.dumps(result.document())), reported(line)
    assert eval(whole.pop("command")).rows == result.rows
    del printed["command"]
    assert whole == printed
    assert str(result) == called(line).stdout
    assert result.answer in result._repr_html_().replace("\u00a0", " ")
    assert len(result.to_dataframe()) == len(result.rows) > 0


def test_a_call_may_write_what_the_command_may_and_nothing_over_an_input(tmp_path):
    program = tmp_path / "mine.py"
    program.write_text("def mine(rank, world_size):\n    return\n    yield\n")
    given = program.read_text()

    with pytest.raises(UsageError, match="expected a name that ends in"):
        testbed.verify(f"{program}:mine", ranks=2, csv=program)
    with pytest.raises(UsageError, match="expected a name that ends in"):
        testbed.show("ring", ranks=2, plot=tmp_path / "drawn.txt")
    with pytest.raises(UsageError, match="document"):
        testbed.show("ring", ranks=2, as_json=True)
    assert program.read_text() == given

    result = testbed.verify("ring", ranks=2, csv=tmp_path / "rows.csv")

    assert result.files == {"Rows": tmp_path / "rows.csv"}
    assert (tmp_path / "rows.csv").read_text() == result.to_csv()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"ranks": "many"}, UsageError, "ranks='many': expected int"),
        ({"ranks": 4.5}, UsageError, "expected"),
        ({"links": "false"}, UsageError, "expected"),
        ({"engine": "none"}, UsageError, "expected"),
        ({"algorithm": []}, UsageError, "expected"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_a_word_or_a_value_that_an_option_does_not_take_is_refused(options, error, said):
    with pytest.raises(error, match=said):
        testbed.simulate(**{"algorithm": "ring", **options})
    with pytest.raises(AttributeError, match="paint"):
        _ = testbed.paint


def test_a_verdict_counts_though_nobody_reads_it(tmp_path):
    (tmp_path / "wrong.py").write_text("def wrong(rank, world_size):\n    return\n    yield\n")
    command = (
        f"{sys.executable} -m testbed verify wrong.py:wrong --ranks 4 --json | true; exit ${{PIPESTATUS[0]}}"
    )

    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=LAST_RESORT, check=False)

    assert done.returncode == 1
