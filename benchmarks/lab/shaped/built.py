"""Shaped networks, built: namespaces for the hosts, bridges for the switches, shaped cables between them."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.lab.shaped.namespaces import Namespace
from benchmarks.lab.shaped.plan import End, Plan
from benchmarks.lab.shaped.shaping import QUIET, Shaping
from testbed.errors import UsageError

PROGRAMS = ("ip", "tc", "bridge")


def check_possible() -> None:
    """Check that this process can build networks.

    Raises:
        UsageError: it is not root, or iproute2 is missing; says which.
    """
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise UsageError(
            f"shaped networks are made by iproute2, and {', '.join(missing)} is missing; install it"
        )
    if os.geteuid() != 0:
        raise UsageError("shaped networks need root: namespaces, bridges and tc are the kernel's; use sudo")


@dataclass(frozen=True)
class BuiltNetwork:
    """A network that stands; make one by `built`.

    Attributes:
        plan: of which it was built.
        shaping: of its links.
        hosts: the namespace of each host.
        switches: the namespace of all switches.
    """

    plan: Plan
    shaping: Shaping
    hosts: tuple[Namespace, ...]
    switches: Namespace

    def change(self, link: int, factor: float) -> None:
        """Let *link* carry *factor* of its rate from now on; 1 is the rate that it was built with."""
        end = self.plan.end_of(link)
        assert end.rate is not None
        rate, pairs = max(1, round(end.rate * factor)), self.plan.pairs_over(link)
        self._at(end).run("tc", self.shaping.changed(end.device, rate, len(pairs)))

    def cut(self, link: int) -> None:
        """Take the cable of *link* down, in both directions."""
        end = self.plan.end_of(link)
        self._at(end).run("ip", [f"link set dev {end.device} down"])

    def _at(self, end: End) -> Namespace:
        return self.switches if end.vertex >= len(self.hosts) else self.hosts[end.vertex]


@contextlib.contextmanager
def built(plan: Plan, shaping: Shaping | None = None) -> Iterator[BuiltNetwork]:
    """Build *plan*, and take it down after the body.

    Raises:
        UsageError: this process may not.
        LaunchError: the kernel refuses something.
    """
    check_possible()
    with contextlib.ExitStack() as held:
        spaces = []
        for _ in range(plan.num_hosts + 1):
            spaces.append(Namespace.new())
            held.callback(spaces[-1].close)
        network = BuiltNetwork(plan, shaping or Shaping(), tuple(spaces[:-1]), spaces[-1])
        for host in network.hosts:
            host.configure(network.shaping.host_parameters())
        network.switches.configure(QUIET)
        _build(network)
        yield network


def address(host: int) -> str:
    """Return the Internet address of *host*."""
    return f"10.0.0.{host + 1}"


def _build(network: BuiltNetwork) -> None:
    plan, num_hosts = network.plan, network.plan.num_hosts
    ends = list(plan.ends())
    where = [space.path for space in (*network.hosts, network.switches)]

    def space(vertex: int) -> str:
        return where[min(vertex, num_hosts)]

    bridges = range(num_hosts, len(plan.names))
    cables = [
        f"link add name {here.device} netns {space(here.vertex)} type veth "
        f"peer name {there.device} netns {space(there.vertex)}"
        for here, there in plan.cables
    ]
    ports = [end for end in ends if end.vertex >= num_hosts]
    network.switches.run("ip", [f"link add name sw{vertex} up type bridge" for vertex in bridges] + cables)
    device = network.shaping.device()
    quiet = "type bridge_slave learning off flood off mcast_flood off bcast_flood off"
    network.switches.run(
        "ip",
        [f"link set dev {end.device} {device} up master sw{end.vertex}" for end in ports]
        + [f"link set dev {end.device} {quiet}" for end in ports],
    )
    forwarded = [
        f"fdb replace {_hardware_address(hop.destination)} dev {hop.device} master static"
        for hop in plan.hops
        if hop.vertex >= num_hosts
    ]
    if forwarded:
        network.switches.run("bridge", forwarded)
    _shape(network, network.switches, ports, at_switch=True)

    for rank, host in enumerate(network.hosts):
        own = [end for end in ends if end.vertex == rank]
        hops = [hop for hop in plan.hops if hop.vertex == rank]
        devices = [f"link set dev {end.device} address {_hardware_address(rank)} {device} up" for end in own]
        peers = [
            line
            for hop in hops
            for line in (
                f"route replace {address(hop.destination)} dev {hop.device} src {address(rank)}",
                f"neigh replace {address(hop.destination)} lladdr {_hardware_address(hop.destination)} "
                f"dev {hop.device} nud permanent",
            )
        ]
        first = f"address add {address(rank)}/32 dev eth0"
        host.run("ip", ["link set dev lo up", *devices, first, *peers])
        _shape(network, host, own, at_switch=False)


def _shape(network: BuiltNetwork, space: Namespace, ends: list[End], *, at_switch: bool) -> None:
    lines: list[str] = []
    for end in ends:
        if end.rate is not None and end.link is not None:
            pairs = [(address(one), address(other)) for one, other in network.plan.pairs_over(end.link)]
            lines += network.shaping.port(end.device, end.rate, pairs, at_switch=at_switch)
    if lines:
        space.run("tc", lines)


def _hardware_address(host: int) -> str:
    """Return the Ethernet address of *host*, the same on all its devices."""
    return f"02:00:00:00:00:{host + 1:02x}"
