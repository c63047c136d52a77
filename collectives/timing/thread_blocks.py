"""Thread blocks in the time of a program that a file of MSCCL XML states.

A thread block copies at no more than a rate of its own, whatever the links carry.  What it sends or receives
crosses a link of that bandwidth that it has to itself; what it sends on in the step in which it receives it
crosses none a second time, as MSCCL's fused steps move each byte once.  So a file of eight channels, whose
connections have eight thread blocks, may be eight times as fast as one of one channel.

The rate is what NCCL's model says that one channel, which one thread block carries, reaches by LL128: 20 GB/s
on Volta and Ampere, 36.7 on Hopper, 40 on Blackwell (``perChMaxRingLL128Bws``, ``src/graph/tuning.cc``); of
other GPUs, of which it says nothing, 20.  ``block_bandwidth`` says otherwise.  The file's protocol is that of
the call, unless another is asked for (`collectives.timing.formulas.nccl.protocol`), and takes as much of a
thread block as of a link.  Links alone (transport model ``ideal``) leave all of it out, and `LEFT_OUT` is
left out always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar, get_args

from collectives.catalogue.resolve import names_msccl_xml, resolve_algorithm
from collectives.errors import NotSupportedError
from collectives.program import Algorithm
from collectives.program.thread_blocks import ThreadBlocks
from collectives.timing.assumptions import Software
from collectives.timing.formulas.nccl.constants import NCCL_2_30, NcclProtocol
from collectives.timing.formulas.nccl.protocol import PAYLOAD, with_protocol
from sim.scenario import Scenario
from sim.topology import Topology
from sim.topology.routing import Crossed, FurtherLinks
from sim.units import format_bandwidth, parse_bandwidth

T = TypeVar("T")

USUAL_BANDWIDTH = 20 * 10**9
"""Bytes/s of a thread block on GPUs of which NCCL's model says nothing."""

LEFT_OUT = (
    "that thread blocks run ahead of each other (ranks take whole steps) and cut large buffers into pieces "
    "that overlap, and what they copy and reduce on their own GPU"
)
"""What the time of a file leaves out, in words."""


def block_bandwidth(software: Software, topology: Topology) -> int | None:
    """Return the bytes/s of a thread block; None: thread blocks are not counted."""
    if software.block_bandwidth is not None:
        return parse_bandwidth(software.block_bandwidth, "block_bandwidth")
    if software.transport.name == "ideal":
        return None
    if topology.hardware is None:
        return USUAL_BANDWIDTH
    return round(NCCL_2_30.ring_ll128_ceiling[topology.hardware.generation][0] * 10**9)


def of_its_file(algorithm: T, collective: str = "all_reduce") -> T | Algorithm:
    """Return the program that *algorithm* names, if it is a file of MSCCL XML; else *algorithm*."""
    if isinstance(algorithm, str) and names_msccl_xml(algorithm):
        return resolve_algorithm(algorithm, collective)
    return algorithm


def _blocks(algorithm: object) -> ThreadBlocks | None:
    return algorithm.thread_blocks if isinstance(algorithm, Algorithm) else None


def protocol_of(algorithm: object, software: Software, topology: Topology) -> NcclProtocol | None:
    """Return the protocol of a call: that which is asked for, else its file's, where it can be followed."""
    blocks = _blocks(algorithm)
    if software.protocol is None and blocks is not None and block_bandwidth(software, topology) is not None:
        protocol: NcclProtocol
        for protocol in get_args(NcclProtocol):
            with suppress(NotSupportedError):
                if protocol == blocks.protocol and with_protocol(topology, protocol):
                    return protocol
    return software.protocol


def left_out_of_a_run(choice: object) -> str:
    """Return what the time of a script's run leaves out of files of MSCCL XML in *choice*, in words."""
    for own in choice.values() if isinstance(choice, Mapping) else [choice]:
        blocks = _blocks(of_its_file(own))
        if blocks is not None:
            return (
                f"{own}: its {blocks.num_channels} channels, thread blocks and protocol {blocks.protocol} "
                "are left out of a run's time, as messages share links alone; `testbed simulate` counts them"
            )
    return ""


def through_blocks(
    scenario: Scenario,
    algorithm: object,
    hosts: Sequence[int],
    software: Software,
) -> tuple[Scenario, str]:
    """Return *scenario* with the thread blocks of *algorithm*, and in words what of its file is counted.

    Args:
        scenario: of whose network `protocol_of` has been settled.
        algorithm: one without thread blocks leaves all as it is.
        hosts: the place of each rank.
        software: what is asked for.
    """
    blocks = _blocks(algorithm)
    if blocks is None:
        return scenario, ""
    bandwidth = block_bandwidth(software, scenario.base)
    channels = f"{blocks.num_channels} channel{'s'[: blocks.num_channels != 1]}"
    left_out, counted = [LEFT_OUT], f"{channels}, {len(blocks.names)} thread blocks"
    if bandwidth is None:
        left_out.insert(0, f"channels, thread blocks and protocol {blocks.protocol}")
    else:
        protocol = software.protocol
        bandwidth = int(bandwidth * PAYLOAD[protocol]) if protocol else bandwidth
        counted += f" of {format_bandwidth(bandwidth)} each"
        counted += f", protocol {protocol}" if protocol else ""
        if not protocol:
            left_out.insert(0, f"protocol {blocks.protocol}, which does not apply to {scenario.base.name}")
    crossed = {
        (hosts[sender], hosts[receiver], channel): Crossed(*ends)
        if bandwidth
        else Crossed(ends.channel, -1, -1)
        for (sender, receiver, channel), ends in blocks.ends.items()
    }
    further = FurtherLinks(blocks.names if bandwidth else (), bandwidth or 1, crossed)
    return replace(scenario, further=further), f"{counted}; left out: {'; '.join(left_out)}"
