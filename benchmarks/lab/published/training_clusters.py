"""Clusters on which published trainings ran, as networks with the hardware that NCCL's model wants.

Links have their vendor's rates.  NCCL's channels are those that it finds on such links (``src/graph/topo.h``:
20 GB/s of an NVLink of Volta and Ampere, 12 GB/s of PCIe 3).  Where cards have no NVLink and share a host's
memory nobody states what a ring reaches; there the rate is found from trainings that calibrate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.files.device_file import load_device
from sim.hardware import Device
from sim.topology.description import NetworkDescription, parse_network

NVLINK = 25
"""GB/s of one NVLink of Volta and Ampere, one way; 20 of them are NCCL's."""


def network_of(name: str, hardware: Mapping[str, Any], pcie_rate: float = 12e9) -> NetworkDescription:
    """Return the network of a set of trainings.

    Args:
        name: of the set.
        hardware: as the sources have it.
        pcie_rate: bytes/s that a ring reaches, in a node without NVLink and out of it.
    """
    per_node, cards = int(hardware["gpus_per_node"]), int(hardware["nics_per_node"] or 0)
    intra = float(hardware["intra_gbps_per_gpu"]) / 8
    by_nvlink = "NVLink" in hardware["intra_link"] and "no NVLink" not in hardware["intra_link"]
    generation = "ampere" if "A100" in hardware["gpu"] else "volta"
    links = round(intra / NVLINK)
    inside = (links, 20e9) if by_nvlink else (1, pcie_rate)
    card = float(hardware["nic_gbps"] or 100) / 8
    out = min(pcie_rate, card * 1e9) if not by_nvlink else card * 1e9
    lines = [
        "schema = 1",
        'kind = "nodes"',
        f"ranks_per_node = {per_node}",
        f'intra_bandwidth = "{intra:g}GB/s"',
        'intra_latency = "300ns"',
        f"nics_per_node = {cards or 1}",
        f'nic_bandwidth = "{card:g}GB/s"',
        'nic_latency = "1350ns"',
        "[hardware]",
        f'generation = "{generation}"',
        f'intra_link = "{"nvlink" if by_nvlink else "pci"}"',
        f"one_node = {{ count = {inside[0]}, intra_bandwidth = {round(inside[1])} }}",
        f"several_nodes = {{ count = {cards or 1}, intra_bandwidth = {round(out)} }}",
    ]
    return parse_network("\n".join(lines), name, name)


def device_of(hardware: Mapping[str, Any]) -> Device:
    """Return what a rank of a set of trainings computes on; only its memory's bandwidth is asked for."""
    if "2080" in hardware["gpu"]:  # 616 GB/s by its data sheet, of which as much is reached as on a V100
        return Device("RTX 2080 Ti", {}, memory_bandwidth=round(616e9 * 0.87))
    return load_device("a100" if "A100" in hardware["gpu"] else "v100")
