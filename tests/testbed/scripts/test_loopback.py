"""Ranks that testbed starts listen on the loopback, whatever their script does."""

import gc
import re
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from typer.testing import CliRunner

from testbed.cli import app
from testbed.scripts import loopback
from testbed.scripts.launch import free_port
from testbed.scripts.loopback import listening_on_loopback
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc who listens")

LISTENING = "0A"
LOOPBACK = "0100007F"
SCRIPT = """
import os, sys, time
import torch, torch.distributed as dist
sys.path.insert(0, {folder!r})
from tests.testbed.scripts.test_loopback import listening_sockets

for turn in range(3):  # a group that is made again at once meets again
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0:
        print(sys.argv[1], "listening on", *sorted(set(listening_sockets().values())))
    late = dist.get_rank() == turn % 2
    dist.barrier()
    dist.destroy_process_group()
    time.sleep(0.5 if late else 0)
"""


def listening_sockets():
    """Return the sockets of this process that listen, with their addresses as the kernel writes them."""
    links = {link.readlink().name for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]
    ]
    listening = [row for row in rows if row[3] == LISTENING and f"socket:[{row[9]}]" in links]
    return {row[9]: row[1].partition(":")[0] for row in listening}


def test_a_store_at_the_loopback_listens_there_alone_and_is_shared():
    url = f"tcp://127.0.0.1:{free_port()}?rank=0&world_size=1"

    before = listening_sockets()

    with listening_on_loopback():
        store, _, _ = next(dist.rendezvous(url))
        again, _, _ = next(dist.rendezvous(url))
    store.set("key", "value")

    made = listening_sockets().items() - before.items()
    assert {address for _, address in made} == {LOOPBACK}
    assert again.get("key") == b"value"


def test_a_store_is_held_open_for_good_at_the_price_of_one(monkeypatch):
    monkeypatch.setattr(loopback, "_kept", {})
    url = f"tcp://127.0.0.1:{free_port()}?rank=0&world_size=1"

    with listening_on_loopback():
        loopback.listen_on_loopback(for_good=True)
        next(dist.rendezvous(url))[0].set("key", "value")
        before = len(listening_sockets()), len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            assert next(dist.rendezvous(url))[0].get("key") == b"value"

    def nothing_more():
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir())) <= before[1]

    assert len(listening_sockets()) == before[0]
    until(nothing_more, "the end of the others, which take a moment to be closed")


@pytest.mark.costly
@pytest.mark.distributed
def test_processes_of_a_script_run_on_our_backend_listen_there_alone_and_meet_again(tmp_path, capfd):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parents[3])))

    result = CliRunner().invoke(app, ["run", "--processes", "2", str(script), "--mine"])

    assert result.exit_code == 0, result.output
    assert "For real: 2 processes of this machine, backend testbed, ring." in result.stderr
    assert re.findall("--mine listening on (.*)", capfd.readouterr().out) == 3 * [LOOPBACK]
