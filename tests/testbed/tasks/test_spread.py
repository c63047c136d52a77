import ctypes
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from functools import partial
from itertools import count
from types import SimpleNamespace

import pytest
from distributed.scheduler import KilledWorker

from testbed.errors import LaunchError, Terminated, UsageError
from testbed.fuzzing.draw import Space
from testbed.fuzzing.scripts import Scripts
from testbed.scripts import parent
from testbed.tasks import spread
from testbed.tasks.bounds import terminated_in_order
from testbed.tasks.spread import results
from tests.processes import is_running
from tests.waiting import LAST_RESORT, until


def in_process(item):
    return item, os.getpid()


def test_one_worker_is_this_process_and_takes_items_as_it_goes():
    taken = results(in_process, count(), workers=1)

    assert [next(taken) for _ in range(3)] == [(item, os.getpid()) for item in range(3)]


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("name", "value", "error", "said"),
    [
        ("_CONNECT_SECONDS", 1, LaunchError, "no Dask scheduler answers there"),
        ("is_installed", lambda module: False, UsageError, "the extra dask brings"),
    ],
)
def test_a_scheduler_that_does_not_answer_or_needs_dask_is_named(name, value, error, said, monkeypatch):
    monkeypatch.setattr(spread, name, value)

    with pytest.raises(error, match=said):
        list(results(in_process, [1], scheduler="tcp://127.0.0.1:1"))


def killed_at_five(item):
    if item == 5:
        os.kill(os.getpid(), 9)
    return item


@pytest.mark.costly
@pytest.mark.distributed
def test_an_item_at_which_workers_die_costs_itself_alone():
    found = sorted(results(killed_at_five, range(12), workers=2, lost=lambda item, said: -item))

    assert found == [-5, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


class Deadly:
    """A client of two workers, which die at 5, each time with all that was handed out."""

    def nthreads(self):
        return {"first": 1, "second": 1}

    def submit(self, function, item, pure):
        handed_out = Future[int]()
        self.flight = [*(own for own in getattr(self, "flight", []) if not own[0].done()), (handed_out, item)]
        handed_out.release = lambda: None
        return handed_out

    def all_done(self, client, flight):
        dead = any(item == 5 for _, item in self.flight)
        for handed_out, item in self.flight:
            if dead:
                handed_out.set_exception(KilledWorker("task", None, 3))
            else:
                handed_out.set_result(item)
        return list(flight)


def test_what_was_handed_out_beside_an_item_at_which_workers_die_is_done(
    monkeypatch,
):
    client = Deadly()
    monkeypatch.setattr(spread, "_done", client.all_done)

    found = sorted(spread._through(client, abs, range(12), lambda item, said: -item))

    assert found == [-5, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


class Lonely:
    """A client of a scheduler that never has a worker when asked, although one may have come and gone."""

    scheduler = SimpleNamespace(address="tcp://10.0.0.1:8786")

    def __init__(self, come_and_go):
        self.events, self.more = [(0, "one goes")], ["one comes and goes"] * come_and_go

    def nthreads(self):
        return {}

    def get_events(self, topic):
        self.events += [(len(self.events), own) for own in self.more]
        return self.events


@pytest.mark.parametrize("come_and_go", [True, False])
def test_workers_that_come_and_die_between_two_looks_are_workers(come_and_go, monkeypatch):
    looks, halves = iter(range(10)), count()

    def wait(flight, **options):
        if next(looks, None) is not None:
            raise TimeoutError
        return SimpleNamespace(done=flight)

    monkeypatch.setattr("distributed.wait", wait)
    monkeypatch.setattr(spread, "time", SimpleNamespace(monotonic=lambda: 30.0 * next(halves)))
    done = partial(spread._done, Lonely(come_and_go), ["it"])

    if come_and_go:
        assert done() == ["it"]
    else:
        with pytest.raises(LaunchError, match="has had no worker for 60 s"):
            done()


CAMPAIGN = """
import os, pathlib, sys, time
from testbed.tasks.spread import results

if __name__ == "__main__":
    from work import work
    try:
        list(results(work, [sys.argv[1]] * 2, workers=2, modules=["work"]))
    finally:
        pathlib.Path(sys.argv[1], "in order").touch()
"""
WORK = """
import os, pathlib, time

def work(folder):
    pathlib.Path(folder, str(os.getpid())).touch()
    while True:
        time.sleep(60)
"""


def session_of(pid):
    """Return the processes of that session: workers, and what watches over semaphores."""
    found = subprocess.run(["ps", "-s", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.distributed
@pytest.mark.parametrize("when", ["at work", pytest.param("at the start", marks=pytest.mark.slow)])
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_workers_end_with_the_process_that_has_started_them(sent, when, tmp_path):
    script, pids = tmp_path / "campaign.py", tmp_path / "pids"
    script.write_text(CAMPAIGN)
    (tmp_path / "work.py").write_text(WORK)
    pids.mkdir()
    campaign = subprocess.Popen(
        [sys.executable, str(script), str(pids)],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_IGN),  # as of a job in the background
    )
    try:
        if when == "at work":
            until(lambda: len(list(pids.iterdir())) == 2, "workers")
        else:
            until(lambda: len(session_of(campaign.pid)) >= 2, "processes")
        session = session_of(campaign.pid)
    except BaseException:
        campaign.kill()
        raise

    campaign.send_signal(sent)

    assert campaign.wait(LAST_RESORT) != 0
    until(lambda: not any(map(is_running, session)), f"the end of {session}")
    assert (pids / "in order").exists() == (sent == signal.SIGTERM)


def asked_by_a_worker(item):
    """Return the item, the process, and which signal it has asked for."""
    number = ctypes.c_int()
    pr_get_pdeathsig = 2
    ctypes.CDLL(None).prctl(pr_get_pdeathsig, ctypes.byref(number))
    return *in_process(item), number.value


@pytest.mark.distributed
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent has ended")
def test_workers_share_the_items_and_ask_to_be_killed_when_their_parent_ends():
    found = list(results(asked_by_a_worker, range(20), workers=2))

    assert sorted(item for item, _, _ in found) == list(range(20))
    assert len({pid for _, pid, _ in found} - {os.getpid()}) == 2
    assert {sent for _, _, sent in found} == {signal.SIGKILL}


def fails(item):
    raise OddError(item, "no")


class OddError(Exception):
    """Cannot be made again of what it says."""

    def __init__(self, item, said):
        super().__init__(said)


@pytest.mark.distributed
def test_what_a_worker_raises_is_raised_here_or_said_where_it_cannot_travel():
    with pytest.raises(RuntimeError, match="OddError: no"):
        list(results(fails, [1, 2], workers=2))
    with pytest.raises(ZeroDivisionError):
        list(results(partial(divmod, 1), [0], workers=2))


def modules_of(item):
    """Return the process that has forked this one, how many threads that left it, and if it has imported."""
    return os.getppid(), len(os.listdir("/proc/self/task")), "torch._dynamo" in sys.modules


@pytest.mark.costly
@pytest.mark.distributed
def test_workers_find_imported_what_one_process_has_imported_for_all_of_them():
    found = set(results(modules_of, range(8), workers=2, modules=[*Scripts(Space("train.py")).modules, "no"]))

    assert len(found) == 1
    ((server, threads, has_imported),) = found
    assert (server != os.getpid(), threads, has_imported) == (True, 1, True)


def test_a_process_whose_parent_has_ended_before_it_could_ask_ends():
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-I", "-S", parent.__file__, "1", "true"], check=True)


def test_a_termination_ends_the_body_once():
    before = signal.getsignal(signal.SIGTERM)
    reached = []

    def terminated():
        with terminated_in_order():
            try:
                signal.raise_signal(signal.SIGTERM)
                reached.append("what follows")
            finally:
                signal.raise_signal(signal.SIGTERM)
                reached.append("the end")

    with pytest.raises(Terminated):
        terminated()

    assert reached == ["the end"]
    assert signal.getsignal(signal.SIGTERM) is before
