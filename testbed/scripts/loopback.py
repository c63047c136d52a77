"""Rendezvous on the loopback: where ranks of one machine meet, nobody else can knock.

The store at which ranks meet (torch's TCPStore, on rank 0) listens on every interface of the machine, and it
asks nobody who they are.  Where its address is one of the loopback, as for all ranks that `testbed` starts,
it gets a socket that listens there alone.  Any other address, such as torchrun's of several machines, says
that others are to be reached, and stays with torch.

This module is also what a process runs that becomes a script, with its own backend.
"""

from __future__ import annotations

import importlib
import ipaddress
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.scripts.launch import leave_current_folder

# By its name, as torch.distributed has a function of the same.
_rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
_TCPStore: Any = _rendezvous.TCPStore


_kept: dict[tuple[str, int], Any] = {}
"""By address, a store that holds that of this process open until it ends; those made later share it."""


def listen_on_loopback(*, for_good: bool = False) -> None:
    """Let this process's stores listen on the loopback alone where that is their address.

    Args:
        for_good: keep them open until the process ends, for groups that are made again and know how to find
            a part of a store that is new; else a rank may come to one that is about to be closed.
    """
    _rendezvous.TCPStore = _store_for_good if for_good else _store


@contextmanager
def listening_on_loopback() -> Iterator[None]:
    """Do so while the body runs."""
    before = _rendezvous.TCPStore
    listen_on_loopback()
    try:
        yield
    finally:
        _rendezvous.TCPStore = before


def _store(host_name: str, port: int, **options: Any) -> Any:
    """Return the TCPStore that torch makes at this address, on a socket of the loopback if that is there."""
    if options.get("is_master") and _is_loopback(host_name):
        listener = _listener(host_name, port)
        if listener is not None:
            return _TCPStore(host_name, port, master_listen_fd=listener.detach(), **options)
    return _TCPStore(host_name, port, **options)


def _store_for_good(host_name: str, port: int, **options: Any) -> Any:
    """Return what `_store` does, and keep the first at each address where this process is its host."""
    store = _store(host_name, port, **options)
    if options.get("is_master"):
        _kept.setdefault((host_name, port), store)
    return store


def _is_loopback(host_name: str) -> bool:
    try:
        return ipaddress.ip_address(host_name).is_loopback
    except ValueError:
        return False


def _listener(host_name: str, port: int) -> socket.socket | None:
    """Return a socket bound to that address; None where it is taken, as by a store that is shared."""
    family = socket.AF_INET6 if ":" in host_name else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host_name, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        return None
    return listener


def _become_script() -> None:
    """Run the script that the arguments name."""
    from collectives.torch_backend.script import Script

    listen_on_loopback()
    _, path, *arguments = sys.argv
    leave_current_folder()
    script = Script(Path(path), arguments)
    with script.as_main() as main:
        script.run(main)


if __name__ == "__main__":
    _become_script()
