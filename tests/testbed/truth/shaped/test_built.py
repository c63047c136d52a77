"""Shaped networks, for real: what is built carries what it should, and nothing of it is left."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim import Topology
from testbed.cli import app
from testbed.errors import LaunchError, UsageError
from testbed.truth.shaped import built as building
from testbed.truth.shaped import validation
from testbed.truth.shaped.built import built, check_possible
from testbed.truth.shaped.hosts import started
from testbed.truth.shaped.plan import plan
from testbed.truth.shaped.timing import Call, time_calls

STAR = Topology.switch(num_ranks=3, bandwidth="80Mbps", latency=0)
KILLED = """
import os, time
from pathlib import Path
from sim import Topology
from testbed.truth.shaped.built import built
from testbed.truth.shaped.hosts import started
from testbed.truth.shaped.plan import plan
from testbed.truth.shaped.timing import _at

with built(plan(Topology.switch(num_ranks=3, bandwidth="80Mbps", latency=0))) as network:
    with started(network) as hosts:
        hosts.tell(_at, time.monotonic() + 600, print)
        pids = [process.pid for process in hosts.processes]
        children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
        print(*pids, *children, flush=True)
        time.sleep(600)
"""


def namespaces() -> set[str]:
    """Return the network namespaces in which processes of this machine are."""
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(process))
        except OSError:
            continue
    return found


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    devices, before = sorted(os.listdir("/sys/class/net")), namespaces()
    files = set(os.listdir(tempfile.gettempdir()))
    yield
    assert {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("pymp-")} <= files
    assert sorted(os.listdir("/sys/class/net")) == devices
    deadline = time.monotonic() + 10
    while namespaces() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert namespaces() <= before


def test_without_root_or_iproute2_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building.shutil, "which", lambda name: None if name == "tc" else name)
    with pytest.raises(UsageError, match=r"made by iproute2, and tc is missing"):
        check_possible()

    monkeypatch.setattr(building.shutil, "which", lambda name: name)
    monkeypatch.setattr(building.os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError, match=r"need root"):
        check_possible()


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_a_link_carries_its_rate_until_it_is_changed_and_nothing_once_it_is_cut() -> None:
    call = Call("all_reduce", "ring", 240_000)
    with built(plan(STAR)) as network, started(network, timeout=3) as hosts:
        (usual,) = time_calls(hosts, [call], repetitions=3)
        assert 0.8 < 0.032 / min(usual) < 1  # 4/3 · 240 KB at 10 MB/s

        network.change(1, 0.5)
        (slower,) = time_calls(hosts, [call], repetitions=3)
        assert 1.7 < min(slower) / min(usual) < 2.1

        network.cut(1)
        with pytest.raises(LaunchError, match=r"host \d: .*rank"):
            time_calls(hosts, [call], repetitions=1)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_run_that_is_killed(how: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    started = process.stdout.readline().split()
    assert len(started) > 3  # the hosts, and what helps to start them

    process.send_signal(how)
    process.wait(30)
    process.stdout.close()

    deadline = time.monotonic() + 10
    while alive := [pid for pid in started if Path(f"/proc/{pid}/ns/net").is_symlink()]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_a_host_that_dies_is_named() -> None:
    with built(plan(STAR)) as network, started(network) as hosts:
        os.kill(hosts.processes[1].pid or 0, signal.SIGKILL)
        with pytest.raises(LaunchError, match="the process of host 1 ended by itself"):
            time_calls(hosts, [Call("all_reduce", "ring", 1200)], repetitions=1)


@pytest.mark.privileged
@pytest.mark.usefixtures("nothing_is_left")
def test_a_small_network_is_predicted_written_down_built_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pair.toml"
    file.write_text('schema = 1\nkind = "switch"\nnum_ranks = 2\nbandwidth = "160Mbps"\nlatency = "0s"\n')
    known = tmp_path / "calibration.json"
    known.write_text(json.dumps(json.loads(Path("tests/data/shaped.json").read_text())["calibration"]))
    monkeypatch.setattr(validation, "SECONDS_A_PASS", 0.5)
    monkeypatch.setattr(validation, "CUT_SECONDS", 1.0)
    result = CliRunner().invoke(
        app,
        [
            *("validate", "--shaped", str(file), "--calibration", str(known)),
            *("--output", str(tmp_path / "out"), "--document", str(tmp_path / "truth.md"), "--json"),
        ],
    )
    assert result.exit_code == 0, result.output

    found = json.loads(result.stdout)
    (network,) = found["networks"]
    written = (tmp_path / "out" / "predictions" / "pair.jsonl").read_bytes()
    assert len(found["rows"]) >= 24
    assert hashlib.sha256(written).hexdigest() == network["predictions_sha256"]
    assert network["cut"]["holds"]
    assert found["median_error"] < 0.5  # a sign of life: how near they are, a quiet machine says
    assert (tmp_path / "out" / "predicted_over_measured.png").exists()
    assert "Shaped networks" in (tmp_path / "truth.md").read_text()
