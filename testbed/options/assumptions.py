"""Options of what a prediction assumes: one group for all commands, and a file of them.

By default a command assumes what a real run on the network would do (`collectives.timing.assumptions`);
each option here asks for something else by name.  Every JSON report has them as its object ``assumptions``,
and ``--assumptions FILE`` takes them from there again; an option beside it wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import typer

from collectives.formats.json_document import parse_json, read_bytes
from testbed.errors import UsageError
from testbed.options import FORMERLY
from testbed.options.arguments import split_names
from testbed.options.values import NAMED_PIPE, is_named_pipe

if TYPE_CHECKING:
    from collectives.timing import Assumptions
    from sim.topology import Topology

NONE = "none"
OF_NO_COLLECTIVE = ("all", NONE)
"""Inefficiencies that a file may name to commands about a collective, which has none by itself."""

KEYS = (
    "network", "algorithm", "ideal", "model", "transport_model", "protocol", "overhead", "arrival_overhead",
    "call_overhead", "step_overhead", "posting", "reduction_bandwidth", "copy_bandwidth", "block_bandwidth",
    "symmetric",
    "inefficiencies", "device", "jitter", "seed", "straggler", "fail_link", "degrade_link", "reroute",
)  # fmt: skip
"""Names of assumptions: those of the options, with underscores."""

ALSO = {"device": "compute", "model": "timing"}
"""Options that stand for an assumption where a command has none of its name."""


TransportModelName: TypeAlias = Literal["ideal", "gloo", "nccl", "shm"]
"""How a transport completes a step."""


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Let options of the command that are not given be those in the file at *path*."""
    if path is None or context.resilient_parsing:
        return path
    options = {own.name: own for own in context.command.params if own.name}
    defaults: dict[str, Any] = {}
    for key, value in _assumptions_in(path).items():
        if value in (None, False, [], ""):
            continue
        name = key if key in options else ALSO.get(key, key)
        if name not in options and (key == "seed" or (key == "inefficiencies" and value in OF_NO_COLLECTIVE)):
            continue  # of nothing that is random here, or that could be lost
        if name not in options:
            raise typer.BadParameter(f"{path}: {key} = {value!r} is nothing that {context.info_name} assumes")
        listed = value if isinstance(value, list) else [value]
        if not getattr(options[name], "multiple", False) and getattr(options[name], "nargs", 1) == 1:
            if len(listed) > 1:
                raise typer.BadParameter(f"{path}: {key}: {context.info_name} expects one, got {len(listed)}")
            defaults[name] = listed[0]
        else:
            defaults[name] = listed
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _assumptions_in(path: Path) -> dict[str, Any]:
    """Return the assumptions in the file at *path*: a report of a command, or the object itself."""
    if is_named_pipe(str(path)):
        raise typer.BadParameter(f"{path}: {NAMED_PIPE}")
    try:
        found = parse_json(read_bytes(path, typer.BadParameter), str(path), typer.BadParameter)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
    if isinstance(found, dict):
        found = found.get("assumptions", found)
    expected = "expected a report with --json of this version, or its object assumptions"
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{path}: {expected}")
    found = {FORMERLY.get(key, key): value for key, value in found.items()}
    for key, value in found.items():
        if key not in (*KEYS, "on"):
            raise typer.BadParameter(f"{path}: there is no assumption {key!r}; {expected}")
        words = value if isinstance(value, list) else [] if value is None else [value]
        if key != "on" and not all(isinstance(word, str | int | float) for word in words):
            raise typer.BadParameter(f"{path}: {key}: expected a value or a list of some, got {value!r:.80}")
    terms = found.get("inefficiencies")
    if isinstance(terms, list):
        found["inefficiencies"] = ",".join(map(str, terms)) or NONE  # which a list without any says
    return {key: value for key, value in found.items() if key != "on"}


Inefficiencies: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="What a step loses besides, separated by commas: contention (of NCCL's channels: "
        "contention:channels=24), late, launches, copies, optimizer, input:time=80ms; all: those that apply; "
        "none.  [all; none with --ideal]",
    ),
]
OnDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME|FILE",
        help="On which a rank computes, for --inefficiencies; by default that of the network's hardware.",
    ),
]
Ideal: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ideal", help="Count nothing but the links, and what other options ask for; else as in a real run."
    ),
]
AssumptionsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--assumptions",
        metavar="FILE",
        callback=_read,
        is_eager=True,
        help="Assume what another report does: its JSON, or the object assumptions in it. Options win.",
    ),
]


def inefficiencies_of(text: str | None) -> list[str] | None:
    """Return the terms that *text* names; None: nobody has named any.

    Raises:
        UsageError: it is empty.
    """
    if text is None:
        return None
    if not text.strip():
        raise UsageError(f"--inefficiencies {text!r}: expected terms with a comma between them, all or none")
    return [own for own in text.split(",") if own not in ("", NONE)]


@dataclass(frozen=True)
class AssumptionOptions:
    """Options for what is counted besides the links: by default, as in a real run.

    Attributes:
        model: links: messages share links; nccl: what NCCL expects; measured: by the [[measured]] of the
            network's file; library: one of these two of NCCL's own choice (nccl, native), and links of all
            others.  [library where the network names GPUs and no other transport is named, else links]
        transport_model: How a step of a collective is completed (docs/modelling.md): by default as over what
            would really run, nccl where the network names its hardware, shm on one host, else gloo.
        protocol: NCCL protocol, which takes bandwidth from links and adds latency.
        overhead: Software overhead of each message, on either side, such as 1us.
        arrival_overhead: From a message's last byte until its receiver knows, such as 50us.
        step_overhead: For the launch of each step of a program, where NCCL carries it out: by default what a
            group call takes NCCL.
        posting: Of each message of a program that leaves a node, on its sender, likewise.
        reduction_bandwidth: At which a rank reduces, such as 200GB/s; else at no cost.
        symmetric: Buffers are registered as windows, so that NCCL takes its symmetric kernels where it has
            some.
    """

    PANEL: ClassVar = "Software"

    model: Annotated[
        Literal["links", "nccl", "measured", "library"] | None, typer.Option("--model", show_default=False)
    ] = None
    transport_model: TransportModelName | None = None
    protocol: Literal["LL", "LL128", "Simple"] | None = None
    overhead: Annotated[str | None, typer.Option(metavar="TIME")] = None
    arrival_overhead: Annotated[str | None, typer.Option(metavar="TIME")] = None
    step_overhead: Annotated[str | None, typer.Option(metavar="TIME", show_default=False)] = None
    posting: Annotated[str | None, typer.Option(metavar="TIME", show_default=False)] = None
    reduction_bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None
    symmetric: Annotated[bool, typer.Option("--symmetric")] = False
    ideal: Ideal = False
    assumptions: AssumptionsFile = None

    @property
    def asked(self) -> dict[str, Any]:
        """What is asked for by name; None where it is not."""
        given = {name: value for name, value in vars(self).items() if name != "assumptions"}
        return {name: None if value is False else value for name, value in given.items()}

    def on(self, topology: Topology, *, on_gpu: bool = False) -> Assumptions:
        """Return what they ask to be counted on *topology*; *on_gpu*: ranks of a run compute on a GPU."""
        from collectives.timing import Assumptions

        counted = {name: value for name, value in self.asked.items() if name != "ideal"}
        counted["inefficiencies"] = inefficiencies_of(counted.get("inefficiencies"))
        given = Assumptions.ideal() if self.ideal else None
        return Assumptions.on(topology, topology.name, given, counted, on_gpu=on_gpu)


@dataclass(frozen=True)
class CollectiveAssumptionOptions(AssumptionOptions):
    """The same of a collective by itself.

    Attributes:
        call_overhead: Of a call on each rank, before its first step, such as 100us.
        copy_bandwidth: At which a rank copies what calls copy around programs; else at no cost.
        block_bandwidth: Of a thread block of FILE.xml, such as 22GB/s: by default what NCCL's model says of
            the GPU's, 20GB/s of an unknown one; with --ideal none counts.
    """

    call_overhead: Annotated[str | None, typer.Option(metavar="TIME")] = None
    copy_bandwidth: Annotated[str | None, typer.Option(metavar="RATE")] = None
    block_bandwidth: Annotated[str | None, typer.Option(metavar="RATE", show_default=False)] = None


@dataclass(frozen=True)
class RunAssumptionOptions(AssumptionOptions):
    """The same of a script's run.

    Attributes:
        inefficiencies: late: kernels of a GPU take as long as on the slowest of all ranks; none.  [late; none
            with --ideal]
    """

    inefficiencies: Annotated[Literal["late", "all", "none"] | None, typer.Option(show_default=False)] = None


@dataclass(frozen=True)
class StepAssumptionOptions(AssumptionOptions):
    """The same of a training step."""

    inefficiencies: Inefficiencies = None
    device: OnDevice = None


def assumptions_json(
    networks: Sequence[str], algorithm: str | None, asked: Mapping[str, Any], on: Mapping[str, Assumptions]
) -> dict[str, Any]:
    """Return the object ``assumptions`` of a report: what is asked for, and what that comes to.

    Args:
        networks: by the names under which they were asked for.
        algorithm: that was asked for; None: by default.
        asked: the other assumptions by name, None where there are defaults.
        on: by network, what holds there.
    """
    own: dict[str, Any] = {**asked, "algorithm": algorithm, "ideal": bool(asked.get("ideal"))}
    own["network"] = networks[0] if len(networks) == 1 else list(networks)
    settled = {name: _settled(one, algorithm or one.algorithm, asked) for name, one in on.items()}
    return {**{key: own.get(key) for key in KEYS}, "on": settled}


def _settled(one: Assumptions, algorithm: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what assumptions come to where collectives go by *algorithm*; of launches those that count."""
    by_program = one.model in ("links", "library")
    counts = one.software.of_all(split_names(algorithm)) if by_program else one.software.in_one_kernel()
    is_once = counts.call_overhead != one.software.call_overhead
    return {
        "algorithm": algorithm,
        "model": one.model,
        "transport_model": one.software.transport.name,
        "step_overhead": one.software.step_overhead if is_once else counts.step_overhead,
        "posting": counts.posting,
        "inefficiencies": list(one.software.inefficiencies),
        **({"device": one.device, "device_for": one.device_for} if "device" in asked else {}),
    }
