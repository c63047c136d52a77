"""Processes of a shaped network: one for each host, forked where torch has been imported already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from testbed.errors import LaunchError
from testbed.truth.shaped.built import BuiltNetwork

START_SECONDS = 60.0
"""Time for the processes to start: torch is imported meanwhile."""


class HostError(LaunchError):
    """A host could not do what it was asked to; the message says which and why."""


@dataclass(frozen=True)
class Hosts:
    """The processes of all hosts of a network; make them by `started`."""

    processes: Sequence[BaseProcess]
    connections: Sequence[Connection]

    def __len__(self) -> int:
        return len(self.processes)

    def ask(
        self, function: Callable[..., Any], *arguments: Any, timeout: float, of: Sequence[int] | None = None
    ) -> list[Any]:
        """Return what *function* returns on every host, given its `Host` and *arguments*.

        Args:
            function: of a module, as it travels by its name.
            arguments: of it, the same on all hosts.
            timeout: seconds until all hosts have answered.
            of: the hosts that are asked, by default all.

        Raises:
            HostError: a host's function failed, its process ended, or time is up.
        """
        answers = self.try_to_ask(function, *arguments, timeout=timeout, of=of)
        for host, (succeeded, said) in answers.items():
            if not succeeded:
                raise HostError(f"host {host}: {said}")
        return [said for _, said in answers.values()]

    def try_to_ask(
        self, function: Callable[..., Any], *arguments: Any, timeout: float, of: Sequence[int] | None = None
    ) -> dict[int, tuple[bool, Any]]:
        """Return of every host whether *function* succeeded, and what it returned, or why not; see `ask`.

        Raises:
            HostError: a process ended, or time is up.
        """
        asked = range(len(self)) if of is None else of
        for host in asked:
            self._send(host, (function, arguments))
        return self.answers(asked, timeout)

    def answers(self, asked: Sequence[int], timeout: float) -> dict[int, tuple[bool, Any]]:
        """Return the next answer of each host of *asked*; see `try_to_ask`."""
        found: dict[int, tuple[bool, Any]] = {}
        deadline = time.monotonic() + timeout
        waiting = {self.connections[host]: host for host in asked}
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                late = ", ".join(map(str, sorted(waiting.values())))
                raise HostError(f"no answer of host {late} within {timeout:.3g} s")
            for connection in ready:
                assert isinstance(connection, Connection)
                host = waiting.pop(connection)
                try:
                    found[host] = connection.recv()
                except (EOFError, OSError):
                    raise HostError(f"the process of host {host} ended by itself") from None
        return {host: found[host] for host in asked}

    def _send(self, host: int, request: Any) -> None:
        try:
            self.connections[host].send(request)
        except OSError:
            raise HostError(f"the process of host {host} ended by itself") from None


@contextlib.contextmanager
def started(network: BuiltNetwork, *, timeout: float = 60.0) -> Iterator[Hosts]:
    """Start a process on every host of *network*, one Gloo group of all; end them after the body.

    Args:
        network: that stands.
        timeout: seconds that a collective may take.

    Raises:
        HostError: they could not meet.
    """
    from testbed.truth.shaped.host import serve

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["testbed.truth.shaped.host", "ddp"])
    store = os.memfd_create("hosts")  # a file that nobody has to remove
    processes: list[BaseProcess] = []
    connections: list[Connection] = []
    try:
        for rank, space in enumerate(network.hosts):
            ours, theirs = context.Pipe()
            where = f"/proc/{os.getpid()}/fd/{store}"
            arguments = (rank, len(network.hosts), space.path, where, timeout, theirs)
            process: BaseProcess = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        hosts = Hosts(processes, connections)
        for host, (met, said) in hosts.answers(range(len(hosts)), START_SECONDS).items():
            if not met:
                raise HostError(f"host {host} did not meet the others: {said}")
        yield hosts
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for connection in connections:
            connection.close()
        os.close(store)
