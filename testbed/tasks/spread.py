"""Tasks: one function of many independent items, on all cores of this machine or on a cluster's.

    for result in results(judge, seeds, workers=4):
        ...

Workers are processes of this machine (`testbed.tasks.workers`), or those of the Dask scheduler whose address
is given; one worker is this process itself.  Items are handed out as results come in, so an iterator of items
may go on for as long as there is time.  What a worker had begun when it died is done again by another; an
item at which workers die again and again costs itself, and the others go on where the caller says what
stands for it.  On a cluster which item that is shows when it is tried alone, as a worker takes down with it
what it had been handed ahead.

However this process ends, its workers end with it.  SIGTERM ends it in order, as Ctrl-C does; where that was
ignored before, it still is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from testbed.errors import LaunchError, UsageError, how_to_install, is_installed
from testbed.tasks.bounds import terminated_in_order
from testbed.tasks.workers import results_of_workers

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
    modules: Sequence[str] = (),
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
        modules: that *function* imports, which workers of this machine find imported.

    Raises:
        LaunchError: the scheduler cannot be reached, or no longer, it has no workers, or workers died at an
            item.
        Terminated: SIGTERM has come while there were workers.
        UsageError: a scheduler is given, and Dask is not installed.
        Exception: what *function* has raised.
    """
    number = cores() if workers is None else workers
    if scheduler is None and number == 1:
        yield from map(function, items)
        return
    with terminated_in_order():
        if scheduler is None:
            yield from results_of_workers(function, items, number, modules, lost)
            return
        with _client(scheduler) as client:
            yield from _through(client, function, items, lost)


@contextlib.contextmanager
def _client(scheduler: str) -> Iterator[Any]:
    """Yield a client of the scheduler at that address."""
    if not is_installed("distributed"):
        raise UsageError(how_to_install("--scheduler needs Dask", "dask"))
    from distributed import Client

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        try:
            client = stack.enter_context(Client(scheduler, timeout=_CONNECT_SECONDS))
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"--scheduler {scheduler}: no Dask scheduler answers there ({error}); start one with "
                "'dask scheduler', and workers with 'dask worker ADDRESS --nthreads 1'"
            ) from None
        yield client


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
