"""Launched ranks end together, however the launch ends."""

import signal
import socket
import subprocess
import sys

import pytest

from testbed.errors import LaunchError, UsageError
from testbed.scripts.launch import RankExitError, launch
from tests.processes import is_running, not_outliving
from tests.waiting import LAST_RESORT, until

pytestmark = pytest.mark.distributed


def python(code):
    return [sys.executable, "-c", f"import os, sys, time; rank = int(os.environ['RANK']); {code}"]


def leave_pid(folder):
    """Return code that makes a file whose name is the number of the process, at once."""
    return f"open(f'{folder}/{{os.getpid()}}', 'x').close(); "


def left_by(num_ranks, folder):
    """Return the numbers of that many processes when they have left them."""
    until(lambda: len(list(folder.iterdir())) == num_ranks, f"{num_ranks} ranks")
    return [int(path.name) for path in folder.iterdir()]


def wait_until_gone(pids):
    until(lambda: not any(map(is_running, pids)), f"the end of {pids}")


def test_every_rank_sees_what_torchrun_would_set(capfd):
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR"

    launch(python(f"print(*(os.environ[n] for n in '{names}'.split()))"), 2)

    assert capfd.readouterr().out == "0 0 2 2 127.0.0.1\n"


def test_a_failing_rank_is_named_with_its_last_words_and_ends_the_others(tmp_path):
    fails = f"[0 for _ in iter(lambda: len(os.listdir({str(tmp_path)!r})), 3)]; sys.exit('no such thing')"
    code = f"{leave_pid(tmp_path)}rank == 1 or time.sleep(3600); {fails}"

    with pytest.raises(RankExitError, match=r"rank 1 of 3 ended with exit code 1\n  no such thing") as raised:
        launch(python(code), 3, quiet=True)

    assert raised.value.exit_code == 1
    wait_until_gone(left_by(3, tmp_path))


@pytest.mark.parametrize(
    ("code", "num_ranks", "error", "said"),
    [
        ("os.kill(os.getpid(), 9)", 1, RankExitError, "rank 0 of 1 was ended by SIGKILL"),
        ("time.sleep(3600)", 2, LaunchError, "timed out after 0.3 s; still running: rank 0, 1 of 2"),
    ],
)
def test_a_rank_that_is_killed_or_takes_too_long_is_named(code, num_ranks, error, said):
    with pytest.raises(error, match=said):
        launch(python(code), num_ranks, timeout=0.3 if error is LaunchError else None, quiet=True)


def test_a_port_in_use_is_refused_before_anything_starts():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(UsageError, match="is in use; name another with --port"):
            launch(python("pass"), 1, port=taken.getsockname()[1])


@pytest.mark.parametrize(
    ("sent", "in_background"),
    [
        pytest.param(signal.SIGINT, False, id="Ctrl-C"),
        pytest.param(signal.SIGKILL, False, id="SIGKILL"),
        pytest.param(signal.SIGTERM, True, id="SIGTERM in the background"),
    ],
)
def test_ranks_do_not_outlive_the_launcher(tmp_path, sent, in_background, request):
    if in_background:
        request.getfixturevalue("ignores_interrupts")
    ranks = python(leave_pid(tmp_path) + "time.sleep(3600)")
    command = [sys.executable, "-c", f"from testbed.scripts.launch import launch; launch({ranks!r}, 2)"]
    with not_outliving(subprocess.Popen(command, stderr=subprocess.DEVNULL, text=True)) as launcher:
        pids = left_by(2, tmp_path)
        launcher.send_signal(sent)
        assert launcher.wait(LAST_RESORT) != 0

    wait_until_gone(pids)
