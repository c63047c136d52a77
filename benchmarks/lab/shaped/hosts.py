"""Processes of a shaped network: one for each host, forked where torch has been imported already."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any
from unittest import mock

from benchmarks.lab.shaped.built import BuiltNetwork
from testbed.errors import LaunchError

START_SECONDS = 60.0
"""Time for the processes to start: torch is imported meanwhile."""


class HostError(LaunchError):
    """A host could not do what it was asked to; the message says which and why.

    Attributes:
        failed: why, by host.
    """

    def __init__(self, message: str, failed: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.failed = dict(failed or {})


@dataclass(frozen=True)
class Hosts:
    """The processes of all hosts of a network; make them by `started`."""

    processes: Sequence[BaseProcess]
    connections: Sequence[Connection]

    def __len__(self) -> int:
        return len(self.processes)

    def ask(self, function: Callable[..., Any], *arguments: Any, timeout: float) -> list[Any]:
        """Return what *function* returns on every host, given its `Host` and *arguments*.

        Args:
            function: of a module, as it travels by its name.
            arguments: of it, the same on all hosts.
            timeout: seconds until all hosts have answered.

        Raises:
            HostError: a host's function failed, its process ended, or time is up.
        """
        self.tell(function, *arguments)
        return self.answered(timeout)

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Let every host carry out *function*, and do not wait; see `ask`."""
        for host, connection in enumerate(self.connections):
            try:
                connection.send((function, arguments))
            except OSError:
                raise _ended(host) from None

    def answered(self, timeout: float) -> list[Any]:
        """Return what all hosts answer to what they were told; see `ask`."""
        said: dict[int, Any] = {}
        failed: dict[int, str] = {}
        deadline = time.monotonic() + timeout
        waiting = {connection: host for host, connection in enumerate(self.connections)}
        while waiting:
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                late = sorted(waiting.values())
                raise HostError(
                    f"no answer of host {', '.join(map(str, late))} within {timeout:.3g} s",
                    dict.fromkeys(late, "no answer"),
                )
            for connection in ready:
                assert isinstance(connection, Connection)
                host = waiting.pop(connection)
                try:
                    succeeded, content = connection.recv()
                except (EOFError, OSError):
                    raise _ended(host) from None
                (said if succeeded else failed)[host] = content
        if failed:
            first = min(failed)
            raise HostError(f"host {first}: {failed[first]}", dict(sorted(failed.items())))
        return [said[host] for host in range(len(self))]


def _ended(host: int) -> HostError:
    return HostError(f"the process of host {host} ended by itself", {host: "it ended"})


@contextlib.contextmanager
def started(network: BuiltNetwork, *, timeout: float = 60.0) -> Iterator[Hosts]:
    """Start a process on every host of *network*, one Gloo group of all; end them after the body.

    Args:
        network: that stands.
        timeout: seconds that a collective may take.

    Raises:
        HostError: they could not meet.
    """
    from benchmarks.lab.shaped.host import serve

    context = multiprocessing.get_context("forkserver")
    _start_forkserver()
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
        hosts.answered(START_SECONDS)
        yield hosts
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for connection in connections:
            connection.close()
        os.close(store)


def _start_forkserver() -> None:
    """Start the process from which those of hosts are forked, unless it runs, with torch imported in it.

    It listens on a socket without a name in the file system, where a parent that is killed would leave it.
    """
    forkserver.set_forkserver_preload(["benchmarks.lab.shaped.host", "ddp"])
    nameless = f"\0hosts of {os.getpid()}"
    with mock.patch("multiprocessing.connection.arbitrary_address", return_value=nameless):
        forkserver.ensure_running()
