"""Launched ranks end together, however the launch ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.errors import LaunchError, UsageError
from testbed.scripts.launch import RankExitError, launch

pytestmark = pytest.mark.distributed


def python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, sys, time; rank = int(os.environ['RANK']); {code}"]


def leave_pid(folder: Path) -> str:
    return f"open(f'{folder}/{{rank}}', 'w').write(str(os.getpid())); "


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, f"still running: {pids}"
        time.sleep(0.02)


def test_every_rank_sees_what_torchrun_would_set() -> None:
    lines: list[str] = []
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR"

    launch(python(f"print(*(os.environ[n] for n in '{names}'.split()))"), 2, on_line=lines.append)

    assert lines == ["0 0 2 2 127.0.0.1"]


def test_a_failing_rank_is_named_with_its_last_words_and_ends_the_others(tmp_path: Path) -> None:
    code = leave_pid(tmp_path) + "time.sleep(60) if rank != 1 else sys.exit('no such thing')"

    with pytest.raises(RankExitError, match=r"rank 1 of 3 ended with exit code 1\n  no such thing") as raised:
        launch(python(code), 3, on_line=print)

    assert raised.value.exit_code == 1
    wait_until_gone([int(path.read_text()) for path in tmp_path.iterdir()])


def test_a_killed_rank_is_named_with_its_signal() -> None:
    with pytest.raises(RankExitError, match="rank 0 of 1 was ended by SIGKILL"):
        launch(python("os.kill(os.getpid(), 9)"), 1, on_line=print)


def test_a_run_that_takes_too_long_is_ended() -> None:
    with pytest.raises(LaunchError, match=r"timed out after 0.3 s; still running: rank 0, 1 of 2"):
        launch(python("time.sleep(60)"), 2, timeout=0.3, on_line=print)


def test_a_port_in_use_is_refused_before_anything_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        with pytest.raises(UsageError, match="is in use; name another with --port"):
            launch(python("pass"), 1, port=taken.getsockname()[1])


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_ranks_do_not_outlive_the_launcher(tmp_path: Path, sent: signal.Signals) -> None:
    command = python(leave_pid(tmp_path) + "time.sleep(60)")
    launcher = subprocess.Popen(
        [sys.executable, "-c", f"from testbed.scripts.launch import launch; launch({command!r}, 2)"],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 20
    while len([path for path in tmp_path.iterdir() if path.stat().st_size]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]

    os.kill(launcher.pid, sent)

    assert launcher.wait(10) != 0
    wait_until_gone(pids)
