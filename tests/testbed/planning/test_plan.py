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
from testbed.planning.alteration import AS_IT_IS
from testbed.planning.cache import Cache, key_of
from testbed.planning.evaluation import evaluate
from testbed.planning.points import Point, points_of
from testbed.planning.question import question_of, read_question
from testbed.planning.sweep import as_they_are, batched, sweep

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

    assert (row.timed_by, same.timed_by, slower.timed_by) == ("measured", "links", "links")
    assert same.seconds is not None
    assert slower.seconds is not None
    assert same.seconds < slower.seconds


def test_a_changed_axis_costs_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ["1K", "4K", "64K"]
    first = points_of(asked(collective=[{"name": "all_reduce", "sizes": sizes[:2]}], ranks=[16]))
    then = points_of(asked(collective=[{"name": "all_reduce", "sizes": sizes}], ranks=[16]))
    told: list[Point] = []

    def seen(point: Point, altered: object) -> object:
        told.append(point)
        return evaluate(point)

    with Cache(tmp_path) as cache:
        before = sweep(as_they_are(first), cache=cache, advance=silent, workers=1)
    monkeypatch.setattr("testbed.planning.sweep.evaluate", seen)
    with Cache(tmp_path) as cache:
        after = sweep(as_they_are(then), cache=cache, advance=silent, workers=1)

    assert after[:2] == before
    assert told == then[2:]


def test_a_damaged_cache_costs_only_the_work(tmp_path: Path) -> None:
    (tmp_path / "plan.sqlite").write_bytes(b"no database" * 100)
    (point,) = points_of(asked(collective=[{"name": "all_reduce", "sizes": ["1K"]}], ranks=[4]))

    with Cache(tmp_path) as cache:
        (row,) = sweep(as_they_are([point]), cache=cache, advance=silent, workers=1)
        cache.write()
        known = cache.known(as_they_are([point]))

    assert known == {(point, AS_IT_IS): row}


def test_a_key_follows_the_file_of_the_network(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CLUSTER)
    (point,) = points_of(
        question_of({"network": [{"name": str(file)}], "profile": [{"name": "resnet50"}], "ranks": [4]}, "")
    )
    before = key_of(point, AS_IT_IS)

    file.write_text(CLUSTER + "\n# another")

    assert key_of(point, AS_IT_IS) != before


@given(st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3), st.integers(1, 120))
def test_batches_hold_every_point_once(ranks: list[int], number: int) -> None:
    sizes = [1024 + 4 * size for size in range(number)]
    points = points_of(asked(collective=[{"name": "all_gather", "sizes": sizes}], ranks=sorted(set(ranks))))

    batches = list(batched(as_they_are(points)))

    assert sorted(map(repr, points)) == sorted(repr(point) for batch in batches for point, _ in batch)
    assert all(len({point.ranks for point, _ in batch}) == 1 for batch in batches)


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
