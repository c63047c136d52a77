"""Tasks: one function of many independent items, on all cores of this machine or on a cluster's.

    for result in results(judge, seeds, workers=4):
        ...

The engine is Dask's, in processes of this machine unless the address of a scheduler is given; one worker
needs no engine, and gets none.  Items are handed out as results come in, so an iterator of items may go on
for as long as there is time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from testbed.errors import LaunchError

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2
"""Items handed out for each worker: one that it works on, and the next."""
_CONNECT_SECONDS = 10


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def results(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Result]:
    """Yield what *function* returns for each of *items*, in the order in which it is known.

    Args:
        function: of one item; it and what it returns can be pickled, unless there is one worker.
        items: taken one after another, a few ahead of the results.
        workers: processes of this machine; None: one for each core.  One is this process.
        scheduler: address of a Dask scheduler whose workers are taken instead, such as
            ``tcp://10.0.0.1:8786``; this package must be installed there.

    Raises:
        LaunchError: the scheduler cannot be reached, or a worker has died at an item.
        Exception: what *function* has raised.
    """
    number = cores() if workers is None else workers
    if scheduler is None and number == 1:
        yield from map(function, items)
        return
    with _client(number, scheduler) as client:
        yield from _through(client, function, items)


@contextlib.contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Any]:
    """Yield a client of the scheduler at that address, or of one in this process with so many workers."""
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        if scheduler is None:
            # On the loopback, without a page to look at: nothing listens where others could reach it.
            scheduler = stack.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = stack.enter_context(Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"--scheduler {scheduler}: no Dask scheduler answers there ({error}); start one with "
                "'dask scheduler', and workers with 'dask worker ADDRESS --nthreads 1'"
            ) from None
        yield client


def _through(client: Any, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield the results of *items*, of which the workers of *client* have a few at any time."""
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    waiting = iter(items)
    ahead = _AHEAD * max(1, len(client.scheduler_info()["workers"]))
    first = [client.submit(function, item, pure=False) for item in islice(waiting, ahead)]
    flight = as_completed(first, loop=client.loop)
    for done in flight:
        try:
            result: Result = done.result()
        except KilledWorker as error:
            raise LaunchError(f"a worker died, more than once, at the same task: {error}") from None
        done.release()
        for item in islice(waiting, 1):
            flight.add(client.submit(function, item, pure=False))
        yield result
