"""Shaped networks, for real: what is built carries what it should, and nothing of it is left."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.lab.program import program
from benchmarks.lab.shaped import incast, sockets, timing, validation
from benchmarks.lab.shaped.__main__ import EXAMPLES, shaped
from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.hosts import started
from benchmarks.lab.shaped.plan import plan
from benchmarks.lab.shaped.shaping import COMMON
from benchmarks.lab.shaped.sockets import time_flows
from benchmarks.lab.shaped.timing import Call, time_calls
from sim import Topology
from testbed.errors import LaunchError
from tests.commands import called
from tests.processes import is_running, not_outliving
from tests.waiting import LAST_RESORT, until

PROGRAM = program(shaped, EXAMPLES)
STAR = Topology.switch(num_ranks=3, bandwidth="80Mbps", latency=0)
KILLED = """
import os, time
from pathlib import Path
from sim import Topology
from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.hosts import started
from benchmarks.lab.shaped.plan import plan
from benchmarks.lab.shaped.timing import _at

with built(plan(Topology.switch(num_ranks=3, bandwidth="80Mbps", latency=0))) as network:
    with started(network) as hosts:
        hosts.tell(_at, time.monotonic() + 600, print)
        pids = [process.pid for process in hosts.processes]
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        print(*pids, *children, flush=True)
        time.sleep(600)
"""


def namespaces():
    """Return the network namespaces in which processes of this session are."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(process.name)) == os.getsid(0):
                found.add(os.readlink(process / "ns/net"))
    return found


@pytest.fixture
def nothing_is_left(tmp_path_factory, monkeypatch):
    own = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", None)
    devices, before = set(os.listdir("/sys/class/net")), namespaces()
    yield
    assert not list(own.glob("pymp-*"))
    until(lambda: set(os.listdir("/sys/class/net")) <= devices, "the end of devices")
    until(lambda: namespaces() <= before, "the end of namespaces")


@pytest.fixture
def from_the_first(monkeypatch):
    """Let times begin with the first host, as what it sends before a late one begins takes its time, too."""

    def duration(spans):
        began, ended = zip(*spans, strict=True)
        return max(ended) - min(began)

    for module in (timing, sockets):
        monkeypatch.setattr(module, "duration", duration)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left", "from_the_first")
def test_a_link_carries_its_rate_until_it_is_changed_and_nothing_once_it_is_cut():
    call = Call("all_reduce", "ring", 240_000)

    def takes(least):
        ((seconds,),) = time_calls(hosts, [call], repetitions=1)
        assert seconds > least
        return seconds < 1.25 * least

    with built(plan(STAR)) as network, started(network, timeout=3) as hosts:
        least = 0.032  # 4/3 · 240 KB at 10 MB/s; a busy machine adds to it, but not each time
        until(lambda: takes(least), f"{least} s")

        network.change(1, 0.5)
        until(lambda: takes(1.95 * least), f"twice {least} s")

        network.cut(1)
        with pytest.raises(LaunchError, match=r"host \d: .*rank"):
            time_calls(hosts, [call], repetitions=1)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left", "from_the_first")
def test_flows_that_end_in_a_port_queue_for_it_together():
    with built(plan(STAR), COMMON) as network, started(network) as hosts:
        one = time_flows(hosts, [(1, 0)], 500_000, repetitions=3)
        two = time_flows(hosts, [(1, 0), (2, 0)], 500_000, repetitions=3)

    assert min(one.seconds) > 0.9 * 0.05  # 500 KB at 10 MB/s, but for what may be ahead of the rate
    assert min(two.seconds) > 0.9 * 0.1


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_incast_is_predicted_measured_and_written_down(tmp_path, monkeypatch):
    few = [incast.Case("exchange", 2, 30_000, 80), incast.Case("all_reduce direct", 2, 30_000, 80)]
    monkeypatch.setattr(incast, "LARGEST", 3)
    monkeypatch.setattr(incast, "REPETITIONS", 1)
    monkeypatch.setattr(incast, "cases", lambda: iter(few))
    (tmp_path / "truth.md").write_text("<!-- section incast -->\n<!-- end of incast -->\n")

    line = f"--incast --document {tmp_path / 'truth.md'} --json"

    found = json.loads(called(line, program=PROGRAM).stdout)

    assert [row["case"] for row in found["rows"]] == [case.name for case in few]
    for row in found["rows"]:
        assert 0 < row["links_seconds"] < row["predicted_seconds"]
        assert row["part"] == pytest.approx(row["links_seconds"] / row["measured_seconds"])
    assert "| all_reduce direct, 80 Mbit/s | 2 |" in (tmp_path / "truth.md").read_text()


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(own, marks=pytest.mark.slow) for own in (signal.SIGTERM, signal.SIGINT))],
)
def test_nothing_is_left_of_a_run_that_is_killed(how):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with not_outliving(process):
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) > 3  # the hosts, and what helps to start them
        process.send_signal(how)
        process.wait(LAST_RESORT)

    until(lambda: not any(map(is_running, pids)), f"the end of {pids}")


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_a_host_that_dies_is_named():
    with built(plan(STAR)) as network, started(network) as hosts:
        os.kill(hosts.processes[1].pid or 0, signal.SIGKILL)
        with pytest.raises(LaunchError, match="the process of host 1 ended by itself"):
            time_calls(hosts, [Call("all_reduce", "ring", 1200)], repetitions=1)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_a_small_network_is_predicted_written_down_built_and_measured(tmp_path, monkeypatch):
    file = tmp_path / "pair.toml"
    file.write_text('schema = 1\nkind = "switch"\nnum_ranks = 2\nbandwidth = "160Mbps"\nlatency = "0s"\n')
    known = tmp_path / "calibration.json"
    known.write_text(json.dumps(json.loads(Path("tests/data/shaped.json").read_text())["calibration"]))
    monkeypatch.setattr(validation, "SECONDS_A_PASS", 0.5)
    monkeypatch.setattr(validation, "CUT_SECONDS", 1.0)
    (tmp_path / "truth.md").write_text("<!-- section shaped -->\n<!-- end of shaped -->\n")
    out, document = tmp_path / "out", tmp_path / "truth.md"
    options = f"--calibration {known} --output {out} --document {document}"

    found = json.loads(called(f"{file} {options} --json", program=PROGRAM).stdout)

    (network,) = found["networks"]
    written = (tmp_path / "out" / "predictions" / "pair.jsonl").read_bytes()
    assert len(found["rows"]) >= 24
    assert hashlib.sha256(written).hexdigest() == network["predictions_sha256"]
    # How near they are, and whether the link is lost in time, a quiet machine says.
    assert network["cut"]["predicted"]
    assert all(row["measured_seconds"] > 0 for row in found["rows"])
    assert [row["error"] for row in found["rows"]] == pytest.approx(
        [row["predicted_seconds"] / row["measured_seconds"] - 1 for row in found["rows"]]
    )
    assert (tmp_path / "out" / "predicted_over_measured.png").exists()
    assert "| **all** |" in (tmp_path / "truth.md").read_text()
