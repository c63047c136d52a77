"""Logs and files of nccl-tests and rccl-tests: one measurement, however it was launched and written."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.calibration.tables.rows import MeasuredRow
from testbed.calibration.tables.tables import read_table
from testbed.errors import UsageError
from testbed.options.arguments import TableOptions

TESTS = {"all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "all_to_all": "alltoall_perf"}


@dataclass(frozen=True)
class Measured:
    """What was measured: microseconds by size, on nodes of so many ranks."""

    collective: str
    num_nodes: int
    ranks_per_node: int
    times: dict[int, float]

    @property
    def hosts(self):
        return [f"node-{node}" for node in range(self.num_nodes) for _ in range(self.ranks_per_node)]

    def rows(self):
        return [
            MeasuredRow("mine", self.collective, n, self.num_nodes, len(self.hosts), pytest.approx(t * 1e-6))
            for n, t in self.times.items()
            if n
        ]


def plain_log(measured):
    """Return the lines of version 2.19; each in pieces, where a launcher may put its tag."""
    head = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
    yield ["# nccl-tests version 2.19.6 nccl-headers=23007 nccl-library=23007"]
    yield [f"# Collective test starting: {TESTS[measured.collective]}"]
    yield ["# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor)"]
    for rank, host in enumerate(measured.hosts):
        yield [
            f"#  Rank {rank:2} Group  0 Pid {1000 + rank:6} on {host:>10} device {rank:2} [0000:00:05] H100"
        ]
    yield ["#  " + "  ".join(head)]
    yield ["#  (B)  (elements)     (us)  (GB/s)  (GB/s)"]
    for nbytes, time in measured.times.items():
        figures = f"    {time:.3f}    1.00    2.00      0"
        yield [f"{nbytes:12}  {nbytes // 4:12}     float     sum      -1", figures, figures]
    yield ["# Out of bounds values : 0 OK"]


LAUNCHERS = {
    "plain": ("", ""),
    "mpirun --tag-output": ("[1,0]<stdout>:", ""),
    "a tag wherever a line was cut": ("[0]", "[0]"),
    "srun --label": ("0: ", ""),
    "kubectl logs --timestamps": ("2026-05-01T10:00:00.123456789Z ", ""),
    "kubectl logs --prefix": ("[pod/nccl-launcher-x7/launcher] ", ""),
    "docker compose": ("worker-1  | ", ""),
    "torchrun": ("[default0]:", ""),
    "a terminal in colour": ("\x1b[1;32m", "\x1b[0m"),
}


def as_log(measured, launcher):
    before, between = LAUNCHERS[launcher]
    return "".join(before + between.join(pieces) + "\n" for pieces in plain_log(measured))


def as_kept_by_docker(measured):
    lines = as_log(measured, "plain").splitlines(keepends=True)
    return "".join(json.dumps({"log": line, "stream": "stdout", "time": "2026"}) + "\n" for line in lines)


def as_json(measured):
    devices = [{"rank": rank, "group": 0, "hostname": host} for rank, host in enumerate(measured.hosts)]
    results = [
        {
            "size": n,
            "count": n // 4,
            "type": "float",
            "out_of_place": {"time": t, "nwrong": 0},
            "in_place": {"time": 1.0},
        }
        for n, t in measured.times.items()
    ]
    name = f"/opt/nccl-tests/build/{TESTS[measured.collective]}"
    return json.dumps({"version": 3, "args": [name], "config": {"devices": devices}, "results": results})


def rccl_rows(measured):
    name = measured.collective.title().replace("_", "").replace("ToAll", "toAll")
    for nbytes, time in measured.times.items():
        for in_place in (0, 1):
            yield {
                "numCycle": 0, "name": name, "nodes": measured.num_nodes, "ranks": len(measured.hosts),
                "ranksPerNode": measured.ranks_per_node, "gpusPerRank": 1, "size": nbytes, "type": "float",
                "redop": "sum", "inPlace": in_place, "time": time * (1 + in_place), "algBw": 1.0,
                "busBw": 2.0, "#wrong": 0,
            }  # fmt: skip


def as_rccl_csv(measured):
    rows = list(rccl_rows(measured))
    return "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)])


FORMS = {
    **{launcher: lambda measured, own=launcher: as_log(measured, own) for launcher in LAUNCHERS},
    "Docker": as_kept_by_docker,
    "nccl-tests -J": as_json,
    "rccl-tests, CSV": as_rccl_csv,
    "rccl-tests, JSON": lambda measured: json.dumps(list(rccl_rows(measured))),
}
TIMES = st.floats(0.01, 1e6).map(lambda time: round(time, 3))
MEASURED = st.builds(
    Measured,
    st.sampled_from(sorted(TESTS)),
    st.integers(1, 3),
    st.integers(2, 3),
    st.dictionaries(st.sampled_from([0, *(4 << k for k in range(30))]), TIMES, min_size=1).filter(max),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("tables") / "mine.txt"


@pytest.mark.parametrize("form", FORMS)
@given(measured=MEASURED)
def test_a_measurement_is_read_as_it_was_taken(file, form, measured):
    file.write_text(FORMS[form](measured))

    got = read_table(file)

    assert [(row.collective, row.num_nodes, row.num_ranks) for row in got] == [
        (row.collective, row.num_nodes, row.num_ranks) for row in measured.rows()
    ]
    assert {row.nbytes: row.seconds for row in got} == {row.nbytes: row.seconds for row in measured.rows()}


ONE = Measured("all_reduce", 1, 2, {1024: 10.0})
LOG = as_log(ONE, "plain")


@given(MEASURED, st.data())
def test_a_row_that_was_cut_off_gives_no_other_time(file, measured, data):
    text = as_log(measured, "plain")
    *_, row, _ = text.splitlines()
    kept = data.draw(st.integers(0, len(row)))
    cut = text[: text.rindex(row) + kept]
    file.write_text(cut)

    try:
        rows = read_table(file)
    except UsageError:
        return  # no row is left, or a figure is no time

    times = {row.nbytes: row.seconds for row in measured.rows()}
    assert all(row.seconds == times[row.nbytes] for row in rows)


def test_what_a_log_does_not_say_options_do(file):
    file.write_text(
        "".join(line for line in LOG.splitlines(True) if "Rank" not in line and "test" not in line)
    )

    with pytest.raises(UsageError, match=r"line 4: nothing says the collective .* --collective"):
        read_table(file, TableOptions(nodes=2))
    with pytest.raises(UsageError, match=r"on how many nodes: give --nodes"):
        read_table(file, TableOptions("all_reduce", 16))
    (row,) = read_table(file, TableOptions("all_reduce", 16, 2))
    assert (row.collective, row.num_ranks, row.num_nodes) == ("all_reduce", 16, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOG.replace("2.00      0", "2.00     17"), "line 8: 17 elements came out wrong"),
        (as_json(ONE).replace('"nwrong": 0', '"nwrong": 3.0'), "results 1: 3.0 elements came out wrong"),
        (as_rccl_csv(ONE).replace("2.0,0", "2.0,5"), "line 2: 5 elements came out wrong"),
        (as_kept_by_docker(ONE).replace('"stream"', '"log": "", "of"'), "line 1: .* stands twice"),
        ('{"log": 1}', "line 1: expected an object with log"),
        (LOG.replace("Rank  1", "Rank  0"), "rank 0 stands twice: .*MPI=1"),
        (as_log(Measured("all_reduce", 1, 1, {8: 1.0}), "plain"), "one rank alone moved nothing"),
        (LOG.replace("Group  0 Pid   1001", "Group  1 Pid   1001"), "2 groups of ranks"),
        (LOG.replace("time", "cputime"), "column time, .*of the host"),
        (LOG.replace("all_reduce_perf", "sendrecv_perf"), "nothing says the collective"),
        (as_json(ONE).replace('"time": 10.0', '"cpu_time": 10.0'), "results 1: expected a time"),
        (as_json(ONE).replace("all_reduce_perf", "sendrecv_perf"), "got 'sendrecv_perf'"),
        (as_json(ONE).replace('"config"', '"config": {"devices": []}, "was"'), "nothing says the ranks"),
        (as_rccl_csv(ONE).replace(",1024,", ",1K,"), "line 2: expected a line of rccl-tests: size"),
    ],
)
def test_what_measured_nothing_is_refused_by_name(file, text, said):
    file.write_text(text)

    with pytest.raises(UsageError, match=said):
        read_table(file)
