"""The networks that ship, held against the published collectives that ship, and against themselves.

Against measurements: the rows that no calibration has seen, of sizes left out and of systems left out.
Against themselves: NCCL's own model, the measured tables and the links of a file describe one machine, so
each model answers at every size, none below the floor of the links, and where several nodes were measured a
large ring on the links takes about what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.lab.published.one_node import NodeJudged, judge_node
from benchmarks.lab.published.split import calibrating_presets, judged_presets, published_split
from collectives.errors import NotSupportedError
from collectives.timing import simulate
from collectives.timing.formulas.measured import measured_at
from sim import load_network, preset_names
from sim.topology import Topology
from sim.topology.description import NetworkDescription
from testbed.calibration.judge.judging import Judged, Refusal, judge
from testbed.output.table import Advance, spell_size

SIZES = tuple(2**k for k in range(3, 35))
NODES = (1, 2, 4, 16)
RING_AGREES = 0.15
"""How far a large ring on the links may be from what was measured on more than two nodes."""


@dataclass(frozen=True)
class PresetJudged:
    """A preset beside measurements.

    Attributes:
        name: of the preset.
        same: rows of systems that it was calibrated on, of other sizes.
        other: rows of other systems of its kind.
        alternatives: the rows of other systems by NCCL's own model and by the links, as far as they answer.
        refused: rows of which it says nothing.
        contradictions: in which its models contradict each other, in words.
        gpus: whether it is of GPUs, so that a library such as NCCL was measured.
        node: the library's collectives inside a node, as far as they were measured, beside the default.
    """

    name: str
    same: tuple[Judged, ...]
    other: tuple[Judged, ...]
    alternatives: Mapping[str, tuple[Judged, ...]]
    refused: tuple[Refusal, ...]
    contradictions: tuple[str, ...]
    gpus: bool
    node: tuple[NodeJudged, ...] = ()


def judge_presets(advance: Advance) -> list[PresetJudged]:
    """Return every preset beside the rows that no calibration has seen, and beside itself."""
    split = published_split()
    others = [row for rows in split.other_systems.values() for row in rows]
    found = []
    for name in preset_names():
        network = load_network(name)
        calibrating, judging = calibrating_presets().get(name, []), judged_presets().get(name, [])
        same, lost = judge([row for row in split.other_sizes if row.system in calibrating], network, advance)
        kind = [row for row in others if row.system in judging]
        other, missed = judge(kind, network, advance)
        alternatives = {model: tuple(judge(kind, network, advance, model)[0]) for model in ("nccl", "links")}
        advance(f"{name}, against itself")
        found.append(
            PresetJudged(
                name,
                tuple(same),
                tuple(other),
                alternatives,
                (*lost, *missed),
                tuple(contradictions_of(network)),
                network.fields.hardware is not None,
                () if network.fields.hardware is None else tuple(judge_node(network, calibrating)),
            )
        )
    return found


def contradictions_of(network: NetworkDescription) -> Iterator[str]:
    """Yield in what the models of a network contradict each other, in words."""
    per_node = getattr(network.fields, "ranks_per_node", 1)
    if network.fields.hardware is not None:
        several = network.fields.hardware.several_nodes is not None
        for nodes in NODES if several else NODES[:1]:
            yield from _refusals(network.topology(nodes * per_node), "nccl", f"{nodes} nodes")
    for curve in network.fields.measured:
        if per_node not in (1, curve.ranks_per_node):
            continue
        topology = network.topology(curve.num_nodes * curve.ranks_per_node)
        if curve.collective == "all_reduce":
            yield from _refusals(topology, "measured", f"{curve.num_nodes} nodes, measured")
        if curve.num_nodes > 2 and curve.sizes[-1] >= 2**30 and curve.collective == "all_reduce":
            ring = simulate(f"ring:channels={per_node}", nbytes=curve.sizes[-1], topology=topology)
            measured = measured_at(curve.curve(), curve.sizes[-1])
            if abs(ring.seconds / measured - 1) > RING_AGREES:
                yield (
                    f"{spell_size(curve.sizes[-1])} on {curve.num_nodes} nodes: a ring on the links takes "
                    f"{ring.seconds / measured:.2f} times what was measured"
                )


def _refusals(topology: Topology, model: str, where: str) -> Iterator[str]:
    """Yield the first size that *model* refuses, if there is one."""
    for nbytes in SIZES:
        try:
            simulate("auto", nbytes=nbytes, topology=topology, model=model)  # type: ignore[arg-type]
        except NotSupportedError as error:
            yield f"{model}, {where}, {spell_size(nbytes)}: {error}"
            return
