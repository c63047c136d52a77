"""Draws of programs: collectives without a script, each made from a seed and from what may be drawn."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from random import Random

from collectives import Algorithm, resolve_algorithm
from collectives.program.placement import on_nodes
from sim import load_network
from sim.topology import Topology
from testbed.fuzzing.faults import Drawn, Fault, draw_faults

FAULTS_OF_PROGRAMS = ("delay", "slow", "jitter", "degrade", "traffic", "kill", "cut")
COUNTS = (1, 3, 8, 17, 64)
"""Elements of a rank's buffer, or of each part of it: fewer than chunks, odd numbers, and more."""
PLAIN_NETWORK = "switch-100g"


@dataclass(frozen=True)
class ProgramSpace:
    """What runs of programs are drawn from.

    Attributes:
        algorithms: each with its collective.
        ranks: numbers of ranks.
        networks: names of presets, or files.
        transport_models: how steps are completed.
        faults: kinds of faults.
    """

    algorithms: tuple[tuple[str, str], ...]
    ranks: tuple[int, ...] = (2, 3, 4, 5, 6)
    networks: tuple[str, ...] = ("switch-100g", "dgx-h100")
    transport_models: tuple[str, ...] = ("ideal", "gloo", "nccl")
    faults: tuple[str, ...] = FAULTS_OF_PROGRAMS


@dataclass(frozen=True)
class ProgramDraw(Drawn):
    """A run of one or two collectives.

    Attributes:
        seed: from which it was drawn.
        ranks: how many.
        algorithm: its name, or ``FILE.py:FUNCTION``.
        collective: what it carries out.
        calls: how many times, one after the other on each rank.
        count: elements of the buffer, or of each of its equal parts.
        network: a preset, or a file.
        transport_model: how steps are completed.
        order: seed of the order in which ranks begin; None: the least first.
        faults: what happens to it.
    """

    seed: int
    ranks: int
    algorithm: str
    collective: str
    calls: int
    count: int
    network: str
    transport_model: str
    order: int | None = None
    faults: tuple[Fault, ...] = field(default=())

    @property
    def plain(self) -> ProgramDraw:
        """The same programs where nothing happens, in the usual order, and steps wait for nothing."""
        return ProgramDraw(
            0, self.ranks, self.algorithm, self.collective, self.calls, self.count, _network(self), "ideal"
        )


def draw_program(seed: int, space: ProgramSpace) -> ProgramDraw:
    """Return the run that *seed* means in *space*; the same for ever."""
    random = Random(seed)
    ranks = random.choice(space.ranks)
    algorithm, collective = random.choice(space.algorithms)
    drawn = ProgramDraw(
        seed,
        ranks,
        algorithm,
        collective,
        random.choice((1, 1, 1, 2)),
        random.choice(COUNTS),
        random.choice(space.networks),
        random.choice(space.transport_models),
        random.randrange(1 << 16) if random.random() < 0.7 else None,
    )
    return replace(drawn, faults=draw_faults(space.faults, (0, 1, 1, 1, 2, 3), ranks, random))


def _network(draw: ProgramDraw) -> str:
    """Return a network on which the programs of *draw* are the same: nodes may make others of them."""
    return _first_alike(draw.algorithm, draw.collective, draw.network, draw.ranks)


@functools.lru_cache(maxsize=1 << 12)
def _first_alike(name: str, collective: str, network: str, ranks: int) -> str:
    own, plain = (_algorithm(name, collective, one, ranks) for one in (network, PLAIN_NETWORK))
    return PLAIN_NETWORK if own == plain else network


@functools.lru_cache(maxsize=256)
def topology(network: str, ranks: int) -> Topology:
    """Return the *network* of that name with so many *ranks*."""
    return load_network(network).topology(ranks)


@functools.lru_cache(maxsize=1 << 12)
def _algorithm(name: str, collective: str, network: str, ranks: int) -> Algorithm:
    per_node = topology(network, ranks).ranks_per_node
    return on_nodes(resolve_algorithm(name, collective), per_node, tuple(range(ranks)))


def algorithm_of(draw: ProgramDraw) -> Algorithm:
    """Return the program of every rank of *draw*, which knows who shares a node."""
    return _algorithm(draw.algorithm, draw.collective, draw.network, draw.ranks)
