"""Inefficiencies of a training step besides the time of its messages, each a term that is counted by name.

    contention   while a collective is under way, computation takes longer, by what was measured on average;
                 ``contention:channels=24``: as much longer as multiprocessors are left to it
    late         the slowest of p ranks computes longer than the mean (`sim.files.late_ranks`)
    launches     each collective begins when NCCL has launched its kernel, where one carries out all its steps
    copies       gradients are copied into their buckets and back, at the memory's bandwidth
    optimizer    parameters are updated after the last wait, at the memory's bandwidth
    input        the host prepares the next batches beside the step, which ends no sooner:
                 ``input:time=80ms``, for all ranks of a full node

The constants are those of `sim.files.inefficiency_table`, with their sources; launches takes NCCL's own
(``baseLat`` in ``src/graph/tuning.cc``), and the memory's bandwidth is that of the device. A term that does
not apply is refused with the reason; ``all`` takes those that do, ``all`` and ``-late`` those but for one.

Assumed: contention is the same for every kernel, and of one direction: collectives take as long beside
computation as alone, for nobody has published how much longer (docs/modelling.md); the ranks' deviations are
independent, normal, and last a step or longer; an optimizer of a sharded strategy updates its part at the
end, as all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from collectives.errors import NotSupportedError
from collectives.program.channels import MAX_CHANNELS
from collectives.timing.assumptions import ALL, Assumptions
from collectives.timing.closed_forms import closed_form_of
from collectives.timing.formulas.nccl.constants import NCCL_2_30
from ddp.errors import UnknownInefficiencyError
from ddp.profiles import Profile
from ddp.step.communication import Choice
from sim.files.device_file import device_of, load_device
from sim.files.inefficiency_table import inefficiency_table
from sim.files.late_ranks import slowest_of
from sim.hardware import Device
from sim.scenario import Scenario
from sim.topology import Topology
from sim.units import SECOND, parse_time

_US = 10**6


@dataclass(frozen=True)
class Inefficiencies:
    """What a step loses, settled for a network and a profile; the default is nothing.

    Attributes:
        terms: that are counted.
        contention: how many times as long computation takes while a collective is under way.
        late: how many times as long the slowest rank computes as the mean.
        launch_ps: from a collective's launch until it begins.
        copy_bandwidth: bytes of gradients that are copied a second, one way; None: copying takes no time.
        optimizer_ps: what the optimizer takes for all parameters.
        input_ps: below which no step is, for the host prepares the next batches meanwhile.
        input_alone_ps: the same where one rank has its node for itself.
        without_device: terms that would be counted if anybody said on what ranks compute.
    """

    terms: tuple[str, ...] = ()
    contention: Fraction = Fraction(1)
    late: Fraction = Fraction(1)
    launch_ps: int = 0
    copy_bandwidth: int | None = None
    optimizer_ps: int = 0
    input_ps: int = 0
    input_alone_ps: int = 0
    without_device: tuple[str, ...] = ()

    def copy_ps(self, nbytes: int) -> int:
        """Return what copying so many bytes of gradients takes, one way."""
        return 0 if self.copy_bandwidth is None else -(-nbytes * SECOND // self.copy_bandwidth)


NO_INEFFICIENCIES = Inefficiencies()


class NoDeviceError(NotSupportedError):
    """A term follows from the device on which a rank computes, and nobody names one."""


@dataclass(frozen=True)
class Setting:
    """What a term is settled for.

    Attributes:
        scenario: the network, and what holds on it.
        profile: what a rank computes.
        assumed: what is counted of the communication otherwise.
        given_device: what a rank computes on; None: what the network's hardware says.
        algorithm: of all-reduce.
        parameters: of the term, by name, as they are written.
    """

    scenario: Scenario
    profile: Profile
    assumed: Assumptions
    given_device: Device | None
    algorithm: Choice
    parameters: Mapping[str, str]

    @property
    def topology(self) -> Topology:
        """The network."""
        return self.scenario.base

    @property
    def device(self) -> Device:
        """What a rank computes on.

        Raises:
            NoDeviceError: nobody says.
        """
        if self.given_device is not None:
            return self.given_device
        if self.topology.hardware is None:
            raise NoDeviceError(
                f"{self.topology.name} does not say on what its ranks compute; name a device, such as a100"
            )
        return load_device(device_of(self.topology.hardware)[0])


def _contention(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    if setting.assumed.software.transport.progress == "calls":
        raise NotSupportedError(
            "its constant is of collectives that go on by themselves on a GPU; over gloo they go on when "
            "their rank calls"
        )
    if "channels" not in setting.parameters:
        return replace(so_far, contention=inefficiency_table().contention)
    return replace(so_far, contention=_beside_channels(setting.parameters["channels"], setting.device))


def _beside_channels(channels: str, device: Device) -> Fraction:
    """Return how many times as long computation takes on the multiprocessors that *channels* leave it."""
    have = device.multiprocessors
    if have is None:
        raise NotSupportedError(f"{device.name} states no multiprocessors; leave out channels")
    each = inefficiency_table().multiprocessors_per_channel
    most = min(MAX_CHANNELS, (have - 1) // each)
    if not channels.isascii() or not channels.isdigit() or not 1 <= int(channels) <= most:
        raise NotSupportedError(
            f"channels: expected a whole number from 1 to {most} on {have} multiprocessors, got {channels!r}"
        )
    return Fraction(have, have - each * int(channels))


def _late(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    return replace(so_far, late=slowest_of(setting.topology.num_ranks))


def _launches(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    if setting.assumed.software.transport.progress == "calls":
        raise NotSupportedError("its constant is NCCL's; over gloo take overhead= of each message")
    if closed_form_of(setting.algorithm, setting.assumed.model) is not None:
        raise NotSupportedError("the closed form of a bucket's time has its launch in it")
    if setting.assumed.software.rank_overhead().step_ps:
        raise NotSupportedError("each step of the program has a launch of its own (step_overhead)")
    return replace(so_far, launch_ps=round(NCCL_2_30.base_latency["Ring"]["Simple"] * _US))


def _copies(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    each_way = Fraction(inefficiency_table().copy_accesses, 2)
    return replace(so_far, copy_bandwidth=int(setting.device.memory_bandwidth / each_way))


def _optimizer(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    nbytes = sum(4 * gradient.numel for gradient in setting.profile.gradients)  # states are kept in float32
    moved = nbytes * inefficiency_table().optimizer_accesses
    return replace(so_far, optimizer_ps=-(-moved * SECOND // setting.device.memory_bandwidth))


def _input(so_far: Inefficiencies, setting: Setting) -> Inefficiencies:
    if "time" not in setting.parameters:
        raise NotSupportedError("it needs the time in which a node prepares its batches: input:time=80ms")
    time_ps = parse_time(setting.parameters["time"], "inefficiencies: input: time")
    per_node = setting.topology.ranks_per_node
    busy = min(per_node, setting.topology.num_ranks)
    return replace(so_far, input_ps=time_ps * busy // per_node, input_alone_ps=time_ps // per_node)


TERMS: Mapping[str, Callable[[Inefficiencies, Setting], Inefficiencies]] = MappingProxyType(
    {
        "contention": _contention,
        "late": _late,
        "launches": _launches,
        "copies": _copies,
        "optimizer": _optimizer,
        "input": _input,
    }
)
"""The terms by name, in the order in which they are settled."""


def inefficiencies_on(
    assumed: Assumptions,
    scenario: Scenario,
    profile: Profile,
    algorithm: Choice,
) -> Inefficiencies:
    """Return what a step of *profile* in *scenario* loses by the terms that *assumed* names.

    Args:
        assumed: the terms, such as ``late`` or ``input:time=80ms``, where ``all`` is those that apply and
            ``-late`` is left out; and what is counted of the communication otherwise.
        scenario: the network, and what holds on it.
        profile: what a rank computes.
        algorithm: of all-reduce.

    Raises:
        UnknownInefficiencyError: there is no such term, or it has no such parameter.
        NotSupportedError: a term that was named does not apply; says why.
        DeviceFileError: there is no such device.
    """
    left_out = {_parsed(name[1:])[0] for name in assumed.software.inefficiencies if name.startswith("-")}
    wanted = dict(_parsed(name) for name in assumed.software.inefficiencies if not name.startswith("-"))
    if not wanted:
        return NO_INEFFICIENCIES
    own = load_device(assumed.device) if isinstance(assumed.device, str) else assumed.device
    so_far = NO_INEFFICIENCIES
    for name, term in TERMS.items():
        if name in left_out or (name not in wanted and ALL not in wanted):
            continue
        parameters = wanted.get(name, {})
        setting = Setting(scenario, profile, assumed, own, algorithm, parameters)
        try:
            so_far = term(so_far, setting)
        except NotSupportedError as error:
            if name in wanted:
                raise NotSupportedError(f"inefficiencies: {name}: {error}") from None
            if isinstance(error, NoDeviceError):
                so_far = replace(so_far, without_device=(*so_far.without_device, name))
            continue
        so_far = replace(so_far, terms=(*so_far.terms, name))
    return so_far if scenario.base.num_ranks > 1 else _alone(so_far)


def _alone(found: Inefficiencies) -> Inefficiencies:
    """Return what of those *found* one rank has that trains without others."""
    return Inefficiencies(
        found.terms,
        optimizer_ps=found.optimizer_ps,
        input_ps=found.input_alone_ps,
        without_device=found.without_device,
    )


def _parsed(text: str) -> tuple[str, dict[str, str]]:
    name, _, given = text.partition(":")
    parameters = dict(item.partition("=")[::2] for item in given.split(",") if item)
    if name != ALL and name not in TERMS:
        raise UnknownInefficiencyError(
            f"inefficiencies: unknown term {name!r}; expected all or one of {', '.join(TERMS)}"
        )
    own = {"input": ("time",), "contention": ("channels",)}.get(name, ())
    for parameter in parameters:
        if parameter not in own:
            has = f"it has {', '.join(own)}" if own else "it has none"
            raise UnknownInefficiencyError(f"inefficiencies: {name} has no parameter {parameter!r}; {has}")
    return name, parameters
