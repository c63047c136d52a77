"""Networks held against tables of measured collectives."""

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectives import simulate
from sim import load_network
from sim.topology.description import parse_network
from testbed.calibration.judge.judging import judge
from testbed.calibration.tables.calibration import without_measured
from testbed.calibration.tables.rows import MeasuredRow
from tests.commands import called

PRESETS = Path(__file__).parents[4] / "sim" / "presets"


def nobody(description, completed=None):
    """Watches."""


def test_a_row_is_predicted_by_the_best_that_a_file_has():
    rows = [
        MeasuredRow("mine", "all_reduce", 2**20, 2, 16, 80e-6),
        MeasuredRow("mine", "all_reduce", 2**20, 2, 8, 80e-6),
        MeasuredRow("mine", "all_to_all", 2**20, 2, 16, 80e-6),
        MeasuredRow("mine", "all_reduce", 2**20, 2, 32, 80e-6),
    ]

    found, refused = judge(rows, load_network("dgx-h100"), nobody)

    assert [own.model for own in found] == ["measured", "nccl", "nccl"]
    assert all(own.interval[0] < own.interval[1] for own in found)
    assert found[2].bottleneck.endswith("of P2P/Simple")
    assert not any(own.seen for own in found)
    assert [own.reason for own in refused] == ["dgx-h100 has 8 ranks on a node, and the row has 16"]


@settings(deadline=None)
@given(
    st.sampled_from(["dgx-h100", "aws-p4d", "switch-100g", "ethernet-25g", "unmeasured"]),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]),
    st.integers(1, 3),
    st.integers(3, 26),
    st.booleans(),
)
@example("unmeasured", "all_reduce", 2, 20, False)
@example("dgx-h100", "all_to_all", 3, 20, False)
@example("ethernet-25g", "all_reduce", 1, 20, True)
def test_a_row_is_predicted_as_simulate_predicts_it(name, collective, nodes, doublings, is_ours):
    unmeasured = without_measured((PRESETS / "dgx-h100.toml").read_text())
    network = parse_network(unmeasured, name, "mine.toml") if name == "unmeasured" else load_network(name)
    ours = {"broadcast": "tree", "all_to_all": "direct"}.get(collective, "ring")
    algorithm, ranks = ours if is_ours else "native", nodes * 8
    row = MeasuredRow("mine", collective, 2**doublings, nodes, ranks, 1e-3, algorithm)

    (found,), _ = judge([row], network, nobody)

    run = simulate(algorithm, nbytes=2**doublings, network=network, num_ranks=ranks, collective=collective)
    assert (found.predicted, found.model) == (run.seconds, run.model)


def test_a_table_of_several_machines_needs_a_folder(tmp_path):
    table = tmp_path / "rows.csv"
    (tmp_path / "systems.json").write_text(
        '{"two": {"collective": "all_reduce", "ranks": 2, "hardware": {"gpu": "T4", "nodes": 2}}, '
        '"one": {"collective": "all_reduce", "ranks": 8, "hardware": {"gpu": "B200"}}}'
    )
    table.write_text("set,size_bytes,time_us\ntwo,8,60\none,8,60\n")

    refused = called(f"calibrate --from {table} --output {tmp_path / 'mine.toml'}", code=2)
    called(f"calibrate --from {table} --output {tmp_path}")

    assert "the table is of 2 machines" in refused.stderr
    assert len(list(tmp_path.glob("*.toml"))) == 2
