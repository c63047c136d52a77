"""Predictions of a network file held against a table of measured collectives.

Each row is predicted by the best that the file has to say, and the result names which it was: what was
measured (`collectives.timing.formulas.measured`) on this machine or, where the file is of a known kind and
has no tables of its own, on machines of that kind, else NCCL's own model, else a simulation on the links: of
Gloo's own programs where the file says nothing of GPUs, else of a ring (a tree for a broadcast, direct
messages for an all-to-all; where one node's switches reduce, those).  A row of a program of ours is simulated
as that, over Gloo, NCCL or shared memory by the same rule, and with the software costs that the file's own
calibration found.  A row that the file's calibration has seen is marked, and does not count among those that
judge.

A file with a [hardware] table and no measured ones is of a known kind where a preset has the same generation
of GPUs, as many of them on a node, and about the same bandwidth out of a node (within 15 %); of several such
presets the one whose network is nearest, in bandwidth and latency (as logarithms).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from collectives.errors import CollectiveError, NotSupportedError
from collectives.timing import default_transport_model, simulate
from collectives.timing.run import Run
from sim import load_network, preset_names
from sim.errors import SimulationError
from sim.topology import Topology
from sim.topology.description import NetworkDescription
from testbed.calibration.confidence import Compared, interval_of_size
from testbed.calibration.live.calibration import Calibration
from testbed.calibration.tables.rows import MeasuredRow
from testbed.output.table import Advance, spell_size

ABOUT = 0.15


def with_kind(topology: Topology) -> tuple[Topology, str]:
    """Return *topology* with the measured tables of a preset of its kind, and the preset's name.

    A topology with tables of its own, or of no known kind, comes back as it is, with no name.
    """
    if topology.measured or topology.hardware is None or topology.num_links == 0:
        return topology, ""
    nearest = min(_presets(), key=lambda preset: _distance(topology, preset), default=None)
    if nearest is None or math.isinf(_distance(topology, nearest)):
        return topology, ""
    return replace(topology, measured=nearest.measured), nearest.name.partition(" ")[0]


@cache
def _presets() -> tuple[Topology, ...]:
    """Return two nodes of each preset that has hardware and measured tables."""
    found = []
    for name in preset_names():
        network = load_network(name)
        if network.fields.hardware is not None and network.fields.measured:
            found.append(network.topology(2 * getattr(network.fields, "ranks_per_node", 1)))
    return tuple(found)


def _distance(topology: Topology, preset: Topology) -> float:
    """Return how far two networks are apart; infinite where they are of different kinds."""
    assert topology.hardware is not None
    assert preset.hardware is not None
    if topology.hardware.generation != preset.hardware.generation:
        return math.inf
    if topology.ranks_per_node != preset.ranks_per_node:
        return math.inf
    (rate, latency), (other, slow) = _between(topology), _between(preset)
    if rate is None or other is None:  # one node: what is between nodes does not matter
        return 0.0
    if abs(rate / other - 1) > ABOUT:
        return math.inf
    return abs(math.log(rate / other)) + abs(math.log((latency + 1) / (slow + 1)))


def _between(topology: Topology) -> tuple[float | None, int]:
    """Return bytes/s out of a node, and the latency of a link there; None where there is one node."""
    if topology.num_ranks <= topology.ranks_per_node:
        return None, 0
    for cut in topology.routing.cuts():
        if cut.name == "node":
            links = cut.links_out[0]
            links = links[links >= 0]
            return float(topology.link_bandwidth[links].sum()), int(topology.link_latency[links].max())
    return None, 0


PROGRAMS = {
    "all_to_all": "direct",
    "broadcast": "tree",
    "reduce": "tree",
    "gather": "direct",
    "scatter": "direct",
}
"""What stands for the library's algorithm on links; a ring for all others."""


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
    rows: Sequence[MeasuredRow], network: NetworkDescription, advance: Advance, model: str | None = None
) -> tuple[list[Judged], list[Refusal]]:
    """Return what *network* predicts of each row, and those of which it says nothing.

    Args:
        rows: what was measured.
        network: the file that predicts.
        advance: is told which row is predicted.
        model: the only model to be asked; by default the best that answers.
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
    row: MeasuredRow, topology: Topology, model: str | None, calibration: Calibration | None
) -> Judged:
    """Return the prediction of the first model that answers.

    Raises:
        NotSupportedError: none does; the message has what each said.
    """
    places = _places(topology, row)
    topology, kind = with_kind(topology)
    borrowed = f"measured on {kind}" if kind else ""
    said = []
    for name in _models(row, topology) if model is None else (model,):
        try:
            run = _simulated(row, topology, places, name, calibration)
        except (CollectiveError, SimulationError, ValueError) as error:
            said.append(f"{name}: {error}")
            continue
        expected = interval_of_size(name, row.nbytes, run.seconds)
        of_model = None if expected is None else (expected.low, expected.high)
        return Judged(
            run.seconds,
            row.seconds,
            row,
            name,
            run.algorithm,
            _bottleneck(run),
            not kind and _seen(row, topology),
            "; ".join(filter(None, (borrowed if name == "measured" else "", run.beyond))),
            interval=run.interval_seconds or of_model,
        )
    raise NotSupportedError("; ".join(said))


def _models(row: MeasuredRow, topology: Topology) -> list[str]:
    """Return what may say something of *row*, the best first."""
    models = ["links"]
    if row.algorithm == "native" and topology.hardware is not None:
        models.insert(0, "nccl")
    if row.algorithm == "native" or any(row.system in own.systems for own in topology.measured):
        models.insert(0, "measured")
    return models


def _simulated(
    row: MeasuredRow, topology: Topology, places: list[int], model: str, calibration: Calibration | None
) -> Run:
    arguments: dict[str, Any] = {
        "nbytes": row.nbytes,
        "topology": topology,
        "collective": row.collective,
        "placement": places,
    }
    if model != "links":
        return simulate("auto", model=model, **arguments)  # type: ignore[arg-type]
    transport = default_transport_model(topology)
    if row.algorithm != "native" or transport != "nccl":
        costs = {} if calibration is None else calibration.software(row.algorithm).options()
        return simulate(row.algorithm, transport_model=transport, **costs, **arguments)
    if row.collective == "all_reduce" and row.num_nodes == 1 and topology.in_network_reduction:
        return simulate("nvls", **arguments)
    program = PROGRAMS.get(row.collective, "ring")
    channels = row.ranks_per_node if row.num_nodes > 1 and program == "ring" else 1
    return simulate(f"{program}:channels={channels}" if channels > 1 else program, **arguments)


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
