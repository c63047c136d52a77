"""Calibration on a plain shaped network: for predictions of others, when none is given.

It is one switch, of no rate that a judged network need have, and torn down again.  All links of shaped
networks are made alike, so what is found for a host's link holds for every class of links.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.hosts import started
from benchmarks.lab.shaped.plan import plan
from sim import Topology
from testbed.calibration.live.calibration import Calibration
from testbed.output.table import Advance, counted

if TYPE_CHECKING:
    from benchmarks.lab.shaped.host import Host
    from testbed.calibration.live.measurement import Measured

HOSTS, RATE = 4, "240Mbps"
SECONDS = 40.0
"""Of the measurement; with the start of the processes it stays below a minute."""


def calibrate_plain(advance: Advance) -> Calibration:
    """Return the calibration of a switch that is built for it.

    Raises:
        UsageError: this process may not build networks.
        HostError: a host failed.
    """
    from testbed.calibration.live.result import calibration_of

    topology = Topology.switch(num_ranks=HOSTS, bandwidth=RATE, latency=0)
    advance(f"calibration on a switch of {counted(HOSTS, 'host')}")
    with built(plan(topology)) as network, started(network) as hosts:
        measured = hosts.ask(_measure, SECONDS, timeout=4 * SECONDS)[0]
    rate = float(topology.link_bandwidth[0])
    what = f"a shaped switch of {counted(HOSTS, 'host')} at {RATE}"
    found, _ = calibration_of(measured, name="plain", network=what, rates={"between_nodes": rate})
    shares = found.classes["between_nodes"]
    return replace(found, classes=dict.fromkeys(("inside_node", "between_nodes", "trunk"), shares))


def _measure(host: Host, seconds: float) -> Measured | None:
    from testbed.calibration.live.measurement import measure

    found = measure(host.everyone, seconds=seconds)
    return found if host.rank == 0 else None
