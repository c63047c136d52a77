"""Workers: processes of this machine, forked from one that has imported what they need, and nothing twice.

A process of this file as a program imports the modules, once, and forks as many workers as it is told to;
each takes one item after another.  So a campaign waits for one ``import torch``, not for one on each core,
and it does not matter what the process that asks for workers has imported, or whether it has threads.

A worker that dies costs the item that it had begun, which another then begins; an item at which several died
costs itself.  Workers end with their server, and that with the process that has started it, however that
ends.  Ctrl-C is for that process alone.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, TypeVar

from testbed.errors import LaunchError
from testbed.scripts import parent
from testbed.scripts.launch import own_module

Item = TypeVar("Item")
Result = TypeVar("Result")

DEATHS = 4
"""Workers that may die at an item before it is given up."""


class _Begun(NamedTuple):
    """An item, and how many workers have died at it."""

    item: Any
    deaths: int


def results_of_workers(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    number: int,
    modules: Sequence[str],
    lost: Callable[[Item, str], Result] | None,
) -> Generator[Result, None, None]:
    """Yield what *function* returns for each of *items* in one of *number* workers, as it is known.

    Args:
        function: see `testbed.tasks.results`; found in a module, not in ``__main__``.
        items: taken one after another, when a worker is free.
        number: of workers.
        modules: imported before workers are forked; those that are not there are left out.
        lost: see `testbed.tasks.results`.

    Raises:
        LaunchError: processes cannot be started, or workers died at an item.
        Exception: what *function* has raised.
    """
    waiting = (_Begun(item, 0) for item in items)
    again: list[_Begun] = []
    flight: dict[Connection, _Begun] = {}
    with _server(modules) as fork:
        free = [fork() for _ in range(number)]
        while True:
            while free and (begun := again.pop() if again else next(waiting, None)) is not None:
                worker = free.pop()
                with suppress(OSError):  # it has died, which shows when it is waited for
                    worker.send((function, begun.item))
                flight[worker] = begun
            if not flight:
                return
            for worker in [own for own in wait(list(flight)) if isinstance(own, Connection)]:
                item, deaths = flight.pop(worker)
                try:
                    result, error = worker.recv()
                except (EOFError, OSError):
                    worker.close()
                    free.append(fork())
                    if deaths + 1 < DEATHS:
                        again.append(_Begun(item, deaths + 1))
                        continue
                    said = f"{DEATHS} workers died at it, one after another"
                    if lost is None:
                        raise LaunchError(f"a task: {said}; it may need more memory than there is") from None
                    result, error = lost(item, said), None
                else:
                    free.append(worker)
                if error is not None:
                    raise error
                yield result


@contextmanager
def _server(modules: Sequence[str]) -> Iterator[Callable[[], Connection]]:
    """Start the process that forks workers; yield what asks it for one more.

    Raises:
        LaunchError: it cannot be started, or has ended.
    """
    control, its_end = socket.socketpair()
    asked = json.dumps([sys.path, list(modules)])
    command = [*own_module(__name__), str(its_end.fileno()), str(os.getpid()), asked]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[its_end.fileno()])
    except OSError as error:
        raise LaunchError(f"processes cannot be started here: {error}") from None
    its_end.close()
    workers: list[Connection] = []

    def fork() -> Connection:
        try:
            control.send(b"1")
            _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except OSError as error:
            raise LaunchError(f"the process that forks workers has ended: {error}") from None
        if not descriptors:
            raise LaunchError("the process that forks workers has ended")
        workers.append(Connection(descriptors[0]))
        return workers[-1]

    try:
        with control:
            yield fork
    finally:
        process.kill()
        process.wait()
        for worker in workers:
            worker.close()


def _serve(control: socket.socket, modules: Sequence[str]) -> None:
    """Import *modules*, and fork a worker for each byte that comes, until none does any more."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)
    gc.collect()
    gc.freeze()  # of modules nothing becomes garbage; and pages that nobody looks through stay shared
    server = os.getpid()
    while control.recv(1):
        ours, its_end = socket.socketpair()
        if os.fork() == 0:
            control.close()
            ours.close()
            parent.end_with(server)
            _work(Connection(its_end.detach()))
            os._exit(0)
        with ours, its_end:
            socket.send_fds(control, [b"1"], [ours.fileno()])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _work(orders: Connection) -> None:
    """Do what is asked for, until nobody asks any more."""
    while True:
        try:
            function, item = orders.recv()
        except (EOFError, OSError):
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = function(item), None
        except Exception as error:
            answer = None, _that_travels(error)
        orders.send(answer)


def _that_travels(error: Exception) -> Exception:
    """Return *error*, or what it says where it cannot be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    parent.end_with(int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:], asked = json.loads(sys.argv[3])
    _serve(socket.socket(fileno=int(sys.argv[1])), asked)
