"""Draws: runs of a script, or of programs, each made from a seed and what may be drawn, and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from collectives import Algorithm, resolve_algorithm
from collectives.program.placement import on_nodes
from sim import load_network
from sim.topology import Topology
from testbed.fuzzing.faults import FAULTS, Calm, Drawn, Fault, condition_of, draw_faults
from testbed.options.arguments import computes_on_gpu

if TYPE_CHECKING:
    from collectives.virtual.faults import VirtualCondition

NETWORKS = ("switch-100g", "ethernet-10g", "dgx-h100")
"""One switch, one with long latencies and software in the way, and NVLink, by default."""
ALGORITHMS = ("ring", "recursive_doubling", "tree", "native")
TRANSPORT_MODELS = ("ideal", "gloo", "nccl")
STRATEGIES = ("after_backward", "per_parameter", "wait_free")
"""Those of our DDP that go with any optimizer, and do not go by measured times."""
BUCKET_CAPS = (0.0005, 0.002, 1.0)
"""MiB; the default, which scripts that give none get else, holds a small model whole."""


@dataclass(frozen=True)
class Space:
    """What runs of a script are drawn from.

    Attributes:
        script: its path.
        argv: its arguments.
        ranks: numbers of ranks.
        networks: names of presets, or files.
        algorithms: of all-reduce.
        transport_models: how steps are completed.
        computes: models of computation, as ``testbed run --compute`` takes them.
        faults: kinds of faults.
        is_module: *script* is the name of a module.
    """

    script: str
    argv: tuple[str, ...] = ()
    ranks: tuple[int, ...] = (2, 3, 4)
    networks: tuple[str, ...] = NETWORKS
    algorithms: tuple[str, ...] = ALGORITHMS
    transport_models: tuple[str, ...] = TRANSPORT_MODELS
    computes: tuple[str, ...] = ("none",)
    faults: tuple[str, ...] = tuple(FAULTS)
    is_module: bool = False


@dataclass(frozen=True)
class Draw(Drawn):
    """A run of a script.

    Attributes:
        seed: from which it was drawn.
        ranks: how many.
        network: a preset, or a file.
        algorithm: of all-reduce.
        transport_model: how steps are completed.
        compute: how computation takes time.
        bucket_cap_mb: of DDP, torch's or ours, where the script gives none; None: its default.
        bucket_views: whether gradients are views of buckets, where the script does not say so.
        strategy: of our DDP, where the script gives none; None: its default.
        order: seed of the order in which ranks go on that can at the same instant; None: the least first.
        faults: what happens to it.
        argv: arguments of the script, where they are not those of its space, but smaller.
    """

    seed: int
    ranks: int
    network: str
    algorithm: str
    transport_model: str = "ideal"
    compute: str = "none"
    bucket_cap_mb: float | None = None
    bucket_views: bool = False
    strategy: str | None = None
    order: int | None = None
    faults: tuple[Fault, ...] = field(default=())
    argv: tuple[str, ...] | None = None

    @property
    def without_faults(self) -> Draw:
        """The same run, but nothing happens to it, and its order is the usual one."""
        return replace(self, seed=0, order=None, faults=())

    @property
    def at_any_speed(self) -> bool:
        """Whether messages take no time, so that any order may come up; not beside what is timed."""
        return self.order is not None and not self.faults and self.compute == "none"

    def conditions(self, calm: Calm) -> tuple[VirtualCondition, ...]:
        """Return its faults as conditions, given the run without them."""
        return tuple(condition_of(fault, calm) for fault in self.faults)


def draw(seed: int, space: Space) -> Draw:
    """Return the run that *seed* means in *space*; the same for ever."""
    random = Random(f"run {seed}")
    ranks = random.choice(space.ranks)
    network, algorithm = random.choice(space.networks), random.choice(space.algorithms)
    transport_model = _mostly(random, space.transport_models)
    compute = _mostly(random, space.computes)
    if computes_on_gpu(compute):  # collectives go on by themselves there, on streams
        algorithm = "ring" if algorithm == "native" else algorithm
        transport_model = "nccl" if transport_model == "gloo" else transport_model
    chosen = Draw(
        seed,
        ranks,
        network,
        algorithm,
        "gloo" if algorithm == "native" else transport_model,  # known for Gloo alone
        compute,
        bucket_cap_mb=random.choice((None, *BUCKET_CAPS)),
        bucket_views=random.random() < 0.3,
        strategy=random.choice((None, *STRATEGIES)),
        order=random.randrange(1 << 16) if random.random() < 0.7 else None,
    )
    faults = draw_faults(space.faults, (0, 1, 1, 1, 2, 2, 3, 4), ranks, random) if ranks > 1 else ()
    return replace(chosen, faults=faults)


def _mostly(random: Random, choices: Sequence[str]) -> str:
    """Return the first of *choices* every other time, else any."""
    return choices[0] if random.random() < 0.5 else random.choice(choices)


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
        network = _first_alike(self.algorithm, self.collective, self.network, self.ranks)
        return replace(self, seed=0, network=network, transport_model="ideal", order=None, faults=())


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


@functools.lru_cache(maxsize=1 << 12)
def _first_alike(name: str, collective: str, network: str, ranks: int) -> str:
    """Return a network on which the programs are the same: nodes may make others of them."""
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
