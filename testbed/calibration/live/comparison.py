"""Timings of a collective with what the simulator says of each beside them.

Where no network is given, they are of a switch fitted to the very run: two constants, where nothing else was
measured.  On a switch the time of a program is linear in latency and in seconds a byte: ``t = A·α + B·β``.
The simulator itself says A and B of each size (from a run without latency and one with), so whatever was
measured, no formula of it is needed.  The fit minimises the relative error, so that small messages count as
much as large ones.  A calibration (`testbed.calibration.live.fit`) finds far more, from what was measured
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from collectives import resolve_algorithm
from collectives.catalogue.selectors import DEFAULTS, NATIVE
from collectives.timing import simulate
from sim import Topology
from sim.units import format_bandwidth, format_time
from testbed.benchmarking.benchmark import Timings
from testbed.benchmarking.candidates import CONNECT, BenchRequest, TransportName
from testbed.benchmarking.measure import Row
from testbed.benchmarking.payload import ITEM_SIZES
from testbed.calibration.confidence import Compared
from testbed.calibration.least_squares import bounded
from testbed.calibration.live.calibration import Calibration

UNIT_LATENCY = 1e-3
UNIT_BANDWIDTH = 10**9
MAX_BANDWIDTH = 4 * 10**12
"""What is taken for a network that never limits."""

Seconds: TypeAlias = "Callable[[int, Topology], float]"
"""Says what a size takes on a network."""

_MODELS = {TransportName.GLOO: "gloo", TransportName.SHM: "shm"}
"""Transport models of transports, where one is not the ideal."""


def with_simulation(
    timings: Timings, request: BenchRequest, topology: Topology | None, calibration: Calibration | None = None
) -> Timings:
    """Simulate what was measured: on *topology*, or on a switch fitted to the measurement itself.

    Over Gloo and shared memory steps are completed as they do there, and Gloo's *native* is what it runs (see
    `collectives.catalogue.native`); elsewhere our default algorithm stands for the vendor's.  What software
    takes is counted where *calibration*, that *topology* is from, says it.
    """
    rows = timings.rows
    sizes, times = [row.size_bytes for row in rows], [row.time_us for row in rows]
    who, seconds = _simulated_seconds(request, rows, calibration)
    if topology is None:
        network = fit_switch(seconds, request.num_ranks, sizes, [time / 1e6 for time in times])
        origin = _spell_fit(network, len(set(sizes)))
    elif calibration is None:
        network, origin = topology, f"{topology.name}, a prediction that knows nothing of this machine"
    else:
        network, origin = topology, f"{topology.name}, with the software costs that its calibration found"
    compared = [Compared(seconds(size, network) * 1e6, time) for size, time in zip(sizes, times, strict=True)]
    errors = [100 * own.error for own in compared]
    return replace(
        timings,
        rows=[
            replace(row, simulated_us=own.predicted, error_percent=error)
            for row, own, error in zip(rows, compared, errors, strict=True)
        ],
        method=[*timings.method, "simulated"],
        models=[
            *timings.models,
            f"Simulated: {who} on {origin}",
            f"Mean absolute error over {len(errors)} sizes: {sum(map(abs, errors)) / len(errors):.1f} %",
        ],
        topologies=[network],
    )


def _simulated_seconds(
    request: BenchRequest, rows: Sequence[Row], calibration: Calibration | None
) -> tuple[str, Seconds]:
    """Return in words what is simulated for *request*, and what a size takes on a network."""
    (candidate,) = request.candidates
    over_gloo = request.transport is TransportName.GLOO
    program: Any = candidate.algorithm
    chosen: dict[int, Any] = {}
    if candidate.name == CONNECT:
        who = "what connect() chose"
        chosen = {row.size_bytes: resolve_algorithm(str(row.chosen), request.collective) for row in rows}
    elif program is not None:
        who = str(program)
    elif over_gloo:
        program, who = NATIVE, "native, as Gloo runs it,"
    else:
        stand_in = DEFAULTS[request.collective]
        program, who = resolve_algorithm(stand_in, request.collective), f"{stand_in}, standing for native,"
    costs = {} if calibration is None else calibration.software(candidate.name).options()

    def seconds(nbytes: int, topology: Topology) -> float:
        return simulate(
            chosen.get(nbytes, program),
            nbytes=nbytes,
            topology=topology,
            collective=request.collective,
            itemsize=ITEM_SIZES[request.dtype],
            transport_model=_MODELS.get(request.transport, "ideal"),
            **costs,
        ).seconds

    return who, seconds


def _spell_fit(network: Topology, num_sizes: int) -> str:
    bandwidth, latency = int(network.link_bandwidth[0]), int(network.link_latency[0])
    worth = "the error is that of the fit, not of a prediction"
    if num_sizes <= 2:
        worth = f"two constants always fit {num_sizes} size(s): measure more for the error to mean anything"
    per_link = f"{format_bandwidth(bandwidth)}, {format_time(latency)} per link"
    return f"a switch fitted to this very run ({per_link}); {worth}"


def fit_switch(
    simulated: Seconds, world_size: int, sizes: Sequence[int], seconds: Sequence[float]
) -> Topology:
    """Return the switch on which *sizes* take *seconds*, as nearly as can be.

    Args:
        simulated: what the simulator says of a size on a network.
        world_size: number of ranks, at least 2.
        sizes: bytes.
        seconds: measured time of each size, above 0.
    """
    import numpy as np

    measured = np.asarray(seconds)
    without, with_latency = (
        np.asarray([simulated(size, network) for size in sizes])
        for network in (
            Topology.switch(num_ranks=world_size, bandwidth=UNIT_BANDWIDTH, latency=latency)
            for latency in (0, UNIT_LATENCY)
        )
    )
    shares = np.stack([(with_latency - without) / measured, without / measured], axis=1)
    latency, byte = bounded(shares, np.ones_like(measured), np.zeros(2)).tolist()
    return Topology.switch(
        num_ranks=world_size,
        bandwidth=max(1, round(min(UNIT_BANDWIDTH / max(byte, 1e-12), MAX_BANDWIDTH))),
        latency=round(UNIT_LATENCY * latency, 12),
        name="fitted switch",
    )
