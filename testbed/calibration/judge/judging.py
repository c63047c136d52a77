"""Predictions of a network file held against a table of measured collectives.

A row is predicted as `testbed simulate` does: by what was measured where the file has such tables (``--model
measured``), else, or where those say nothing of it, as a real run there would take
(`collectives.timing.assumptions`).  A row of a program of ours is simulated as that, with the software costs
that the file's own calibration found.  A row that the file's calibration has seen is marked, and does not
count among those that judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collectives.errors import CollectiveError, NotSupportedError
from collectives.timing import Assumptions, simulate
from collectives.timing.assumptions import Model
from collectives.timing.run import Run
from sim.errors import SimulationError
from sim.topology import Topology
from sim.topology.description import NetworkDescription
from testbed.calibration.confidence import Compared, Interval, interval_of_run
from testbed.calibration.live.calibration import Calibration
from testbed.calibration.tables.rows import MeasuredRow
from testbed.output.table import Advance, spell_size


@dataclass(frozen=True)
class Judged(Compared):
    """A row beside its prediction, in seconds.

    Attributes:
        row: what was measured.
        model: by which it was predicted: ``measured``, ``nccl`` or ``links``.
        algorithm: what was taken for the library's.
        bottleneck: what most of the time goes to, in words.
        seen: whether the file's calibration has had this row.
        beyond: how the prediction goes beyond what was measured.
    """

    row: MeasuredRow
    model: str
    algorithm: str
    bottleneck: str
    seen: bool
    beyond: str = ""

    @property
    def family(self) -> str:
        """System, collective and ranks, in words: rows of a family differ in their size alone."""
        row = self.row
        return f"{row.system}: {row.collective}, {row.num_nodes} × {row.ranks_per_node} ranks"


@dataclass(frozen=True)
class Refusal:
    """A row that the network file says nothing of, and why."""

    row: MeasuredRow
    reason: str


def judge(
    rows: Sequence[MeasuredRow], network: NetworkDescription, advance: Advance, model: Model | None = None
) -> tuple[list[Judged], list[Refusal]]:
    """Return what *network* predicts of each row, and those of which it says nothing.

    Args:
        rows: what was measured.
        network: the file that predicts.
        advance: is told which row is predicted.
        model: the only model to be asked; by default the first that answers.
    """
    judged: list[Judged] = []
    refused: list[Refusal] = []
    topologies: dict[tuple[int, int], Topology] = {}
    held = network.fields.calibration
    calibration = Calibration.from_json(held, network.name) if held else None
    for row in rows:
        advance(f"{row.system}, {spell_size(row.nbytes)}")
        try:
            shape = (row.num_nodes, row.ranks_per_node)
            if shape not in topologies:
                topologies[shape] = _topology(network, row)
            judged.append(_judged(row, topologies[shape], model, calibration))
        except (CollectiveError, SimulationError, ValueError) as error:
            refused.append(Refusal(row, str(error)))
    return judged, refused


def _topology(network: NetworkDescription, row: MeasuredRow) -> Topology:
    """Return the network with room for the ranks of *row*, each node's on a node of its own."""
    if network.num_ranks is not None:
        return network.topology()
    per_node = getattr(network.fields, "ranks_per_node", 1)
    return network.topology(row.num_ranks if per_node == 1 else row.num_nodes * per_node)


def _places(topology: Topology, row: MeasuredRow) -> list[int]:
    """Return where the ranks of *row* are.

    Raises:
        NotSupportedError: a node of the network has not so many.
    """
    per_node = topology.ranks_per_node
    if per_node == 1:
        return list(range(row.num_ranks))
    if row.ranks_per_node > per_node:
        raise NotSupportedError(
            f"{topology.name} has {per_node} ranks on a node, and the row has {row.ranks_per_node}"
        )
    return [node * per_node + rank for node in range(row.num_nodes) for rank in range(row.ranks_per_node)]


def _judged(
    row: MeasuredRow, topology: Topology, model: Model | None, calibration: Calibration | None
) -> Judged:
    """Return the prediction of the first model that answers.

    Raises:
        NotSupportedError: none does; the message has what each said.
    """
    measures = row.algorithm == "native" or any(row.system in own.systems for own in topology.measured)
    models: list[Model | None] = [model]
    if model is None and topology.measured and measures:
        models = ["measured", None]
    places = _places(topology, row)
    said = []
    for name in models:
        try:
            run, interval = _simulated(row, topology, places, name, calibration)
        except (CollectiveError, SimulationError, ValueError) as error:
            said.append(f"{name or 'as a real run'}: {error}")
            continue
        return Judged(
            run.seconds,
            row.seconds,
            row,
            run.model,
            run.algorithm,
            _bottleneck(run),
            _seen(row, topology),
            run.beyond,
            interval=None if interval is None else (interval.low, interval.high),
        )
    raise NotSupportedError("; ".join(said))


def _simulated(
    row: MeasuredRow,
    topology: Topology,
    places: list[int],
    model: Model | None,
    calibration: Calibration | None,
) -> tuple[Run, Interval | None]:
    """Return the run of *row*, by *model* or as a real run, and where nine of ten measurements lie.

    The library's own collectives are those that NCCL chooses where the network has GPUs.
    """
    algorithm = "nccl" if row.algorithm == "native" and topology.hardware is not None else row.algorithm
    costs: dict[str, Any] = {}
    if model == "measured":
        algorithm = "native"
    elif calibration is not None:
        costs = calibration.software(row.algorithm).options()
    assumed = Assumptions.of_a_real_run(topology, model=model, **costs)
    run = simulate(
        algorithm,
        nbytes=row.nbytes,
        topology=topology,
        collective=row.collective,
        placement=places,
        assumptions=assumed,
    )
    return run, interval_of_run(run, assumed)


def _bottleneck(run: Run) -> str:
    """Return what most of the time goes to."""
    if run.model != "links" and run.latency_ps is not None:
        latency = run.latency_ps / run.time_ps
        most = f"latency, {latency:.0%}," if latency >= 0.5 else f"bytes, {1 - latency:.0%},"
        return f"{most} of {run.algorithm.removeprefix('native/')}"
    if run.engine == "closed form":
        return "switches that reduce"
    link = run.links.bottleneck
    return "nothing is sent" if link is None else f"{link.name}, {link.utilisation:.0%} used"


def _seen(row: MeasuredRow, topology: Topology) -> bool:
    return any(
        row.system in own.systems
        and row.nbytes in own.sizes
        and (row.collective, row.num_ranks) == (own.collective, own.num_ranks)
        for own in topology.measured
    )
