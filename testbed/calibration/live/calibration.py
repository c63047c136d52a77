"""A calibration: what TCP and the software make of a network, each constant with its interval.

A live calibration measures a network and finds the constants with which the simulator answers what was
measured.  They are of two kinds.  Those of the links (`LinkShares`) say which part of a link's rate flows
get, by how many share it and in which directions, and how long a message of a path of that class takes at
least.  Those of the software (`SoftwareCosts`) say what a message costs on either side, for our programs
and for the vendor's own collectives.

Both carry over to other networks of the same machines and the same software: to the rates and the wiring of a
network that nobody has measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError

from collectives.errors import NotSupportedError
from collectives.formats.json_document import parse_json, problems, read_bytes, spell
from sim.files.named import parse
from sim.topology.description import NetworkDescription
from testbed.errors import UsageError

SCHEMA = 1

LinkClass: TypeAlias = Literal["inside_node", "between_nodes", "trunk", "memory"]
"""Of a link: between ranks of a node, between a node and its switch, between switches; of a host's memory."""


MOST_REDUCTION = 1e12
"""Bytes/s from which on reducing counts as free."""


class Strict:
    """What has no unknown fields and no numbers without bounds where it is read."""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Estimate(Strict):
    """A constant and the interval in which it lies with 95 % confidence (bootstrap)."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """Return a constant that is known, not found."""
        return cls(value, value, value)


@dataclass(frozen=True)
class LinkShares(Strict):
    """What flows get of the links of a class.

    Attributes:
        rate: bytes/s of a link and direction, of which the shares are parts.
        latency: seconds of a whole path of this class, without software.
        one_way: the part of *rate* that one flow, two flows, … get together while no flow goes the other
            way; the last entry goes on.
        both_ways: the same while flows go the other way too.
    """

    rate: Estimate
    latency: Estimate
    one_way: tuple[Estimate, ...]
    both_ways: tuple[Estimate, ...]


@dataclass(frozen=True)
class SoftwareCosts(Strict):
    """What ranks add to the time of the network.

    Attributes:
        overhead: seconds of each message, on either side, before it starts.
        arrival_overhead: seconds from the arrival of a message's last byte until its receiver knows.
        reduction_bandwidth: bytes/s at which a rank reduces; None: nothing was found to be lost by it.
        call_overhead: seconds of a call, before its first step; None: not looked for.
        copy_bandwidth: bytes/s at which a rank copies around a program; None: not looked for, or at no cost.
    """

    overhead: Estimate
    arrival_overhead: Estimate
    reduction_bandwidth: Estimate | None = None
    call_overhead: Estimate | None = None
    copy_bandwidth: Estimate | None = None

    def options(self, unit: Literal["ps", "ns"] = "ps") -> dict[str, Any]:
        """Return the same as keyword arguments of `collectives.simulate`, those that were found."""
        whole = {"ps": 1e12, "ns": 1e9}[unit]
        return {
            name: f"{round(own['value'] * whole)}{unit}"
            if name.endswith("overhead")
            else max(1, round(own["value"]))
            for name, own in asdict(self).items()
            if own is not None
        }


@dataclass(frozen=True)
class Fit(Strict):
    """How well the model with the constants found answers what was measured, at one size.

    Attributes:
        nbytes: of the buffers.
        num_rows: measurements of that size.
        median_error: of |predicted / measured - 1|.
        worst_error: the same.
        spread: median of the measurements' own relative spread.
    """

    nbytes: int
    num_rows: int
    median_error: float
    worst_error: float
    spread: float


@dataclass(frozen=True)
class Origin(Strict):
    """What a calibration was got from.

    Attributes:
        measured: when the measurement began, in UTC, ISO 8601.
        transport: what moved the bytes.
        num_ranks: how many ranks took part.
        ranks_per_node: how many of them shared a node.
        ranks_per_rack: how many of them shared a switch with a trunk behind it; None: all, and no trunk.
        network: what was measured, in words; its rates if they were known beforehand.
        num_rows: measurements in the fit.
        smallest: bytes of the smallest buffer; beneath it the constants are carried on.
        largest: bytes of the largest buffer; above it the constants are carried on.
        seconds: that the measurement took.
        versions: of what was measured with.
    """

    measured: str
    transport: str
    num_ranks: int
    ranks_per_node: int
    network: str
    num_rows: int
    smallest: int
    largest: int
    seconds: float
    versions: Mapping[str, str | None]
    ranks_per_rack: int | None = None

    def beyond(self, *sizes: int) -> str:
        """Return how buffers of *sizes* bytes go beyond what was measured, in words; empty if none does."""
        words = []
        if min(sizes, default=self.smallest) < self.smallest:
            words.append(f"below {self.smallest} bytes, the least calibrated")
        if max(sizes, default=self.largest) > self.largest:
            words.append(f"above {self.largest} bytes, the most calibrated")
        return "; ".join(words)


@dataclass(frozen=True)
class CachedBuffers(Strict):
    """Which buffers move faster through the memory of a host.

    Attributes:
        nbytes: of all ranks together, up to which they do.
        speedup: how many times as fast.
        copy_speedup: how many times as fast a rank copies in its own memory.
    """

    nbytes: int
    speedup: float
    copy_speedup: float


@dataclass(frozen=True)
class Calibration(Strict):
    """Constants of a network and of the software on it.

    Attributes:
        name: for people.
        classes: of each class of links that was measured.
        programs: of our programs over the transport.
        native: of the vendor's own collectives; None: there are none over this transport.
        fits: how well the model holds, by size.
        origin: what the constants are from.
        cached: of a host, which buffers move faster; None: no difference was looked for.
    """

    name: str
    classes: Mapping[LinkClass, LinkShares]
    programs: SoftwareCosts
    fits: tuple[Fit, ...]
    origin: Origin
    native: SoftwareCosts | None = None
    cached: CachedBuffers | None = None

    def software(self, algorithm: str) -> SoftwareCosts:
        """Return what ranks add when they run *algorithm*; ``native`` is the vendor's own.

        Raises:
            NotSupportedError: there are no such collectives over this transport.
        """
        if algorithm != "native":
            return self.programs
        if self.native is None:
            raise NotSupportedError(f"{self.name}: over {self.origin.transport} nothing is native")
        return self.native

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as JSON types; `from_json` reads them."""
        content: dict[str, Any] = _CALIBRATION.dump_python(self, mode="json")
        return {"schema": SCHEMA, **content}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], source: str = "calibration") -> Calibration:
        """Return the calibration of which *content* is the `as_json`.

        Raises:
            UsageError: it is none; names *source* and the field.
        """
        if not isinstance(content, Mapping):
            raise UsageError(f"{source}: expected a calibration, got {spell(content)}")
        fields = dict(content)
        if (schema := fields.pop("schema", None)) != SCHEMA:
            raise UsageError(f"{source}: schema: expected {SCHEMA}, got {schema!r}")
        try:
            return _CALIBRATION.validate_python(fields)
        except ValidationError as error:
            raise UsageError(f"{source}: {problems(error)}") from None

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Return the calibration in the file at *path*: a network file or JSON by `testbed calibrate`.

        Raises:
            UsageError: it holds none; names the file and the field.
            OSError: it cannot be read.
        """
        given, file = read_bytes(path, UsageError), str(path)
        content: Any
        if path.suffix == ".toml":
            content = parse(given.decode(errors="replace"), file, UsageError)
        else:
            content = parse_json(given, file, UsageError)
        found = content.get("calibration", content) if isinstance(content, dict) else None
        if found is None:
            raise UsageError(f"{path}: expected a calibration, written by testbed calibrate")
        return cls.from_json(found, str(path))


def origin_of(network: NetworkDescription) -> Origin | None:
    """Return what the constants of *network* are from, if its file holds a calibration.

    Raises:
        UsageError: what it holds is none; names the file and the field.
    """
    held = network.fields.calibration
    return Calibration.from_json(held, network.name).origin if held else None


_CALIBRATION: TypeAdapter[Calibration] = TypeAdapter(Calibration)
