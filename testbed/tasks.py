"""Tasks: one function of many independent items, on all cores of this machine or on a cluster's.

    for result in results(judge, seeds, workers=4):
        ...

The engine is Dask's, in processes of this machine unless the address of a scheduler is given; one worker
needs no engine, and gets none.  Items are handed out as results come in, so an iterator of items may go on
for as long as there is time.  What a worker had begun when it died is done again by another; an item at which
workers die again and again costs itself, and the others go on where the caller says what stands for it.
Which item that is shows when it is tried alone, as a worker takes down with it what it had been handed ahead.

However this process ends, its workers end with it, and their folder is removed.  SIGTERM ends it in order, as
Ctrl-C does; where that was ignored before, it still is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from multiprocessing import resource_tracker
from typing import Any, TypeVar

from testbed.bounds import terminated_in_order
from testbed.errors import LaunchError
from testbed.scripts import parent
from testbed.scripts.launch import check_loopback
from testbed.scripts.scratch_folder import scratch_folder

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2
"""Items handed out for each worker: one that it works on, and the next."""
_CONNECT_SECONDS = 10
_WITHOUT_WORKERS_SECONDS = 60
"""How long a scheduler may be without a worker."""
_LOOK_SECONDS = 2.0
"""After which it is looked whether there are workers, while nothing comes in."""

_GONE = "the Dask scheduler at {0} has gone; start it again, and repeat the command"
_LONELY = (
    "the Dask scheduler at {0} has had no worker for {1} s; start some with 'dask worker {0} --nthreads 1'"
)
_UNKNOWN = (
    "the Dask scheduler at {0} or its workers cannot load what they are to run; install this package, in "
    "this version, where they run"
)
_LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")
"""Of the engine, which has more to say about what is reported here."""


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def results(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    lost: Callable[[Item, str], Result] | None = None,
) -> Generator[Result, None, None]:
    """Yield what *function* returns for each of *items*, in the order in which it is known.

    Args:
        function: of one item; it and what it returns can be pickled, unless there is one worker.
        items: taken one after another, a few ahead of the results.
        workers: processes of this machine; None: one for each core.  One is this process.
        scheduler: address of a Dask scheduler whose workers are taken instead, such as
            ``tcp://10.0.0.1:8786``; this package must be installed there.
        lost: of an item at which workers died again and again, and of words about that, returns what is
            yielded instead; None: it is an error.

    Raises:
        LaunchError: the scheduler cannot be reached, or no longer, it has no workers, or workers died at an
            item.
        Terminated: SIGTERM has come while there were workers.
        UsageError: workers of this machine cannot talk to this process.
        Exception: what *function* has raised.
    """
    number = cores() if workers is None else workers
    if scheduler is None and number == 1:
        yield from map(function, items)
        return
    with terminated_in_order(), _client(number, scheduler) as client:
        yield from _through(client, function, items, lost)


@contextlib.contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at that address, or of one in this process with so many workers."""
    import dask.config
    from distributed import Client, LocalCluster

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if scheduler is None:
            check_loopback()
            # On the loopback, without a page to look at: nothing listens where others could reach it.
            stack.enter_context(
                dask.config.set({"temporary-directory": stack.enter_context(scratch_folder())})
            )
            try:
                with _interrupts_held_back():
                    cluster = LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        processes=True,
                        host="127.0.0.1",
                        dashboard_address=None,
                        preload=[parent.__name__],
                        silence_logs=logging.CRITICAL,
                    )
                    scheduler = stack.enter_context(cluster)
            except RuntimeError as error:
                said = error.__cause__ or error
                raise LaunchError(f"{workers} processes cannot be started here: {said}") from None
        try:
            client = stack.enter_context(Client(scheduler, timeout=_CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"--scheduler {scheduler}: no Dask scheduler answers there ({error}); start one with "
                "'dask scheduler', and workers with 'dask worker ADDRESS --nthreads 1'"
            ) from None
        yield client


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the body ends; threads that begin in it never get Ctrl-C.

    Nor do their processes: a terminal sends it to them, too, but it is for this one to end them.
    """
    resource_tracker.ensure_running()  # which would let it through again in the thread that starts it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with _terminations_held_back():
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _terminations_held_back() -> Iterator[None]:
    """Hold SIGTERM back until the body ends, in this process alone: its workers are ended by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    if callable(before):
        signal.signal(signal.SIGTERM, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
    if held:
        signal.raise_signal(signal.SIGTERM)


def _through(
    client: Any,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    lost: Callable[[Item, str], Result] | None,
) -> Iterator[Result]:
    """Yield the results of *items*, of which the workers of *client* have a few at any time.

    Of those that were with workers which died, nobody knows at which it was: each is tried alone.
    """
    from distributed.scheduler import KilledWorker

    waiting = iter(items)
    flight: dict[Any, Item] = {}
    suspects: list[Item] = []
    while True:
        alone = bool(suspects) and not flight
        if alone:
            suspect = suspects.pop(0)
            flight[client.submit(function, suspect, pure=False)] = suspect
        elif not suspects:
            for item in islice(waiting, max(0, _AHEAD * max(1, _num_workers(client)) - len(flight))):
                flight[client.submit(function, item, pure=False)] = item
        if not flight:
            return
        for done in _done(client, flight):
            item = flight.pop(done)
            try:
                result: Result = done.result()
            except KilledWorker as error:
                if not alone:
                    suspects.append(item)
                    continue
                said = f"{1 + error.allowed_failures} workers died at it, one after another"
                if lost is None:
                    raise LaunchError(f"a task: {said}; it may need more memory than there is") from None
                result = lost(item, said)
            except (ModuleNotFoundError, RuntimeError) as error:
                if getattr(error, "name", None) == "testbed" or "deserialization" in str(error):
                    raise LaunchError(_UNKNOWN.format(_address(client))) from None
                raise
            done.release()
            yield result


def _done(client: Any, flight: Iterable[Any]) -> list[Any]:
    """Return futures of *flight* that are done, as soon as there is one.

    Raises:
        LaunchError: the scheduler has gone, or there has been no worker for a while.
    """
    from distributed import wait
    from distributed.client import FuturesCancelledError

    lonely_since, last_news = None, None
    while True:
        try:
            return list(wait(list(flight), timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done)
        except FuturesCancelledError:
            raise LaunchError(_GONE.format(_address(client))) from None
        except TimeoutError:
            pass
        news = None if _num_workers(client) else _last_news(client)
        if news is None or news != last_news:  # a worker may come, and die at its item, between two looks
            lonely_since, last_news = None, news
        if news is None:
            continue
        lonely_since = lonely_since or time.monotonic()
        if time.monotonic() - lonely_since >= _WITHOUT_WORKERS_SECONDS:
            raise LaunchError(_LONELY.format(_address(client), _WITHOUT_WORKERS_SECONDS))


def _num_workers(client: Any) -> int:
    """Return how many workers the scheduler of *client* has."""
    try:
        return len(client.nthreads())
    except (OSError, TimeoutError):
        raise LaunchError(_GONE.format(_address(client))) from None


def _last_news(client: Any) -> float:
    """Return when a worker has last come or gone; 0: never, as far as the scheduler of *client* knows."""
    try:
        return float(max((when for when, _ in client.get_events("all")), default=0.0))
    except (OSError, TimeoutError):
        raise LaunchError(_GONE.format(_address(client))) from None


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "that was given"
