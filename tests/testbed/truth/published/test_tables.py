"""Tables of measured collectives in every format that is read."""

from __future__ import annotations

import json

import pytest

from testbed.errors import UsageError
from testbed.truth.published.measured_row import MeasuredRow
from testbed.truth.published.tables import Said, read_table

LOG = """\
[1,0]:# Collective test starting: all_gather_perf
[1,0]:# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
[1,0]:# Using devices
[1,0]:#  Rank  0 Group  0 Pid   6899 on first device  0 [0000:04:00] NVIDIA H100 80GB HBM3
[1,0]:#  Rank  1 Group  0 Pid   6900 on second device  0 [0000:05:00] NVIDIA H100 80GB HBM3
[1,0]:#                                          out-of-place                       in-place
[1,0]:#       size  count  type   redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
[1,0]:#        (B)  (elements)                    (us)  (GB/s)  (GB/s)
NCCL version 2.21.5+cuda12.4
[1,0]:        1024    128  float   none    -1   14.2    0.07    0.07      0   13.9    0.07    0.07      0
[1,0]:        2048    256  float   none    -1   15.0    0.14    0.14      0   14.1    0.14    0.14      0
[1,0]:# Out of bounds values : 0 OK
"""


def test_a_log_of_nccl_tests_says_what_was_measured_and_on_which_hosts(tmp_path):
    file = tmp_path / "mine.log"
    file.write_text(LOG)

    rows = read_table(file)

    assert rows == [
        MeasuredRow("mine", "all_gather", 1024, 2, 2, pytest.approx(14.2e-6), line=10),
        MeasuredRow("mine", "all_gather", 2048, 2, 2, pytest.approx(15.0e-6), line=11),
    ]


def test_what_a_log_does_not_say_options_do(tmp_path):
    file = tmp_path / "mine.log"
    file.write_text(
        "".join(line for line in LOG.splitlines(True) if "Rank" not in line and "test st" not in line)
    )

    with pytest.raises(
        UsageError, match=r"mine, line 7: the log does not say what was measured.*--collective"
    ):
        read_table(file)
    with pytest.raises(UsageError, match=r"on how many nodes; give --nodes"):
        read_table(file, Said("all_reduce", 16))
    rows = read_table(file, Said("all_reduce", 16, 2))
    assert [(row.collective, row.num_ranks, row.num_nodes) for row in rows] == [("all_reduce", 16, 2)] * 2


def test_a_csv_may_leave_collective_and_ranks_to_a_file_of_systems_beside_it(tmp_path):
    (tmp_path / "systems.yaml").write_text(
        "mine:\n  collective: alltoall\n  ranks: 16\n  hardware:\n    gpu: H100\n    nodes: 2\n"
    )
    file = tmp_path / "rows.csv"
    file.write_text("set,size_bytes,time_us,busbw_gbs\nmine,1024,12.5,\nmine,2048,,\n")

    rows = read_table(file)

    assert rows == [MeasuredRow("mine", "all_to_all", 1024, 2, 16, pytest.approx(12.5e-6), line=2)]


def test_a_csv_with_columns_of_its_own_needs_nothing_else(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("collective,nbytes,ranks,nodes,seconds\nall-reduce,1024,8,1,1e-5\n")

    assert read_table(file) == [MeasuredRow("rows", "all_reduce", 1024, 1, 8, 1e-5, line=2)]


def test_a_document_of_bench_is_a_table(tmp_path):
    row = {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 7.0}
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"transport": "gloo", "ranks": 4, "rows": [row]}))

    assert read_table(file, Said(nodes=2)) == [
        MeasuredRow("bench", "all_reduce", 1024, 2, 4, pytest.approx(7e-6), "ring", 1)
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "line 1: expected a column size_bytes or nbytes"),
        ("size_bytes,time_us\n1024,3\n", "line 2: nothing says the collective of rows"),
        (
            "collective,ranks,size_bytes,time_us\nall_reduce,8,1K,3\n",
            "line 2: size_bytes: .*number, got '1K'",
        ),
        ("collective,ranks,size_bytes,time_us\nall_sum,8,1,3\n", "line 2: collective: .*got 'all_sum'"),
        (
            "collective,ranks,size_bytes,time_us\nall_reduce,8.5,1,3\n",
            "line 2: ranks: .*whole number, got '8.5'",
        ),
        ("collective,ranks,size_bytes,time_us\nall_reduce,8,1,nan\n", "line 2: time: .*finite number"),
        ("collective,ranks,size_bytes,time_us\nall_reduce,8,1,1e99\n", "line 2: time: .*got 1e.93"),
        ('{"transport": "gloo", "ranks": -2, "rows": []}', "ranks: .*greater than or equal to 1"),
        ("collective,ranks,nodes,size_bytes,time_us\nall_reduce,9,2,1,3\n", "9 ranks on 2 nodes"),
        ("size_bytes,time_us\n", "expected rows below the names"),
        ('{"transport": "sim", "ranks": 2, "rows": []}', "its times are simulated"),
        ('{"ranks": 2}', "expected what testbed bench --json prints"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, said):
    file = tmp_path / "rows.csv"
    file.write_text(text)

    with pytest.raises(UsageError, match=said):
        read_table(file)
