"""One host of a shaped network: a process in its namespace that does what it is asked to.

Torch is imported here, in a process of its own from which those of the hosts are forked.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from benchmarks.lab.shaped.namespaces import enter

Asked: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of ``linux/prctl.h``."""
_REAL_TIME_PRIORITY = 5


@dataclass
class Host:
    """What a host's process knows.

    Attributes:
        rank: of the host.
        num_hosts: of the network.
        timeout: that a collective may take.
        groups: of torch, by their members; made by `group`.
        kept: what one request leaves for the next.
    """

    rank: int
    num_hosts: int
    timeout: timedelta
    groups: dict[tuple[int, ...], Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def everyone(self) -> Any:
        """The group of all hosts."""
        return self.groups[tuple(range(self.num_hosts))]

    def group(self, members: tuple[int, ...]) -> Any:
        """Return the group of *members*; every host asks for it, members or not."""
        if members not in self.groups:
            self.groups[members] = dist.new_group(list(members), timeout=self.timeout)
        return self.groups[members]


def serve(
    rank: int, num_hosts: int, namespace: str, store: str, timeout: float, requests: Connection
) -> None:
    """Be a host until nobody asks any more.

    Args:
        rank: of the host.
        num_hosts: of the network.
        namespace: where its namespace is found.
        store: a file over which the hosts meet, so that no link carries anything else than what is measured.
        timeout: seconds that a collective may take.
        requests: pairs of a function and its arguments; the answer is what it returns, or its error.
    """
    _end_with_parent()
    with contextlib.suppress(OSError):  # other work of this machine is not what is measured
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_REAL_TIME_PRIORITY))
    enter(namespace)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torch.set_num_threads(1)
    host = Host(rank, num_hosts, timedelta(seconds=timeout))
    with contextlib.suppress(EOFError, OSError):
        requests.send(_answer(_meet, (host, store)))
        while True:
            function, arguments = requests.recv()
            requests.send(_answer(function, (host, *arguments)))
    os._exit(0)  # collectives that will never be complete are not waited for


def _meet(host: Host, store: str) -> None:
    dist.init_process_group(
        "gloo",
        store=torch._C._distributed_c10d.FileStore(store, host.num_hosts),
        rank=host.rank,
        world_size=host.num_hosts,
        timeout=host.timeout,
    )
    host.groups[tuple(range(host.num_hosts))] = dist.group.WORLD


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    """Return whether *function* succeeded, and what it returned, or why it did not."""
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"


def _end_with_parent() -> None:
    """See to it that this process ends with the one that asked for it, and with the one that forked it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and takes everything down
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    threading.Thread(target=_await_the_end, daemon=True).start()


def _await_the_end() -> None:
    """End this process, whatever it is doing, when the one that asked for it is gone.

    The one that forked it is not enough: it lives as long as its children.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
