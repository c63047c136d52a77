"""Points of a question: one model on one network by one number of ranks, with everything else settled."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal

from collectives.timing import default_model
from collectives.timing.assumptions import ALL
from sim import load_network
from sim.topology.description import NetworkDescription
from testbed.errors import UsageError
from testbed.planning.question import Question, ScriptTable, Value, Values

Kind = Literal["step", "collective", "script"]
Settings = tuple[tuple[str, Value], ...]
NODES = "nodes"
"""What ``set`` may say of any network whose nodes have several ranks, besides its fields."""


@dataclass(frozen=True)
class Point:
    """What one row answers: inputs alone, all of them plain values.

    Attributes:
        kind: a training ``step`` by a profile, a ``collective`` or a ``script``.
        model: a profile, a collective or a script.
        network: a preset or a file.
        label: of the network, for people.
        overrides: fields of the network that have another value.
        ranks: world size.
        fewest: the ranks whose batch all have together, with strong scaling; 0 with weak.
        strategy: of overlap, of a step.
        bucket_cap_mb: of a step.
        algorithm: ``default`` or a name.
        nbytes: of a collective, as nccl-tests counts it.
        arguments: of a script.
        layout: the axes of a script, by name.
        compute: what a script's ranks compute on.
        timing: ``links``, by messages on links; or ``library``, by what was measured of NCCL on such a
            network or by what NCCL itself expects.
        transport: how steps of programs are completed; ``auto``: as over what would really run.
        inefficiencies: what a step loses besides.
        software: what else code adds to the wire, by the names of `collectives.timing.assumptions.Counted`.
        ideal: whether nothing counts but links, and what is asked for besides; ports then lose nothing.
        finds_link: whether the fullest link of a step is looked for.
        device: on which a rank computes; None: as the network's hardware says.
        tokens_per_rank: in a step.
        price_per_gpu_hour: of one rank; None: not known.
    """

    kind: Kind
    model: str
    network: str = ""
    label: str = ""
    ranks: int = 0
    overrides: Settings = ()
    fewest: int = 0
    strategy: str = ""
    bucket_cap_mb: float = 0.0
    algorithm: str = "default"
    nbytes: int = 0
    arguments: tuple[str, ...] = ()
    layout: Settings = ()
    compute: str = ""
    timing: str = "links"
    transport: str = "auto"
    inefficiencies: tuple[str, ...] = ()
    software: Settings = ()
    ideal: bool = False
    finds_link: bool = True
    device: str | None = None
    tokens_per_rank: float | None = None
    price_per_gpu_hour: float | None = None

    @property
    def scaling(self) -> str:
        """``weak`` or ``strong``."""
        return "strong" if self.fewest else "weak"

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens of a step on all ranks; None where nobody says."""
        if self.tokens_per_rank is None:
            return None
        return self.tokens_per_rank * (self.fewest or self.ranks)

    def as_json(self) -> dict[str, Any]:
        """Return the inputs as JSON types, those that this kind of point has."""
        own: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        own |= {"overrides": dict(self.overrides), "layout": dict(self.layout), "scaling": self.scaling}
        own["arguments"] = list(self.arguments)
        for name in _FOREIGN[self.kind]:
            del own[name]
        for name in ("fewest", "inefficiencies", "software", "ideal", "finds_link"):
            del own[name]
        return own


_FOREIGN: Mapping[Kind, tuple[str, ...]] = {
    "step": ("nbytes", "arguments", "layout", "compute"),
    "collective": ("strategy", "bucket_cap_mb", "arguments", "layout", "compute", "device", "scaling"),
    "script": ("strategy", "bucket_cap_mb", "nbytes", "device", "scaling"),
}
"""Inputs that a kind of point does not have."""


def description_of(network: str, overrides: Settings = ()) -> NetworkDescription:
    """Return the network of that name or file, with *overrides*."""
    with suppress(OSError):
        return _described(network, overrides, os.stat(network).st_mtime_ns)
    return _described(network, overrides, 0)


@lru_cache(maxsize=256)
def _described(network: str, overrides: Settings, changed_ns: int) -> NetworkDescription:
    """Return the same; read again when its file has changed."""
    description = load_network(network)
    return description.overridden(dict(overrides)) if overrides else description


@dataclass(frozen=True)
class _Design:
    """A network of a question, with one value of each axis."""

    network: str
    label: str
    overrides: Settings
    num_nodes: int | None
    price: float | None

    def ranks(self, asked: Sequence[int] | None) -> list[int]:
        """Return the world sizes of its points."""
        description = description_of(self.network, self.overrides)
        if self.num_nodes is not None:
            return [self.num_nodes * getattr(description.fields, "ranks_per_node", 1)]
        if description.num_ranks is not None:
            wrong = [number for number in asked or () if number != description.num_ranks]
            if wrong:
                raise UsageError(
                    f"{self.network} has {description.num_ranks} ranks, as its file says, not {wrong[0]}; "
                    "leave ranks out, or take num_ranks out of the file"
                )
            return [description.num_ranks]
        if not asked:
            raise UsageError(
                f"{self.network} is a network of any size: say with ranks (--ranks 64,256) or nodes "
                "(--set nodes=32) how many"
            )
        return list(asked)


def points_of(asked: Question) -> list[Point]:
    """Return the points of a question, in the order models, networks, ranks, scaling, and so on.

    Raises:
        UsageError, NetworkFileError: a network, an override or a name that cannot be.
    """
    designs = list(_designs(asked))
    points: list[Point] = []
    for model in (*_steps(asked), *_scripts(asked), *_collectives(asked)):
        for design in designs:
            sizes = design.ranks(asked.ranks)
            scalings = asked.scaling if model.kind == "step" else ["weak"]
            for ranks, scaling in product(sizes, scalings):
                points.append(
                    replace(
                        model,
                        network=design.network,
                        label=design.label,
                        overrides=design.overrides,
                        ranks=ranks,
                        fewest=min(sizes) if scaling == "strong" else 0,
                        timing=_timing(asked, design),
                        ideal=asked.ideal,
                        price_per_gpu_hour=design.price,
                    )
                )
    return points


def _timing(asked: Question, design: _Design) -> str:
    """Return the model of time on a network: the library's only where it speaks of that, as it is."""
    if asked.timing != "auto":
        return "library" if asked.timing == "vendor" else asked.timing
    hardware = None if design.overrides else description_of(design.network).fields.hardware
    return model_counted(hardware, None if asked.transport == "auto" else asked.transport, asked.ideal)


def model_counted(hardware: object | None, transport: str | None, ideal: bool) -> str:
    """Return the model of time where none is asked for: on *ideal* networks that of links."""
    return "links" if ideal else default_model(hardware, transport)


def inefficiencies_counted(asked: Sequence[str] | None, ideal: bool) -> tuple[str, ...]:
    """Return what a step loses where so much is *asked* for: by default all, on *ideal* networks nothing."""
    if asked is None:
        return () if ideal else (ALL,)
    return tuple(asked)


def _designs(asked: Question) -> Iterator[_Design]:
    called = Counter(description_of(table.name).name for table in asked.networks)
    for table in asked.networks:
        axes = {**asked.set_, **table.set_}
        names = list(axes)
        for values in product(*(_listed(axes[name]) for name in names)):
            settings = dict(zip(names, values, strict=True))
            nodes = settings.pop(NODES, None)
            varied = {
                name: value
                for name, value in zip(names, values, strict=True)
                if name != NODES and (len(_listed(axes[name])) > 1 or not table.label)
            }
            short = description_of(table.name).name
            own = table.label or (short if called[short] == 1 else table.name)
            label = " ".join([own, *(f"{name}={value}" for name, value in varied.items())])
            yield _Design(
                table.name,
                label,
                tuple(sorted(settings.items())),
                None if nodes is None else _count(nodes),
                table.price_per_gpu_hour,
            )


def _count(value: Value) -> int:
    text = str(value)
    if not text.isdecimal() or not 1 <= int(text) <= 2**20:
        raise UsageError(f"set {NODES}={text[:40]}: expected a number from 1 to {2**20}")
    return int(text)


def _listed(values: Values) -> list[Value]:
    return values if isinstance(values, list) else [values]


def _steps(asked: Question) -> Iterator[Point]:
    axes = product(asked.profiles, asked.strategies, asked.bucket_caps_mb, asked.algorithms)
    for profile, strategy, cap, algorithm in axes:
        yield Point(
            "step",
            profile.name,
            strategy=strategy,
            bucket_cap_mb=cap,
            algorithm=algorithm,
            transport=asked.transport,
            inefficiencies=inefficiencies_counted(asked.inefficiencies, asked.ideal),
            device=asked.device,
            tokens_per_rank=profile.tokens_per_rank,
        )


def _collectives(asked: Question) -> Iterator[Point]:
    for table in asked.collectives:
        for algorithm, nbytes in product(table.algorithms, table.sizes):
            yield Point(
                "collective",
                table.name.replace("-", "_"),
                algorithm=algorithm,
                nbytes=nbytes,
                transport=asked.transport,
            )


def _scripts(asked: Question) -> Iterator[Point]:
    for table in asked.scripts:
        for values in product(*table.axes.values()):
            layout = dict(zip(table.axes, values, strict=True))
            arguments = _filled_in(table, layout)
            for algorithm in asked.algorithms:
                yield Point(
                    "script",
                    table.file,
                    algorithm=algorithm,
                    arguments=tuple(shlex.split(arguments)),
                    layout=tuple(layout.items()),
                    compute=table.compute,
                    transport=asked.transport,
                    tokens_per_rank=table.tokens_per_rank,
                )


def _filled_in(table: ScriptTable, layout: Mapping[str, Value]) -> str:
    """Return the arguments of a script, with the values of *layout* where its axes are named."""

    def value(named: re.Match[str]) -> str:
        if named[1] not in layout:
            raise UsageError(
                f"script {table.file}: arguments: {named[0]} is none of its axes, "
                f"{', '.join(layout) or 'of which it has none'}"
            )
        return str(layout[named[1]])

    return re.sub(r"\{(\w+)\}", value, table.arguments)
