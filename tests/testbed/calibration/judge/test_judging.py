"""Networks held against tables of measured collectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim import load_network
from sim.topology.description import parse_network
from testbed.calibration.judge.judging import judge, with_kind
from testbed.calibration.tables.calibration import without_measured
from testbed.calibration.tables.rows import MeasuredRow
from tests.commands import called

PRESETS = Path(__file__).parents[4] / "sim" / "presets"


def nobody(description: str, completed: int | None = None) -> None:
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


def test_a_network_of_a_known_kind_borrows_what_was_measured_on_it(tmp_path):
    text = without_measured((PRESETS / "dgx-h100.toml").read_text())
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("nic_efficiency = 0.982", "nic_efficiency = 0.92"))
    slow = tmp_path / "slow.toml"
    slow.write_text(text.replace('nic_bandwidth = "400Gbps"', 'nic_bandwidth = "100Gbps"'))
    rows = [MeasuredRow("mine", "all_reduce", 2**20, 2, 16, 80e-6)]

    (found,), _ = judge(rows, load_network(file), nobody)
    (other,), _ = judge(rows, load_network(slow), nobody)
    (preset,), _ = judge(rows, load_network("dgx-h100"), nobody)

    assert (found.model, found.beyond, found.predicted) == (
        "measured",
        "measured on dgx-h100",
        preset.predicted,
    )
    assert not found.seen
    assert (other.model, other.beyond) == ("nccl", "")


@pytest.mark.parametrize("preset", ["aws-p3dn", "aws-p6-b200", "gb200-nvl72"])
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_what_is_between_nodes_tells_a_kind_only_where_there_are_several(preset, nodes):
    file = parse_network(without_measured((PRESETS / f"{preset}.toml").read_text()), preset, "mine.toml")
    ranks = nodes * file.fields.ranks_per_node
    faster = file.overridden({"nic_bandwidth": "2000Gbps"})

    assert with_kind(file.topology(ranks))[1] == preset
    assert with_kind(faster.topology(ranks))[1] == (preset if nodes == 1 else "")


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


def test_over_gloo_the_library_s_own_is_what_gloo_runs_and_ours_is_ours(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('schema = 1\nkind = "switch"\nbandwidth = "1Gbps"\nlatency = "50us"\n')
    rows = [
        MeasuredRow("bench", "all_reduce", 2**20, 1, 4, 0.015, "native"),
        MeasuredRow("bench", "all_reduce", 2**20, 1, 4, 0.015, "tree"),
    ]

    found, refused = judge(rows, load_network(file), nobody)

    assert refused == []
    assert [own.model for own in found] == ["links", "links"]
    assert [own.algorithm.partition(":")[0] for own in found] == ["gloo_ring", "tree"]
