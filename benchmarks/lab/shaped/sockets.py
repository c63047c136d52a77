"""Plain TCP between the hosts of a shaped network: many to many at once, over nothing but sockets."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from benchmarks.lab.shaped.built import address
from benchmarks.lab.shaped.hosts import Hosts
from benchmarks.lab.shaped.timing import begin, duration

if TYPE_CHECKING:
    from benchmarks.lab.shaped.host import Host

Flow: TypeAlias = tuple[int, int]
"""From one host to another."""

_PORT = 5000
_SECONDS = 120.0
_PIECE = 1 << 16
"""Bytes that are handed to a socket at once."""


@dataclass(frozen=True)
class Times:
    """What came of a transfer.

    Attributes:
        seconds: of each repetition.
        timeouts: of TCP's retransmission, on all hosts, a repetition.
    """

    seconds: tuple[float, ...]
    timeouts: float


def time_flows(hosts: Hosts, flows: Sequence[Flow], nbytes: int, *, repetitions: int) -> Times:
    """Return how long *flows* of *nbytes* each take that begin at one moment; once before is not counted.

    Two hosts have one connection, whoever of them sends.

    Raises:
        HostError: a host failed.
    """
    pairs = sorted({(min(flow), max(flow)) for flow in flows})
    hosts.ask(_listen, timeout=_SECONDS)
    hosts.ask(_connect, pairs, timeout=_SECONDS)
    hosts.ask(_prepare, tuple(flows), nbytes, timeout=_SECONDS)
    begin(hosts, _transfer)
    before = sum(hosts.ask(_timeouts, timeout=_SECONDS))
    seconds = tuple(duration(begin(hosts, _transfer)) for _ in range(repetitions))
    timeouts = sum(hosts.ask(_timeouts, timeout=_SECONDS)) - before
    hosts.ask(_close, timeout=_SECONDS)
    return Times(seconds, timeouts / repetitions)


def counted_timeouts(hosts: Hosts) -> int:
    """Return how many time-outs of retransmission there have been on all hosts."""
    return sum(hosts.ask(_timeouts, timeout=_SECONDS))


def _listen(host: Host) -> None:
    host.kept["listener"] = socket.create_server((address(host.rank), _PORT), backlog=host.num_hosts)
    host.kept["sockets"] = {}


def _connect(host: Host, pairs: Sequence[tuple[int, int]]) -> None:
    """Connect this host with those that *pairs* name with it; the lower of two calls."""
    sockets: dict[int, socket.socket] = host.kept["sockets"]
    for lower, higher in pairs:
        if lower == host.rank:
            sockets[higher] = socket.create_connection((address(higher), _PORT), timeout=_SECONDS)
            sockets[higher].sendall(bytes([lower]))
    for _ in (pair for pair in pairs if pair[1] == host.rank):
        accepted, _ = host.kept["listener"].accept()
        accepted.settimeout(_SECONDS)
        (lower,) = accepted.recv(1)
        sockets[lower] = accepted
    for own in sockets.values():
        own.setblocking(False)


def _prepare(host: Host, flows: tuple[Flow, ...], nbytes: int) -> None:
    """Get ready to send to those after this host first, as programs do: else all begin with one receiver."""
    peers = sorted(host.kept["sockets"], key=lambda peer: (peer - host.rank) % host.num_hosts)
    sent = [peer for peer in peers if (host.rank, peer) in flows]
    received = [peer for peer in peers if (peer, host.rank) in flows]
    host.kept["transfer"] = dict.fromkeys(sent, nbytes), dict.fromkeys(received, nbytes)


def _transfer(host: Host) -> None:
    """Send and receive what is prepared."""
    sockets: dict[int, socket.socket] = host.kept["sockets"]
    left, due = (dict(part) for part in host.kept["transfer"])
    data, into = memoryview(bytes(_PIECE)), bytearray(4 * _PIECE)
    with selectors.DefaultSelector() as selector:
        for peer in left | due:
            selector.register(sockets[peer], _events(peer, left, due), peer)
        while left or due:
            for key, events in selector.select(_SECONDS):
                peer = key.data
                if events & selectors.EVENT_WRITE:
                    _take(left, peer, sockets[peer].send(data[: left[peer]]))
                if events & selectors.EVENT_READ:
                    _take(due, peer, sockets[peer].recv_into(into, min(len(into), due[peer])))
                wanted = _events(peer, left, due)
                if not wanted:
                    selector.unregister(sockets[peer])
                elif wanted != key.events:
                    selector.modify(sockets[peer], wanted, peer)


def _take(bytes_of: dict[int, int], peer: int, nbytes: int) -> None:
    bytes_of[peer] -= nbytes
    if not bytes_of[peer]:
        del bytes_of[peer]


def _events(peer: int, left: Collection[int], due: Collection[int]) -> int:
    return selectors.EVENT_WRITE * (peer in left) | selectors.EVENT_READ * (peer in due)


def _timeouts(host: Host) -> int:
    """Return how many time-outs of retransmission there have been in this host's namespace."""
    with open("/proc/thread-self/net/netstat") as file:
        names, values, *_ = (line.split() for line in file if line.startswith("TcpExt:"))
    return int(values[names.index("TCPTimeouts")])


def _close(host: Host) -> None:
    for own in (host.kept.pop("listener"), *host.kept.pop("sockets").values()):
        own.close()
