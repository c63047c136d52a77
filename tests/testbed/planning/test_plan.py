from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim import NetworkFileError, load_network
from testbed.cli import app
from testbed.errors import UsageError
from testbed.planning import Question
from testbed.planning.evaluation import evaluate
from testbed.planning.points import points_of
from testbed.planning.question import question_of, read_question

CLUSTER = """
schema = 1
kind = "nodes"
ranks_per_node = 4
intra_bandwidth = "300GB/s"
intra_latency = "1us"
nics_per_node = 4
nic_bandwidth = "100Gbps"
nic_latency = "2us"
"""


def silent(description: str, completed: int | None = None) -> None:
    pass


def asked(**fields: object) -> Question:
    return question_of({"network": [{"name": "dgx-h100"}], **fields}, "test")


def test_the_common_question_has_a_row_for_each_point_with_all_that_a_decision_needs(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.toml").write_text(
            CLUSTER.replace("100Gbps", "400Gbps" if name == "b" else "100Gbps")
        )
    command = ["plan", "--profile", "resnet50", "--network", str(tmp_path / "a.toml")]
    command += ["--network", str(tmp_path / "b.toml"), "--ranks", "8,16", "--json", "--workers", "1"]

    done = CliRunner().invoke(app, [*command, "--cache", str(tmp_path)])
    rows = json.loads(done.stdout)["rows"]

    assert done.exit_code == 0
    assert [(row["network"][-6:], row["ranks"]) for row in rows] == [
        ("a.toml", 8),
        ("a.toml", 16),
        ("b.toml", 8),
        ("b.toml", 16),
    ]
    for row in rows:
        assert row["seconds"] > 0
        assert 0 < row["efficiency"] <= 1
        assert row["algorithm"]
        assert row["bottleneck"]
        assert row["cost"] is None


@given(st.integers(1, 400), st.integers(1, 8))
def test_an_override_is_the_network_with_that_line_in_its_file(gigabits: int, nics: int) -> None:
    from sim.topology.description import parse_network

    nics = {3: 4, 5: 4, 6: 2, 7: 1}.get(nics, nics)
    values = {"nic_bandwidth": f"{gigabits}Gbps", "nics_per_node": str(min(nics, 4))}
    text = CLUSTER.replace('"100Gbps"', f'"{gigabits}Gbps"').replace(
        "nics_per_node = 4", f"nics_per_node = {min(nics, 4)}"
    )
    base = parse_network(CLUSTER, "c", "c.toml")

    assert (
        base.overridden(values).topology(16).digest() == parse_network(text, "c", "c").topology(16).digest()
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nic": 1}, "no field of this network that can be set"),
        ({"nic_bandwidth": "fast"}, "expected a bandwidth"),
        ({"nics_per_node": 3}, "does not divide"),
    ],
)
def test_an_override_that_cannot_be_is_refused_by_its_name(values: dict[str, str], said: str) -> None:
    with pytest.raises(NetworkFileError, match=said):
        load_network("dgx-h100").overridden(values)


def test_what_was_measured_says_nothing_of_a_network_with_other_links() -> None:
    plain = asked(profile=[{"name": "resnet50"}], ranks=[16])
    changed = asked(profile=[{"name": "resnet50"}], ranks=[16], set={"nic_bandwidth": ["400Gbps", "100Gbps"]})

    (row,) = [evaluate(point) for point in points_of(plain)]
    (same, slower) = [evaluate(point) for point in points_of(changed)]

    assert (row.timed_by, same.timed_by, slower.timed_by) == ("library", "links", "links")
    assert same.seconds is not None
    assert slower.seconds is not None
    assert same.seconds < slower.seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema = 1\nranks = [4]\n[[network]]\nname = 'dgx-h100'\n", "nothing is asked"),
        (
            "schema = 1\nrnaks = [4]\n[[network]]\nname = 'dgx-h100'\n",
            "rnaks: unknown field .did you mean .ranks",
        ),
        ("schema = 1\n[[profile]]\nname = 'resnet50'\n", "network: this field is missing"),
        ("schema = 1\n[[profile]]\nname = 3\n[[network]]\nname = 'dgx-h100'\n", "line 3: profile 1, name"),
        ("schema = ", "not a TOML file"),
    ],
)
def test_a_question_that_is_none_is_refused_with_its_field(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "question.toml"
    file.write_text(text)

    with pytest.raises(UsageError, match=said):
        read_question(file)
