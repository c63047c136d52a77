from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from distributed import get_worker

from testbed.errors import LaunchError, Terminated
from testbed.scripts import parent
from testbed.tasks import _terminated_in_order, _terminations_held_back, results


def in_process(item: int) -> tuple[int, int]:
    return item, os.getpid()


def test_one_worker_is_this_process_and_takes_items_as_it_goes() -> None:
    taken = results(in_process, count(), workers=1)

    assert [next(taken) for _ in range(3)] == [(item, os.getpid()) for item in range(3)]


@pytest.mark.distributed
def test_processes_share_the_items() -> None:
    found = dict(results(in_process, range(20), workers=2))

    assert sorted(found) == list(range(20))
    assert os.getpid() not in found.values()


@pytest.mark.distributed
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.tasks._CONNECT_SECONDS", 1)

    with pytest.raises(LaunchError, match="no Dask scheduler answers there"):
        list(results(in_process, [1], scheduler="tcp://127.0.0.1:1"))


def killed_at_five(item: int) -> int:
    if item == 5:
        os.kill(os.getpid(), 9)
    return item


@pytest.mark.slow
@pytest.mark.distributed
def test_an_item_at_which_workers_die_costs_itself_alone() -> None:
    found = sorted(results(killed_at_five, range(12), workers=2, lost=lambda item, said: -item))

    assert found == [-5, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


CAMPAIGN = """
import os, pathlib, sys, time
from testbed.tasks import results

def work(folder):
    pathlib.Path(folder, str(os.getpid())).touch()
    while True:
        time.sleep(60)

if __name__ == "__main__":
    try:
        list(results(work, [sys.argv[1]] * 2, workers=2))
    finally:
        pathlib.Path(sys.argv[1], "in order").touch()
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def session_of(pid: int) -> list[int]:
    """Return the processes of that session: workers, and what watches over semaphores."""
    found = subprocess.run(["ps", "-s", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def semaphores_of(pid: int) -> list[Path]:
    """Return those that a process has: it maps files that are also linked under the name of each."""
    mapped = re.findall(r"(\d+) +/dev/shm/sem", Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"))
    found = []
    for path in Path("/dev/shm").glob("sem.mp-*"):
        with suppress(FileNotFoundError):  # of others, which come and go
            if str(path.stat().st_ino) in mapped:
                found.append(path)
    return found


def wait_until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.distributed
@pytest.mark.parametrize("when", ["at work", pytest.param("at the start", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_workers_their_folder_and_semaphores_end_with_the_process_that_has_started_them(
    sent: signal.Signals, when: str, tmp_path: Path
) -> None:
    script, pids, scratch = tmp_path / "campaign.py", tmp_path / "pids", tmp_path / "scratch"
    script.write_text(CAMPAIGN)
    pids.mkdir()
    scratch.mkdir()
    campaign = subprocess.Popen(
        [sys.executable, str(script), str(pids)],
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN),  # as of a job in the background
    )
    try:
        if when == "at work":
            wait_until(lambda: len(list(pids.iterdir())) == 2, "no workers")
        else:
            wait_until(lambda: len(session_of(campaign.pid)) >= 3, "no processes")
        session, semaphores = session_of(campaign.pid), semaphores_of(campaign.pid)
    except BaseException:
        campaign.kill()
        raise

    campaign.send_signal(sent)

    assert semaphores
    assert campaign.wait(60) != 0
    wait_until(lambda: not any(map(is_running, session)), f"still running: {session}")
    wait_until(lambda: not any(map(os.path.exists, semaphores)), f"still there: {semaphores}")
    wait_until(lambda: not list(scratch.iterdir()), f"still there: {list(scratch.iterdir())}")
    assert (pids / "in order").exists() == (sent == signal.SIGTERM)


def signal_at_the_end_of_the_parent(item: int) -> int:
    """Return which signal the main thread of this worker has asked for."""
    found: Future[int] = Future()

    def ask() -> None:
        number = ctypes.c_int()
        pr_get_pdeathsig = 2
        ctypes.CDLL(None).prctl(pr_get_pdeathsig, ctypes.byref(number))
        found.set_result(number.value)

    get_worker().loop.add_callback(ask)
    return found.result(20)


@pytest.mark.distributed
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent has ended")
def test_workers_ask_to_be_killed_when_their_parent_ends() -> None:
    assert set(results(signal_at_the_end_of_the_parent, range(2), workers=2)) == {signal.SIGKILL}


def test_a_process_whose_parent_has_ended_before_it_could_ask_ends() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-I", "-S", parent.__file__, "1", "true"], check=True)


def test_a_termination_is_held_back_while_workers_begin_and_ends_what_follows_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    reached = []

    def terminated() -> None:
        with _terminated_in_order():
            try:
                with _terminations_held_back():
                    signal.raise_signal(signal.SIGTERM)
                    reached.append("the end of what was begun")
                reached.append("what follows")
            finally:
                signal.raise_signal(signal.SIGTERM)
                reached.append("the end")

    with pytest.raises(Terminated):
        terminated()

    assert reached == ["the end of what was begun", "the end"]
    assert signal.getsignal(signal.SIGTERM) is before
