"""Evidence for algorithms of the user's own: for which world sizes they were proved before being timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from collectives import NotSupportedError, resolve_algorithm
from collectives.catalogue import admission
from collectives.catalogue.admission import Evidence
from collectives.catalogue.measured_times import schedules_of
from collectives.catalogue.resolve import names_a_file
from collectives.catalogue.selectors import Choice, parse_auto
from collectives.program import Algorithm
from collectives.program.placement import on_nodes
from sim.topology import Topology

if TYPE_CHECKING:
    from collectives.virtual.world import Carried


def evidence_for(
    choices: Iterable[Choice], sizes: Iterable[tuple[int, int]], collective: str = "all_reduce"
) -> list[Evidence]:
    """Return what was proved of those *choices* that are not shipped, having proved it where they run.

    Args:
        choices: names as users write them, algorithms, or both by collective.
        sizes: numbers of ranks, each with how many of them share a node.
        collective: of names by themselves.

    Raises:
        ProgramError: see `collectives.catalogue.admission.evidence_of`.
    """
    wanted = list(sizes)
    named: list[tuple[Any, str]] = []
    for choice in choices:
        auto = parse_auto(choice)
        if auto is not None and auto.table is not None:
            named += [(own, own.collective) for own in schedules_of(auto.table)]
            continue
        named += (
            [(own, of) for of, own in choice.items()]
            if isinstance(choice, Mapping)
            else [(choice, collective)]
        )
    found: dict[Evidence, None] = {}
    resolved = [_resolved(name, of) for name, of in named]
    for own in (own for own in resolved if own is not None):
        for num_ranks, per_node in wanted:
            with suppress(NotSupportedError):  # said by who carries it out, if that is asked for
                one = admission.evidence_of(on_nodes(own, per_node, range(num_ranks)), num_ranks)
                found |= {one: None} if one is not None else {}
    return list(found)


def evidence_of_groups(carried: Iterable[Carried]) -> list[Evidence]:
    """Return what was proved of the programs that went in the groups of a run, before they did."""
    found = (admission.evidence_of(own.algorithm, len(own.hosts)) for own in carried)
    return [one for one in found if one is not None]


def nodes_of(*topologies: Topology) -> list[tuple[int, int]]:
    """Return the number of ranks of each of *topologies*, with how many of them share a node."""
    return [(topology.num_ranks, topology.ranks_per_node) for topology in topologies]


def as_json(evidence: Iterable[Evidence]) -> dict[str, Any]:
    """Return the field of a document that holds *evidence*; none where there is none."""
    rows = [asdict(one) for one in evidence]
    return {"proved": rows} if rows else {}


def _resolved(own: Any, collective: str) -> Algorithm | None:
    """Return the algorithm that *own* means if it may be one that is not shipped."""
    if isinstance(own, str) and not names_a_file(own):
        return None
    return resolve_algorithm(own, collective)
