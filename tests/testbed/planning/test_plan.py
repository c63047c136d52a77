import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.topology.description import parse_network
from testbed.planning.evaluation import evaluate
from testbed.planning.points import points_of
from testbed.planning.question import question_of
from tests.commands import rows_of

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


def asked(**fields):
    return question_of({"network": [{"name": "dgx-h100"}], **fields}, "test")


def test_the_common_question_has_a_row_for_each_point_with_all_that_a_decision_needs(tmp_path):
    for name, rate in (("a", "100Gbps"), ("b", "400Gbps")):
        (tmp_path / f"{name}.toml").write_text(CLUSTER.replace("100Gbps", rate))
    networks = f"--network {tmp_path}/a.toml --network {tmp_path}/b.toml --cache {tmp_path}"

    rows = rows_of(f"plan --profile resnet50 {networks} --ranks 8,16 --workers 1 --no-explain")

    points = [(row["network"][-6:], row["ranks"]) for row in rows]
    assert points == [(name, ranks) for name in ("a.toml", "b.toml") for ranks in (8, 16)]
    for row in rows:
        assert 0 < row["efficiency"] <= 1
        assert all(row[name] for name in ("seconds", "algorithm", "bottleneck"))
        assert row["cost"] is None


@given(st.integers(1, 400), st.sampled_from([1, 2, 4]))
def test_an_override_is_the_network_with_that_line_in_its_file(gigabits, nics):
    text = CLUSTER.replace("100Gbps", f"{gigabits}Gbps").replace("node = 4\nnic_", f"node = {nics}\nnic_")

    changed = parse_network(CLUSTER, "c", "c.toml").overridden(
        {"nic_bandwidth": f"{gigabits}Gbps", "nics_per_node": str(nics)}
    )

    assert changed.topology(16).digest() == parse_network(text, "c", "c").topology(16).digest()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("raise ValueError('two\\nlines')\n", "ValueError: two"),
        ("import argparse\nargparse.ArgumentParser(prog='it').parse_args(['--no'])\n",
         "it: error: unrecognized arguments: --no"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)  # fmt: skip
def test_what_a_script_has_raised_or_said_last_is_the_problem_of_its_row(tmp_path, text, problem):
    script = tmp_path / "fails.py"
    script.write_text(text)
    (point,) = points_of(asked(script=[{"file": str(script), "compute": "none"}], ranks=[2]))

    row = evaluate(point)

    assert (row.seconds, row.problem) == (None, problem)


def test_what_was_measured_says_nothing_of_a_network_with_other_links():
    plain = asked(profile=[{"name": "resnet50"}], ranks=[16])
    changed = asked(profile=[{"name": "resnet50"}], ranks=[16], set={"nic_bandwidth": ["400Gbps", "100Gbps"]})

    (row,) = [evaluate(point) for point in points_of(plain)]
    (same, slower) = [evaluate(point) for point in points_of(changed)]

    assert (row.timed_by, same.timed_by, slower.timed_by) == ("library", "links", "links")
    assert same.seconds < slower.seconds
