"""Work that is ended gives what is there, says so, and ends with the code of who ended it."""

import contextlib
import io
import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest

from testbed.errors import CheckError, Terminated, UsageError
from testbed.output import table
from testbed.output.table import progress
from testbed.tasks.bounds import TimeUp, bounded
from tests.commands import called

SLOW = 30.0
"""Less than half of what pytest lets a test take: its timer stands, too."""


def waiting(signalled, after, function):
    """Return *function*, which after so many calls sends a signal to itself, if any, and waits."""
    calls = 0

    def called_and_ended(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls > after:
            if signalled is not None:
                os.kill(os.getpid(), signalled)
            time.sleep(SLOW)
        return function(*args, **kwargs)

    return called_and_ended


SWEPT = "--network switch-100g --ranks 2,4,8"
COMMANDS = {
    "scale": (f"scale {SWEPT} --strategy wait_free", "testbed.planning.sweep.evaluate"),
    "plan": (
        f"plan --profile resnet50 {SWEPT} --workers 1 --cache none --no-explain",
        "testbed.planning.sweep.evaluate",
    ),
    "simulate": ("simulate ring --nbytes 1K,2K,4K", "collectives.simulate"),
    "verify": ("verify ring --collective all_reduce --ranks 2-4", "testbed.studies.proofs.verify"),
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_leaves_a_part_of_the_table(name, number):
    line, target = COMMANDS[name]
    module, _, attribute = target.rpartition(".")
    own = getattr(__import__(module, fromlist=[attribute]), attribute)

    with mock.patch(target, waiting(number, 1, own)):
        ended = called(f"{line} --json", code=130)

    content = json.loads(ended.stdout)
    said = "Terminated" if number == signal.SIGTERM else "Interrupted"
    assert len(content["rows"]) == 1
    assert content["interrupted"] is True
    assert content["answer"].startswith(f"{said} after 1 of ")
    assert said.lower() in ended.stderr


@pytest.mark.parametrize("name", ["scale", "plan"])
def test_a_time_limit_leaves_a_part_and_is_no_failure(name):
    line, target = COMMANDS[name]
    from testbed.planning.sweep import evaluate

    with mock.patch(target, waiting(None, 2, evaluate)):
        shown = called(f"{line} --time-limit 3").stdout

    assert "This is a part: stopped by --time-limit 3 after 2 of 3 points." in " ".join(shown.split())


def test_a_time_limit_within_which_nothing_is_found_is_one():
    from testbed.planning.sweep import evaluate

    with mock.patch("testbed.planning.sweep.evaluate", waiting(None, 0, evaluate)):
        refused = called(f"{COMMANDS['scale'][0]} --time-limit 200ms", code=1)

    assert "nothing was found within --time-limit 0.2" in refused.stderr


def test_what_has_ended_the_work_is_told_apart():
    for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)):
        with bounded(SLOW) as stop:
            os.kill(os.getpid(), number)
            time.sleep(SLOW)
        assert type(stop.by) is kind
    with bounded(0.01) as stop:
        time.sleep(SLOW)
    assert type(stop.by) is TimeUp
    with pytest.raises(CheckError, match="give it more seconds"):
        stop.check([], 1, "point")


def test_an_outer_time_limit_ends_what_is_within_it_too():
    with bounded(SLOW) as outer:
        with bounded(2 * SLOW) as inner:
            os.kill(os.getpid(), signal.SIGALRM)
            time.sleep(SLOW)
        pytest.fail("the outer limit has come")

    assert (type(outer.by), inner.by) == (TimeUp, None)


def test_an_outer_time_limit_goes_on_during_an_inner_one():
    with bounded(2 * SLOW) as outer:
        before, _ = signal.getitimer(signal.ITIMER_REAL)
        with bounded(SLOW) as inner:
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGALRM)
            time.sleep(SLOW)
        left, _ = signal.getitimer(signal.ITIMER_REAL)

    assert (outer.by, type(inner.by)) == (None, TimeUp)
    assert left <= before - 0.01


def test_no_alarm_is_left_behind_by_a_time_limit():
    of_pytest = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with bounded(SLOW):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= SLOW

        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *of_pytest)


def test_a_time_limit_is_refused_in_another_thread_in_a_line():
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(lambda: bounded(SLOW).__enter__()).exception()

    assert isinstance(refused, UsageError)
    assert "a time limit ends the main thread" in str(refused)


def test_handlers_are_as_they_were_and_no_time_is_refused():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]

    with bounded(SLOW) as stop:
        pass

    assert stop.by is None
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == before
    with pytest.raises(UsageError, match="expected seconds above 0"), bounded(0.0):
        pass


def test_where_nobody_watches_a_line_says_how_far_it_is_and_no_output_of_a_script_has_it(monkeypatch, capsys):
    monkeypatch.setattr(table, "EACH_SECONDS", 0.01)

    with progress(3) as advance, contextlib.redirect_stderr(io.StringIO()) as taken:
        advance("the first")
        until = time.monotonic() + SLOW
        said = ""
        while "the first" not in said and time.monotonic() < until:
            time.sleep(0.01)
            said += capsys.readouterr().err

    assert "s, 1 of 3: the first\n" in said
    assert not taken.getvalue()
    assert not sys.stderr.isatty()
